// The operations of a layer as the rank that ends last ran them.
#pragma once

#include <string_view>
#include <vector>

#include "models/answers/answer.h"
#include "models/programs/program.h"

namespace moesim::tools {

// Waiting is time in a collective before the last member came.
struct LayerOperation {
  bool forward = true, dense = false;
  const models::Op* op = nullptr;
  double start_us = 0, wait_us = 0, time_us = 0;
};

// "all_to_all", "permute", "gemm", ...
std::string_view kind_of(const models::Op& op);

// In order, dense part included. Needs ComparisonOptions::trace.
std::vector<LayerOperation> operations_of(const models::Answer& forecast);

}  // namespace moesim::tools

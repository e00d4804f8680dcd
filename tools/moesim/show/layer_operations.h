// The operations of a layer on the rank that ends last.
#pragma once

#include <string_view>
#include <vector>

#include "models/answers/answer.h"
#include "models/programs/program.h"

namespace moesim::tools {

// Waiting is time in a collective before the last member arrives.
struct LayerOperation {
  bool forward = true, dense = false;
  const models::Op* op = nullptr;
  double start_us = 0, wait_us = 0, time_us = 0;
};

// "all_to_all", "permute", "gemm", ...
std::string_view kind_of(const models::Op& op);

// Returns operations in order, dense part included. Needs AnswerOptions::trace.
std::vector<LayerOperation> operations_of(const models::Answer& forecast);

}  // namespace moesim::tools

// A scenario: the model, the parallel plan, the dispatchers to compare, the routing, the cluster, the question.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/architecture.h"
#include "models/dispatcher.h"
#include "models/layout.h"
#include "models/routing.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Cluster;

struct Scenario {
  enum class Scope : std::uint8_t { kLayer, kStep };

  Architecture model;
  Parallel parallel;
  bool dp_given = false;   // otherwise dp follows from the cluster's size
  bool seq_given = false;  // otherwise tokens follow from a routing file
  std::vector<DispatcherSpec> dispatchers;
  bool all_dispatchers = false;
  RoutingSpec routing;
  std::shared_ptr<const Cluster> cluster;  // null: the smallest dgx-h100xN that holds the plan
  Scope scope = Scope::kLayer;
  bool train = true;
  DType activation = DType::kBf16;
  DType router_dtype = DType::kFp32;
  Recompute recompute = Recompute::kNone;
  std::uint64_t seed = 1;
  std::int64_t topk = 0;  // 0: the model's

  // Reads the object of a scenario file (interface.md, "Files"). Relative paths inside are taken from the folder
  // of the file. Throws InputError for unknown keys, wrong types and impossible sizes, with file:line.
  static Scenario parse(const JsonNode& node);

  // Fills what follows from other values (topk, dp) and checks everything against everything else. Throws
  // InputError naming the rule.
  void resolve();
};

}  // namespace moesim::models

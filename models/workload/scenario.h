// A scenario: the model, the parallel plan, the dispatchers to compare, the routing, the cluster, the
// question.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/hardware/rental.h"
#include "models/routing/expert_placement.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "models/workload/dispatcher_spec.h"
#include "models/workload/faults.h"
#include "models/workload/parallel.h"
#include "models/workload/recompute.h"
#include "models/workload/sharding.h"
#include "models/workload/training_plan.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Cluster;

struct Scenario {
  enum class Scope : std::uint8_t { kLayer, kStep };

  Architecture model;
  Parallel parallel;
  bool dp_given = false;   // otherwise dp fills the cluster
  bool seq_given = false;  // otherwise a routing file says how many tokens a rank has
  std::vector<DispatcherSpec> dispatchers;
  // Every legal one; the others are listed with the rule that excludes them. `dispatchers` is one named "all"
  // until name_dispatchers() (models/dispatchers/dispatcher.h) puts their names there.
  bool all_dispatchers = false;
  RoutingSpec routing;
  PlacementSpec placement;                 // of the experts on the expert-parallel ranks
  ShardingSpec sharding;                   // of parameters over data parallelism; ZeRO-1 where nobody asked
  std::shared_ptr<const Cluster> cluster;  // null: the smallest dgx-h100xN that holds the plan
  Scope scope = Scope::kLayer;
  bool train = true;
  DType activation = DType::kBf16;
  DType router_dtype = DType::kFp32;
  Recompute recompute = Recompute::kNone;
  std::uint64_t seed = 1;
  PriceTable prices;                         // where given: what time costs
  TrainingPlan training;                     // of scope step
  Faults faults;                             // of the machine
  std::int64_t topk = 0;                     // 0: the model's, or the routing file's
  std::vector<std::filesystem::path> files;  // that were read: model, cluster, routing

  // Reads the object of a scenario file (docs/interface: "Files"). Relative paths inside are taken from the
  // folder of the file, or from the current one where nothing stands there. Throws InputError for unknown
  // keys, wrong types and impossible sizes, with file:line. Checks between values are resolve()'s.
  static Scenario parse(const JsonNode& node);

  void set_model(const std::string& name_or_path);
  void set_cluster(const std::string& name_or_path);
  void set_dispatchers(const std::string& text);   // "a,b:key=value", or "all"; names are not checked
  void set_router_dtype(const std::string& name);  // bf16, fp16, fp32, fp64
  void set_recompute(const std::string& name);     // none, activation, full

  // Fills what follows from other values (topk, dp, cluster) and checks the plan against model and cluster.
  // Throws InputError naming the rule.
  void resolve();
};

}  // namespace moesim::models

// A scenario: the model, the parallel plan, the dispatchers to compare, the routing, the cluster, the
// question. One table defines its fields, and how they are read and written: models/workload/fields.h.
#pragma once

#include <bitset>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/hardware/ownership.h"
#include "models/hardware/rental.h"
#include "models/routing/expert_placement.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "models/workload/dispatcher_spec.h"
#include "models/workload/faults.h"
#include "models/workload/fields.h"
#include "models/workload/global_batch.h"
#include "models/workload/origin.h"
#include "models/workload/parallel.h"
#include "models/workload/training_settings.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

struct Cluster;

// Name of the answer to a dense model's step.
inline constexpr const char* kNoDispatcher = "none";

// A torch DeviceMesh as a plan: sizes of its axes, written as (pp, replicate, shard, cp, ep, tp), the last
// fastest. Data parallelism is replicate x shard: FSDP over shard, an all-reduce over replicate.
struct DeviceMesh {
  std::int64_t pp = 1, replicate = 1, shard = 1, cp = 1, ep = 1, tp = 1;
  bool given = false;

  // Reads {"replicate": 2, "shard": 2, "tp": 2} or "replicate=2,shard=2,tp=2".
  static DeviceMesh parse(const JsonNode& node);
  nlohmann::ordered_json to_json() const;
  RankGrid grid() const;  // of the axes in use: replicate, shard, tp, and the others where not 1
};

enum class Scope : std::uint8_t { kLayer, kStep };
template <>
inline constexpr auto kNamesOf<Scope> = name_list("layer", "step");

// Passes of a layer on one rank in a step: microbatches x layers of its stage, forward and backward together.
// About 7 kB each while a step is booked.
inline constexpr std::int64_t kMostLayerPasses = std::int64_t{1} << 18;

struct Scenario {
  using Scope = models::Scope;

  Architecture model;
  DeviceMesh mesh;    // where given, sets tp, cp, ep, dp, pp and the sharding
  Parallel parallel;  // dp fills the cluster where it was not given
  std::vector<DispatcherSpec> dispatchers = DispatcherSpec::parse_list("allgather,alltoall");
  // Compares every legal dispatcher and lists the others with the rule that excludes them. `dispatchers`
  // holds one named "all" until name_dispatchers() (models/dispatchers/dispatcher.h) replaces it by their
  // names.
  bool all_dispatchers = false;
  RoutingSpec routing;
  PlacementSpec placement;                 // of the experts on the expert-parallel ranks
  std::shared_ptr<const Cluster> cluster;  // null: the smallest dgx-h100xN that holds the plan
  std::int64_t gpus = 0;                   // GPUs of the job; 0: all of the cluster
  bool fewest_gpus = false;                // take_sizes() has closed an open machine: no GPU beyond the plan
  GlobalBatch batch;                       // where given, sets the microbatches
  Scope scope = Scope::kLayer;
  bool train = true;
  DType activation = DType::kBf16;
  DType router_dtype = DType::kFp32;
  std::uint64_t seed = 1;
  PriceTable prices;    // where given: what time costs
  Ownership ownership;  // of a machine that is bought
  // A training framework's recipe, "megatron-bridge@26.04" (models/recipes), for settings that were not
  // given.
  std::string recipe;
  std::string job_framework;       // recipe of the framework whose file the job comes from; empty: no file
  std::string job_dispatcher;      // that this job runs today; empty: not known
  TrainingSettings training;       // recomputation and sharding; the rest applies at scope step only
  Faults faults;                   // of the machine
  std::int64_t topk = 0;           // 0: the model's, or the routing file's
  std::bitset<kMostFields> given;  // bit index_of(field): set where the value is not the default
  Origins origins;                 // origins of given fields and of their changed parts ("model.layers")
  bool resolved = false;           // derived values are filled in

  // Reads the object of a scenario file (docs/scenario.md). Relative paths inside start from the folder of
  // the file, or from the current one where nothing is there. Throws InputError with file:line for unknown
  // keys, wrong types and impossible sizes. resolve() checks values against each other.
  static Scenario parse(const JsonNode& node);

  void set_model(const std::string& name_or_path);
  void set_cluster(const std::string& name_or_path);
  void set_dispatchers(const std::string& text);  // "a,b:key=value", or "all"; names are not checked

  // Return whether the field at a path ("parallel.dp") was given, and record that it is.
  bool gave(std::string_view path) const;
  void give(std::string_view path);
  void give(std::string_view path, Origin origin);
  // Returns the origin of a field's value; kDefault where it was not given.
  Origin origin_of(std::string_view path) const;
  // Returns the GPUs that the plan may use. For a resolved scenario.
  std::int64_t job_gpus() const;
  bool is_step() const { return scope == Scope::kStep; }
  // Whether the number of GPUs is open: the plan sets it.
  bool gpus_open() const;
  // Whether a sharding was given.
  bool sharding_asked() const;

  // Fills the sizes that follow from others (topk, dp, the cluster's nodes) and checks the plan against model
  // and cluster. Throws InputError naming the rule, and for a given field that the scope does not use.
  void take_sizes();
  // take_sizes(), then the microbatches of a batch; sets settings without effect to their defaults
  // (Field::used_if) and checks what is left. `dropped`: receives these settings.
  void resolve(std::vector<WithoutEffect>* dropped = nullptr);

 private:
  void take_mesh();
  void take_gpus();
  void take_batch();
};

Scopes scope_of(const Scenario& scenario);

// Sets the ETP that a dispatcher implies: Megatron before parallel folding, whose AllGather gathers over TP x
// EP, splits experts like the rest.
void take_expert_tp(Scenario& scenario);

// Returns the cluster that groups of so many ranks use. Of several racks that is a number of each rack's GPUs
// that the groups divide: 64 of 72 for groups of 32.
std::shared_ptr<const Cluster> blocks_of(const Scenario& scenario, std::int64_t group);

// Returns the location of a path that a file contains: relative to the file if it exists there, else
// unchanged.
std::string beside(const std::string& file, const std::string& path);

}  // namespace moesim::models

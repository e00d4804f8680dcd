// The job behind a recording as input of cost models: the model's shapes, the parallel plan, and the routing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/dispatcher.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "replay/recording/denoise.h"
#include "replay/recording/topology.h"

namespace moesim::replay {

struct JobModel {
  models::Architecture architecture;  // with the recording's own layers, experts and top-k
  Topology topology;
  std::int64_t seq = 0;
  std::int64_t micro_batch = 1;
  models::Routing routing;         // of one dispatch group, equal for all layers, microbatches and replicas
  bool routing_completed = false;  // completed from rows per rank, spread evenly over the rank's experts
  bool routing_given = false;      // by the user

  // Per rank: tensor parallelism splits a sequence over the ranks of its group.
  std::int64_t tokens() const { return seq * micro_batch / topology.tp; }
  int ranks() const { return topology.tp * topology.expert; }  // of a dispatch group, TP fastest
  int layers_per_stage() const { return static_cast<int>(architecture.layers) / topology.pp; }
  // Returns the rows that the experts of each expert rank compute.
  std::vector<std::int64_t> received() const;
  models::MoeLayer moe_layer(int gpus_per_node) const;  // refers to `routing`
};

// Changes that the user asks for. Unset members stay as recorded; DP stays when PP or EP change.
struct JobChange {
  std::optional<std::int64_t> seq;
  std::optional<std::int64_t> ep;
  std::optional<std::int64_t> experts;
  std::optional<std::int64_t> dp;
  std::optional<std::int64_t> pp;
  std::optional<models::RoutingSpec> routing;
  // rows by expert rank, from another recording of the job
  std::optional<std::vector<std::int64_t>> received;
  std::uint64_t seed = 1;  // for a drawn routing
  // Seed to draw how the rows of a recorded rank split over its experts, where that matters and is unknown;
  // nullopt: evenly.
  std::optional<std::uint64_t> split_seed;

  bool resizes() const { return seq || ep || experts || dp || pp; }
};

// The job under every routing in a file: layer l (over all stages) and microbatch m have jobs[table[m %
// table.size()][l]]. Empty where one routing holds for all.
struct RoutedLayers {
  std::vector<JobModel> jobs;
  std::vector<std::vector<std::size_t>> table;
};
RoutedLayers routed_layers(const JobModel& job, const JobChange& change);

// Returns the recorded job: `architecture`, or the built-in one with the same sizes (model_facts). Routing is
// completed from the rows that each expert rank received: row i of the split matrix is spread like the column
// sums, and the rows of a rank evenly over its experts. A recording of the AllGather dispatcher does not show
// the routing; `change.routing` then gives that of the recorded job. Throws InputError with the reason where
// the recording is insufficient: no exchange, tensor parallelism, no matching model.
JobModel job_model(const CleanJob& job, const traces::NamedTopology& named,
                   const models::Architecture* architecture, const JobChange& change = {});

// Returns the job after the change, and the names of a recording of it. Keeps the popularity of experts:
// shares of expert ranks are merged, or split evenly with a warning where the recording does not resolve
// them. Throws InputError with the reason for sizes that do not divide.
JobModel changed_job(const JobModel& job, const JobChange& change, std::vector<std::string>& warnings);
traces::NamedTopology names_of(const JobModel& job, traces::NamedTopology named);

}  // namespace moesim::replay

// The job behind a recording, as cost models need it: the model's shapes, the parallel plan, and who routes
// how many rows to whom.
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
  models::Routing routing;         // of one dispatch group, equal on all layers, microbatches and replicas
  bool routing_completed = false;  // from rows per rank only: spread evenly over the rank's experts
  bool routing_given = false;      // by the user

  // Of a rank: with tensor parallelism a sequence lies on all ranks of its group.
  std::int64_t tokens() const { return seq * micro_batch / topology.tp; }
  int ranks() const { return topology.tp * topology.expert; }  // of a dispatch group, TP fastest
  int layers_per_stage() const { return static_cast<int>(architecture.layers) / topology.pp; }
  // Rows that the experts of each expert rank compute.
  std::vector<std::int64_t> received() const;
  models::MoeLayer moe_layer(int gpus_per_node) const;  // refers to `routing`
};

// What a user wants to be different. What is not set stays as recorded; DP stays when PP or EP change.
struct JobChange {
  std::optional<std::int64_t> seq;
  std::optional<std::int64_t> ep;
  std::optional<std::int64_t> experts;
  std::optional<std::int64_t> dp;
  std::optional<std::int64_t> pp;
  std::optional<models::RoutingSpec> routing;
  std::optional<std::vector<std::int64_t>> received;  // rows by expert rank, of another recording of the job
  std::uint64_t seed = 1;                             // of a drawn routing
  // Draws how the rows of a recorded rank fall on its experts, where that matters and nobody knows; none:
  // evenly.
  std::optional<std::uint64_t> split_seed;

  bool resizes() const { return seq || ep || experts || dp || pp; }
};

// The job under every routing that a file names: of layer l (of all stages) and microbatch m
// jobs[table[m % table.size()][l]]. Empty where one routing holds for all.
struct RoutedLayers {
  std::vector<JobModel> jobs;
  std::vector<std::vector<std::size_t>> table;
};
RoutedLayers routed_layers(const JobModel& job, const JobChange& change);

// The recorded job: `architecture`, or the built-in one whose sizes agree (model_facts). Routing is completed
// from the rows that each expert rank received: row i of the split matrix is spread like the column sums, and
// the rows of a rank evenly over its experts. A recording of the AllGather dispatcher does not show who
// routed what: `change.routing` says it, of the recorded job. Throws InputError with the reason where the
// recording does not say enough: no exchange, tensor parallelism, no model that fits.
JobModel job_model(const CleanJob& job, const traces::NamedTopology& named,
                   const models::Architecture* architecture, const JobChange& change = {});

// The job after the change, and the names a recording of it would have. The popularity of experts is kept:
// shares of expert ranks are merged, or split evenly with a warning where the recording does not resolve
// them. Throws InputError with the reason for what does not divide.
JobModel changed_job(const JobModel& job, const JobChange& change, std::vector<std::string>& warnings);
traces::NamedTopology names_of(const JobModel& job, traces::NamedTopology named);

}  // namespace moesim::replay

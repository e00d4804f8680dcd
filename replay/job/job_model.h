// The job behind a recording as input of cost models: the model's shapes, the parallel plan, and the routing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/hardware/profile.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "models/workload/scenario.h"
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

// A question about a recording: it has settings that replace the recorded ones, and says how to time the iteration.
struct RecordingQuestion {
  RecordingQuestion() { said.scope = models::Scenario::Scope::kStep; }

  // Settings of another origin than the recording replace the recorded ones: the paths of kRecordedSettings.
  // DP stays when PP or EP change, and fills the nodes when these change.
  models::Scenario said;
  std::string recorded_on;      // cluster whose GPUs made the recording; "": see recorded_machine.h
  bool recorded_there = false;  // recorded on the question's cluster, unless its files say otherwise
  // Machines of the questions that this one is compared with: that of a what-if before its change, or all of a
  // sweep. One of them made the recording, where nothing says what did.
  std::vector<models::Cluster> beside;
  bool ranks_missing = false;  // of a realistic recording: fills missing ranks by symmetry
  // Rows by expert rank, from another recording of the job.
  std::optional<std::vector<std::int64_t>> received;
  // From a file beside the recording: for memory, where nothing else is known.
  std::optional<models::RoutingSpec> routing_beside;

  int draws = 0;      // further forecasts for the interval, of a scaling recording
  int threads = 1;    // of the draws; 0: all cores
  bool flow = false;  // transfers of a scaling recording share the links of the cluster's fabric
  bool attribution = false;
  bool memory = false;        // with the memory of the ranks
  bool effect_gains = false;  // of a scaling recording: with the contribution of each effect

  // A draw has its own profile of the cluster. Its seed splits the rows of a recorded rank over its experts where
  // the split matters and is unknown; nullopt splits them evenly.
  std::optional<models::Profile> drawn_profile;
  std::optional<std::uint64_t> split_seed;

  // Whether a setting, or a part of it, takes the place of the recorded one.
  bool changes(std::string_view path) const;
  // The routing in the place of the recorded one, else that of a file beside the recording; nullptr: neither.
  const models::RoutingSpec* routing() const;
  // The number at "parallel.seq", "model.experts" or "cluster.nodes" where it does.
  std::optional<std::int64_t> size(std::string_view path) const;
  // The recorded model as the user named it; nullptr: its sizes tell it.
  const models::Architecture* model() const;
  bool resizes() const;
  bool changes_job() const;
  // The same question of the recorded dispatcher.
  RecordingQuestion as_recorded() const;
};

// Settings that a replay takes; parts of cluster, routing, dispatcher and prices are settings, too.
inline constexpr std::array<std::string_view, 12> kRecordedSettings{
    "cluster",     "dispatcher",  "routing",     "model",  "model.experts",         "parallel.seq",
    "parallel.ep", "parallel.dp", "parallel.pp", "prices", "parallel.microbatches", "seed"};

// The job under every routing in a file: layer l (over all stages) and microbatch m have jobs[table[m %
// table.size()][l]]. Empty where one routing holds for all.
struct RoutedLayers {
  std::vector<JobModel> jobs;
  std::vector<std::vector<std::size_t>> table;
};
RoutedLayers routed_layers(const JobModel& job, const RecordingQuestion& question);

// Returns the recorded job: the question's model, or the built-in one with the same sizes (model_facts). Routing is
// completed from the rows that each expert rank received: row i of the split matrix is spread like the column
// sums, and the rows of a rank evenly over its experts. A recording of the AllGather dispatcher does not show
// the routing; the question's is then that of the recorded job. Throws InputError with the reason where
// the recording is insufficient: no exchange, tensor parallelism, no matching model.
JobModel job_model(const CleanJob& job, const traces::NamedTopology& named,
                   const RecordingQuestion& question = {});

// Returns the job with the question's settings, and the names of a recording of it. Keeps the popularity of experts:
// shares of expert ranks are merged, or split evenly with a warning where the recording does not resolve
// them. Throws InputError with the reason for sizes that do not divide.
JobModel changed_job(const JobModel& job, const RecordingQuestion& question,
                     std::vector<std::string>& warnings);
traces::NamedTopology names_of(const JobModel& job, traces::NamedTopology named);

}  // namespace moesim::replay

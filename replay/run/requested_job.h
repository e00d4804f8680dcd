// Builds the requested job from a recording: rescaled, with another routing, on another cluster, with another
// dispatcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/hardware/cluster.h"
#include "models/workload/architecture.h"
#include "replay/job/job_model.h"
#include "replay/recording/denoise.h"
#include "replay/recording/effects.h"
#include "replay/run/iteration.h"
#include "replay/run/uncertainty.h"

namespace moesim::replay {

struct JobRequest {
  JobChange change;
  // nodes of the cluster; data parallelism fills them where dp is not given
  std::optional<std::int64_t> nodes;
  std::string dispatcher;            // "" or "as-recorded": the recorded one
  std::string cluster;               // "": as many Echo nodes as the job needs
  std::string recorded_on;           // cluster whose GPUs made the recording; "": see recorded_machine.h
  bool recorded_there = false;       // recorded on `cluster`, unless its files say otherwise
  bool ranks_missing = false;        // for a realistic recording: fills missing ranks by symmetry
  bool routing_as_recorded = false;  // the routing of the file beside the recording is ignored
  std::optional<models::RoutingSpec>
      routing_beside;  // from that file: for memory, where nothing else is known
  std::optional<models::Architecture> architecture;  // of the recorded model; else identified by its sizes
  std::optional<models::Profile> drawn_profile;      // replaces the cluster's own, for intervals

  bool changes_dispatcher() const { return !dispatcher.empty() && dispatcher != "as-recorded"; }
  bool changes_job() const {
    return change.resizes() || change.routing || change.received || nodes || changes_dispatcher() ||
           !recorded_on.empty();
  }
};

// The dispatcher that takes the place of the recorded one.
struct DispatcherChange {
  std::string recorded, asked;  // with their options
  // prices of the asked one's layer that were not measured on this machine; shares of the layer's time
  std::vector<models::DomainReport::Unmeasured> unmeasured;
};

struct RequestedJob {
  CleanJob clean;
  traces::NamedTopology named;
  models::Cluster cluster;
  std::vector<std::string> warnings;
  std::string changes;  // differences from the recording, as text; empty: none
  std::optional<DispatcherChange> substitution;
};

// The forecast job as input of cost models, and the dispatcher of its layers.
struct ModelledJob {
  JobModel job;
  models::DispatcherSpec dispatcher;
};
// Throws InputError with the reason where the recording is insufficient.
ModelledJob modelled_job(const CleanJob& recorded, const traces::NamedTopology& named,
                         const models::Cluster& cluster, const JobRequest& request);

// For a cleaned scaling recording. Throws InputError with the reason where the job cannot be derived.
RequestedJob requested_job(const CleanJob& recorded, const traces::NamedTopology& named,
                           const JobRequest& request);

// Draws of that job under a drawn profile, and with drawn splits of rows where the recording does not contain
// them; empty where the request changes nothing. `recorded` and `named` must outlive it.
JobDraw drawn_jobs(const CleanJob& recorded, const traces::NamedTopology& named, const JobRequest& request);

// Returns the cluster of a job replayed at its own size.
models::Cluster cluster_of(const JobRequest& request, const Topology& topology);

// Returns the cluster of this name with room for all ranks of a job.
models::Cluster on_its_machine(const std::string& cluster, const Topology& topology);

// For a realistic recording: plans as recorded, with the dispatcher or routing replaced. Sizes cannot change.
struct RequestedSchedules {
  std::vector<RankSchedule> plans;
  std::vector<std::string> warnings;
  std::string changes;
  std::optional<CleanJob> clean;  // of a changed job, with its routing where one holds for all layers
  std::optional<DispatcherChange> substitution;
};
RequestedSchedules requested_plans(const RecordedJob& job, const traces::NamedTopology& named,
                                   const models::Cluster& cluster, const JobRequest& request);

}  // namespace moesim::replay

// From a recording and a user's wishes to the job that is forecast: rescaled, with another routing, on
// another cluster, with another dispatcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
  std::optional<std::int64_t> nodes;  // of the cluster; fills it with data parallelism where dp is not given
  std::string dispatcher;             // "" or "as-recorded": the recorded one
  std::string cluster;                // "": as many Echo nodes as the job needs
  std::string recorded_on;            // whose GPUs made the recording; "": see recorded_machine.h
  bool recorded_there = false;        // `cluster` is what it was recorded on, unless its files say otherwise
  bool ranks_missing =
      false;  // of a realistic recording: ranks that were not recorded are filled by symmetry
  bool routing_as_recorded = false;  // no file beside the recording says it
  std::optional<models::RoutingSpec>
      routing_beside;  // of that file: memory under it, where nothing else is known
  std::optional<models::Architecture> architecture;  // of the recorded model; else found by its sizes
  std::optional<models::Profile> drawn_profile;      // in place of the cluster's own, for intervals

  bool changes_dispatcher() const { return !dispatcher.empty() && dispatcher != "as-recorded"; }
  bool changes_job() const {
    return change.resizes() || change.routing || change.received || nodes || changes_dispatcher() ||
           !recorded_on.empty();
  }
};

struct RequestedJob {
  CleanJob clean;
  traces::NamedTopology named;
  models::Cluster cluster;
  std::vector<std::string> warnings;
  std::string changes;  // what differs from the recording, for people; empty: nothing
};

// The job that is forecast, as cost models need it, and the dispatcher of its layers.
struct ModelledJob {
  JobModel job;
  models::DispatcherSpec dispatcher;
};
// Throws InputError with the reason where the recording does not say enough.
ModelledJob modelled_job(const CleanJob& recorded, const traces::NamedTopology& named,
                         const models::Cluster& cluster, const JobRequest& request);

// Of a cleaned scaling recording. Throws InputError with the reason for what cannot be derived.
RequestedJob requested_job(const CleanJob& recorded, const traces::NamedTopology& named,
                           const JobRequest& request);

// The same job under a drawn profile, and with rows drawn apart where the recording does not say how they
// split; empty where the request changes nothing. `recorded` and `named` must outlive it.
JobDraw drawn_jobs(const CleanJob& recorded, const traces::NamedTopology& named, const JobRequest& request);

// The cluster of a job that is replayed at its own size.
models::Cluster cluster_of(const JobRequest& request, const Topology& topology);

// The cluster of this name with room for all ranks of a job.
models::Cluster on_its_machine(const std::string& cluster, const Topology& topology);

// Of a realistic recording: plans as recorded, with the dispatcher or routing replaced. Sizes cannot change.
struct RequestedPlans {
  std::vector<RankPlan> plans;
  std::vector<std::string> warnings;
  std::string changes;
};
RequestedPlans requested_plans(const RecordedJob& job, const traces::NamedTopology& named,
                               const models::Cluster& cluster, const JobRequest& request);

}  // namespace moesim::replay

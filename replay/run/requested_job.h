// From a recording to the job that is asked for (rescaled, with another routing, on another cluster, with
// another dispatcher), and to the settings that it was recorded with.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/costs/domain_report.h"
#include "models/hardware/cluster.h"
#include "replay/job/job_model.h"
#include "replay/recording/denoise.h"
#include "replay/recording/effects.h"
#include "replay/run/forecast.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

// The dispatcher that takes the place of the recorded one.
struct DispatcherChange {
  std::string recorded, asked;  // with their options
  // prices of the asked one's layer that were not measured on this machine; shares of the layer's time
  std::vector<models::DomainReport::Unmeasured> unmeasured;
};

struct RequestedJob {
  CleanJob clean;
  std::vector<RankSteps> plans;  // of a realistic recording: as recorded, with another dispatcher or routing
  traces::NamedTopology named;
  models::Cluster cluster;
  std::vector<std::string> warnings;
  std::string changes;  // differences from the recording, as text; empty: none
  std::optional<DispatcherChange> substitution;
};

// For a cleaned scaling recording, of all expert ranks or of some (CleanJob::unrecorded). Throws InputError with the reason where the job cannot be derived.
RequestedJob requested_job(const CleanJob& recorded, const traces::NamedTopology& named,
                           const RecordingQuestion& question);
// For a realistic recording, whose sizes cannot change; `clean` has the routing where one holds for all layers,
// and no places where nothing changes.
RequestedJob requested_run(const RecordedJob& job, const traces::NamedTopology& named,
                           const RecordingQuestion& question);

// Draws of the job under a drawn profile, and with drawn splits of rows where the recording does not contain
// them; empty where the question changes nothing. `recorded` and `named` must outlive it.
JobDraw drawn_jobs(const CleanJob& recorded, const traces::NamedTopology& named,
                   const RecordingQuestion& question);

// Returns the cluster of a job of this topology: the question's, or as many H800 nodes of Echo as it needs.
models::Cluster cluster_of(const RecordingQuestion& question, const Topology& topology);

// Returns the cluster of this name with room for all ranks of a job.
models::Cluster on_its_machine(const std::string& cluster, const Topology& topology);

// Returns the dispatcher that a question names, or the one that a step of the recording shows. Throws
// InputError where it is none or several.
models::DispatcherSpec dispatcher_of(const RecordingQuestion& question, const JobModel& job,
                                     const models::Cluster& cluster, const CleanJob& clean);

// Returns the settings of a recorded job as far as its lines and names tell them, each of origin `recording`:
// sizes, and where the models know the job its model and its dispatcher.
models::Scenario recorded_settings(const RecordedJob& job, const traces::NamedTopology& named);

}  // namespace moesim::replay

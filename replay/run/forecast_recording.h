// The forecast of a recording, whether one GPU made it (scaling mode) or all did (realistic): the one way
// from recorded jobs to an iteration, for every verb that asks for one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/hardware/cluster.h"
#include "models/hardware/cluster_fabric.h"
#include "models/hardware/estimate.h"
#include "replay/recording/effects.h"
#include "replay/recording/steps.h"
#include "replay/run/attribution.h"
#include "replay/run/iteration.h"
#include "replay/run/recorded_machine.h"
#include "replay/run/recorded_overload.h"
#include "replay/run/requested_job.h"
#include "replay/run/run_summary.h"
#include "traces/recording.h"

namespace moesim::replay {

struct RecordingQuestion {
  JobRequest job;        // what is to differ from the recording
  int microbatches = 0;  // per rank, of a scaling recording; 0: default_microbatches(), with a warning
  std::uint64_t seed = 1;
  int draws = 0;      // further forecasts for the interval, of a scaling recording
  bool flow = false;  // transfers of a scaling recording share the links of the cluster's fabric
  bool attribution = false;
  bool effect_gains = false;  // of a scaling recording: what each added constant changes
};

struct RecordingForecast {
  // Of timing `flow`.
  struct Network {
    double calibrated_us = 0;  // the iteration if nothing contended
    models::LinkLoad busiest;
  };

  bool realistic = false;
  bool synthetic = false;  // made by the models, measured on no machine
  RecordedMachine recorded_on;
  models::Cluster cluster;
  Iteration iteration;
  RunSummary summary;
  std::vector<RunSummary> drawn;
  models::Estimate iteration_us;
  std::optional<double> measured_us;     // what the recording itself took: realistic, nothing changed
  std::optional<Iteration> as_recorded;  // where another dispatcher was asked for: the recorded one
  int microbatches = 0;
  std::optional<double> tokens;  // that an iteration trains on, of all ranks; where the sizes are known
  // The job as it was recorded, on what it was recorded on, where anything of a scaling recording differs.
  struct Before {
    double us = 0;
    std::optional<double> tokens;
    std::string what;  // topology, cluster, dispatcher, for people
  };
  std::optional<Before> before;
  std::string changes;                       // what differs from the recording, for people; empty: nothing
  std::optional<RecordedOverload> overload;  // where the calls or a given routing show the rows
  Attribution attribution;
  std::optional<Network> network;
  std::optional<Effects> effects;       // added to a scaling recording
  std::vector<double> effect_gains_us;  // in their order: how much longer the iteration is with each
  // What decides whether the answer means anything at all, one sentence each: calls that nobody knows, a
  // machine that nobody named, no measurement at all. Not among the warnings.
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

// `jobs` are passes of one scaling recording, which are pooled, or one realistic recording; `named` is what
// its files say of the job. Throws InputError for a question that the recording cannot answer.
RecordingForecast forecast_recording(std::span<const RecordedJob> jobs, const traces::NamedTopology& named,
                                     const RecordingQuestion& question);

// Microbatches per rank that a realistic recording shows.
int microbatches_of(const RecordedJob& job);

}  // namespace moesim::replay

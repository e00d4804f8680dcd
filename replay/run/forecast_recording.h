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
#include "models/step/forecast.h"
#include "replay/recording/effects.h"
#include "replay/recording/steps.h"
#include "replay/run/attribution.h"
#include "replay/run/iteration.h"
#include "replay/run/recorded_machine.h"
#include "replay/run/recorded_memory.h"
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
  bool memory = false;        // what the ranks hold
  bool effect_gains = false;  // of a scaling recording: what each added constant changes
};

// A simulated iteration of all ranks, as a forecast: the critical rank is of the job, 0 tokens are unknown;
// memory, FLOPs and unmeasured parts are empty, and so are draws but those of a scaling recording's answer.
struct IterationForecast : models::Forecast {
  Iteration iteration;
};

struct RecordingForecast : IterationForecast {
  bool realistic = false;
  bool synthetic = false;  // made by the models, measured on no machine
  RecordedMachine recorded_on;
  models::Cluster cluster;
  RunSummary summary;
  std::vector<RunSummary> drawn;                 // what draws_us are made of, operation by operation
  std::optional<double> measured_us;             // the recording's own time: realistic, nothing changed
  std::optional<IterationForecast> as_recorded;  // by the recorded dispatcher, where another was asked for
  int microbatches = 0;
  // The job as it was recorded, on its own machine, where anything differs; of a scaling recording only with
  // `attribution`.
  struct Before : models::Forecast {
    std::string what;  // topology, cluster, dispatcher, for people
  };
  std::optional<Before> before;
  std::string changes;                       // what differs from the recording, for people; empty: nothing
  std::optional<RecordedOverload> overload;  // where the calls or a given routing show the rows
  std::optional<RecordedMemory> held, held_as_recorded;  // the second where another dispatcher was asked for
  std::string not_held;                                  // why nothing is known of memory; empty: it is
  Attribution attribution;
  std::optional<Effects> effects;       // added to a scaling recording
  std::vector<double> effect_gains_us;  // in their order: how much longer the iteration is with each
  // What decides whether the answer means anything at all, one sentence each: calls that nobody knows, a
  // machine that nobody named, no measurement at all. Not among the warnings.
  std::vector<std::string> notes;
};

// `jobs` are passes of one scaling recording, which are pooled, or one realistic recording; `named` is what
// its files say of the job. Throws InputError for a question that the recording cannot answer.
RecordingForecast forecast_recording(std::span<const RecordedJob> jobs, const traces::NamedTopology& named,
                                     const RecordingQuestion& question);

// Microbatches per rank that a realistic recording shows.
int microbatches_of(const RecordedJob& job);

}  // namespace moesim::replay

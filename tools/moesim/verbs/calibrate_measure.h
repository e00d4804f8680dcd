// The `measure` part of `moesim calibrate`.
#pragma once

#include <string>

#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

struct MeasureOptions {
  std::string out = "raw", bench, program, filter, forecast;
  int ranks = 1, gpus_per_node = 0;
  bool dry_run = false, brief = false;
  double min_time = 0, minutes = 0;
};

// Runs the benchmarks that have not run yet and returns the measurement file.
std::string measure_machine(const MeasureOptions& options, const CommonOptions& common);

// Declares the options that start the benchmarks, for other commands that measure.
void declare_bench(CLI::App& app, MeasureOptions& options);

Run declare_measure(CLI::App& app);

}  // namespace moesim::tools

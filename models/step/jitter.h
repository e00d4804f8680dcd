// How the time of a training step varies from one step to the next.
//
// A replica's stage takes its nominal time times 1 + s z: operations of a stage scatter by a log standard
// deviation of 1.63 %, of which 16 % is common to all operations of a step, the rest averages out over the 2
// m passes of m microbatches. The step takes as long as the slowest of the n groups of ranks that do not meet
// inside a layer: the largest of n normal numbers. One step in 38 has a spike of 5.7 % on top (garbage
// collection, the host, the file system). What stays slow (clocks of single GPUs) is no scatter of steps: it
// is in every step's time (slowest_of(), models/costs/training_products.h).
//
// Measured: ByteDance-Seed/StragglerAnalysis at 8efcd7f3, trace AR without the replica that was slowed on
// purpose (compute: log_ratio_sd 0.0163, autocorr_call 0.163, icc_worker 0.027); spikes: 2 of the 76 steps of
// AR and ST, 3.7 and 7.6 % long. Uneven sequences or routing come on top: they are load, not jitter.
#pragma once

#include <cstdint>

#include "models/workload/parallel.h"

namespace moesim::models {

// Microseconds that half, 90 % and 99 % of the steps take at most.
struct StepQuantiles {
  double p50 = 0, p90 = 0, p99 = 0;
};

// `us`: the usual step, which is the median here.
StepQuantiles step_quantiles(const Parallel& parallel, double us);

}  // namespace moesim::models

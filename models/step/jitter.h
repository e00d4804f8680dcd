// Variation of the time of a training step from one step to the next.
//
// A replica's stage takes its nominal time times 1 + s z: operations of a stage scatter by a log standard
// deviation of 1.63 %, of which 16 % is common to all operations of a step, the rest averages out over the 2
// m passes of m microbatches. The step takes as long as the slowest of the n groups of ranks that do not meet
// inside a layer: the largest of n normal numbers. One step in 38 has a spike of 5.7 % on top (garbage
// collection, the host, the file system). Permanent slowness (clocks of single GPUs) is in every step's time
// (slowest_of(), models/costs/training_products.h) and no part of this variation.
//
// Measured: ByteDance-Seed/StragglerAnalysis at 8efcd7f3, trace AR without the replica that was slowed on
// purpose (compute: log_ratio_sd 0.0163, autocorr_call 0.163, icc_worker 0.027); spikes: 2 of the 76 steps of
// AR and ST, 3.7 and 7.6 % long. Uneven sequences and routing come on top: they are load, not jitter.
#pragma once

#include <cstdint>

#include "models/workload/parallel.h"

namespace moesim::models {

// Quantiles of the step time in microseconds.
struct StepQuantiles {
  double p50 = 0, p90 = 0, p99 = 0;
};

// `us`: the typical step, the median here.
StepQuantiles step_quantiles(const Parallel& parallel, double us);

}  // namespace moesim::models

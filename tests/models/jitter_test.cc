// Variation of the time of a step from one to the next.
#include "models/step/jitter.h"

#include <gtest/gtest.h>

namespace moesim::models {
namespace {

Parallel plan(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t microbatches) {
  Parallel p;
  p.dp = dp;
  p.pp = pp;
  p.tp = tp;
  p.microbatches = microbatches;
  return p;
}

// Trace AR of ByteDance-Seed/StragglerAnalysis: 64 GPUs, 32 microbatches, no spike in 44 steps; its step
// times lie at 1.0053 (p90) of the median. The forecast's quantiles hold spikes of one step in 38 beside
// that.
TEST(Jitter, TheStepsOfATraceThatItWasNotFittedTo) {
  const StepQuantiles q = step_quantiles(plan(3, 4, 4, 32), 1e6);
  EXPECT_DOUBLE_EQ(q.p50, 1e6);
  EXPECT_NEAR(q.p90 / q.p50, 1.0053, 0.0015);
  EXPECT_NEAR(q.p99 / q.p50, 1.05, 0.02);
}

TEST(Jitter, GrowsWithFewerPassesAndShrinksWithMoreGroupsThatWait) {
  const auto spread = [](const Parallel& p) {
    const StepQuantiles q = step_quantiles(p, 1);
    EXPECT_LT(q.p50, q.p90);
    EXPECT_LT(q.p90, q.p99);
    return q.p90 - q.p50;
  };
  EXPECT_GT(spread(plan(4, 1, 1, 1)), spread(plan(4, 1, 1, 64)));
  // The largest of many scatters less than one alone.
  EXPECT_GT(spread(plan(1, 1, 1, 8)), spread(plan(256, 1, 1, 8)));
}

}  // namespace
}  // namespace moesim::models

// A forecast beside a measured run.
#include "replay/run/run_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "replay/run/forecast.h"

namespace moesim::replay {
namespace {

RunSummary summary(double iteration_us, double forward_us) {
  RunSummary run;
  run.iteration_us = iteration_us;
  run.steps[static_cast<std::size_t>(StepKind::forward)] = {4, forward_us};
  return run;
}

TEST(Validate, ComparesWhatBothSidesHave) {
  RunSummary forecast, measured;
  forecast.iteration_us = 110;
  measured.iteration_us = 100;
  forecast.steps[static_cast<std::size_t>(StepKind::forward)] = {4, 9};
  measured.steps[static_cast<std::size_t>(StepKind::forward)] = {4, 10};
  measured.steps[static_cast<std::size_t>(StepKind::loss)] = {4, 10};
  forecast.p2p_us = 30;
  measured.p2p_us = 20;
  const Validation validation = validate(forecast, measured);
  EXPECT_NEAR(validation.iteration.error(), 0.10, 1e-12);
  ASSERT_EQ(validation.components.size(), 2u);
  EXPECT_EQ(validation.components[0].name, "forward");
  EXPECT_NEAR(validation.components[0].error(), -0.10, 1e-12);
  EXPECT_EQ(validation.components[1].name, "p2p");
  EXPECT_NEAR(validation.mean_abs_component_error(), 0.30, 1e-12);
}

// The time to get a batch is left out on purpose: no forecast depends on it.
TEST(Validate, LeavesBatchesOut) {
  RunSummary both = summary(100, 10);
  both.steps[static_cast<std::size_t>(StepKind::get_batch)] = {4, 10};
  const Validation validation = validate(both, both);
  ASSERT_EQ(validation.components.size(), 1u);
  EXPECT_EQ(validation.components[0].name, "forward");
  EXPECT_EQ(validation.mean_abs_component_error(), 0);
}

TEST(Validate, IntervalsComeFromFurtherForecasts) {
  const Validation alone = validate(summary(100, 10), summary(120, 10));
  // One run differs from the next even where the forecast is certain.
  EXPECT_NEAR(alone.iteration.low_us, 100 * std::exp(-1.645 * kRunToRun), 1e-2);
  EXPECT_NEAR(alone.iteration.high_us, 100 * std::exp(1.645 * kRunToRun), 1e-2);
  EXPECT_FALSE(alone.iteration.covered());
  std::vector<RunSummary> drawn;
  for (int i = 0; i <= 40; ++i) drawn.push_back(summary(80 + i, 10));
  const Validation wide = validate(summary(100, 10), summary(117, 10), drawn);
  EXPECT_LT(wide.iteration.low_us, 84);
  EXPECT_GT(wide.iteration.high_us, 116);
  EXPECT_TRUE(wide.iteration.covered());
  EXPECT_TRUE(wide.components[0].covered());
  EXPECT_FALSE(validate(summary(100, 10), summary(140, 10), drawn).iteration.covered());
}

TEST(Comparison, OfNothingMeasuredHasNoError) {
  EXPECT_EQ((Comparison{"", 10, 0, 10, 10}.error()), 0);
  EXPECT_NEAR((Comparison{"", 10, 8, 10, 10}.error()), 0.25, 1e-12);
}

}  // namespace
}  // namespace moesim::replay

// Another dispatcher, routing or size in place of the recorded one: what must not change, and what must.
#include "replay/job/substitute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "echo_data.h"
#include "made_job.h"
#include "models/hardware/cluster.h"
#include "replay/run/recorded_run.h"
#include "replay/run/requested_job.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using testing::forecast_us;

class Substitute : public ::testing::Test {
 protected:
  double with(const std::string& dispatcher) const {
    RecordingQuestion request = made_.request;
    testing::say(request, "dispatcher", dispatcher);
    return forecast_us(made_.clean, made_.named(), request);
  }
  testing::MadeJob made_;
};

TEST_F(Substitute, TheRecordedDispatcherInPlaceOfItselfChangesNothing) {
  EXPECT_NEAR(with("alltoall-legacy"), with("as-recorded"), 1e-3);
}

TEST_F(Substitute, EveryLegalDispatcherGivesAnIteration) {
  const double recorded = with("as-recorded");
  for (const char* name :
       {"allgather", "allgather-legacy", "alltoall", "torchtitan-alltoall", "megablocks-moe"}) {
    const double us = with(name);
    EXPECT_GT(us, 0.5 * recorded) << name;
    EXPECT_LT(us, 3.0 * recorded) << name;
    EXPECT_NE(us, recorded) << name;
  }
}

TEST_F(Substitute, ExpertsKeepTheirTimeAndCallsTakeTheProgramsPlace) {
  RecordingQuestion request = made_.request;
  testing::say(request, "dispatcher", "allgather-legacy");
  const RequestedJob after = requested_job(made_.clean, made_.named(), request);
  for (const auto& [key, place] : after.clean.places) {
    const auto experts = [](const CleanPlace& of) {
      double us = 0;
      for (const Step& step : of.steps)
        if (step.kind == StepKind::forward)
          for (std::size_t s = 0; s < step.segments_us.size(); ++s)
            if (in_experts(step, s)) us += step.segments_us[s];
      return us;
    };
    // In AllGather the segment of the experts holds the selection of rows too.
    EXPECT_GT(experts(place), experts(made_.clean.places.at(key)));
    for (const Step& step : place.steps) {
      if (step.kind != StepKind::forward && step.kind != StepKind::backward) continue;
      EXPECT_EQ(step.segments_us.size(), step.calls.size() + 1);
      for (const Call& call : step.calls) EXPECT_EQ(call.group, GroupKind::tp_expert);
      for (const double us : step.segments_us) EXPECT_GE(us, 0);
    }
    EXPECT_EQ(place.received_rows, made_.clean.places.at(key).received_rows);
  }
}

TEST_F(Substitute, ARoutingWithoutSkewIsFaster) {
  RecordingQuestion request = made_.request;
  testing::say(request, "routing", "balanced");
  EXPECT_LT(forecast_us(made_.clean, made_.named(), request), with("as-recorded"));
}

// Every public recording, scaling and real: the recorded dispatcher in place of itself.
class SubstituteEcho : public testing::EchoTest {};

TEST_P(SubstituteEcho, TheRecordedDispatcherInPlaceOfItselfChangesTheIterationByLessThanOnePercent) {
  RecordingQuestion request;
  testing::say(request, "dispatcher", "alltoall-legacy");
  const traces::Recording scaling = traces::read_cmd(folder() / "scaling");
  const RecordedJob scaled = interpret(scaling);
  const CleanJob clean = denoise(std::span(&scaled, 1));
  EXPECT_NEAR(forecast_us(clean, scaling.named, request) / forecast_us(clean, scaling.named, {}), 1, 0.01);

  const traces::Recording real = traces::read_cmd(folder() / "realistic");
  const RecordedJob run = interpret(real);
  const auto iteration = [&](const RecordingQuestion& wanted) {
    RecordedPricing pricing;
    return simulate(run.topology, requested_run(run, real.named, wanted).plans, pricing).us();
  };
  const double same = iteration(request);
  EXPECT_NEAR(same / iteration({}), 1, 0.01);
  // And another one does change it.
  testing::say(request, "dispatcher", "allgather-legacy");
  EXPECT_GT(std::abs(iteration(request) / same - 1), 0.001);
}
INSTANTIATE_TEST_SUITE_P(Jobs, SubstituteEcho, ::testing::ValuesIn(testing::kMoeConfigurations),
                         testing::test_name);

}  // namespace
}  // namespace moesim::replay

// Another dispatcher, routing or size in place of the recorded one: what must not change, and what must.
#include "replay/job/substitute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/input_error.h"
#include "echo_data.h"
#include "models/hardware/cluster.h"
#include "replay/job/synthesize.h"
#include "replay/run/forecast.h"
#include "replay/run/recorded_run.h"
#include "replay/run/requested_job.h"
#include "replay/run/run_summary.h"
#include "replay/run/validate.h"
#include "traces/cmd_reader.h"

namespace moesim::replay {
namespace {

using ::testing::HasSubstr;

// A job of a model that a machine without recordings can have: synthetic, 4 stages, one replica of each rank.
SynthesisSpec deep_job() {
  SynthesisSpec spec;
  spec.model = models::Architecture::load("mixtral-8x7b");
  spec.cluster = models::Cluster::load("echo-h800x2");
  spec.topology = {.expert = 4, .pp = 4};
  spec.layers = 8;
  spec.microbatches = 16;
  spec.routing = models::RoutingSpec::parse("zipf:0.8");
  spec.noise = 0;
  return spec;
}

double forecast_us(const CleanJob& recorded, const traces::NamedTopology& named, const JobRequest& request,
                   int microbatches = 8) {
  const RequestedJob job = requested_job(recorded, named, request);
  ForecastOptions options;
  options.microbatches = microbatches;
  options.architecture = request.architecture ? &*request.architecture : nullptr;
  return forecast(job.clean, job.named, job.cluster, Effects(job.cluster.profile), options).iteration.us();
}

class Substitute : public ::testing::Test {
 protected:
  void SetUp() override {
    made_ = synthesize(deep_job());
    job_ = interpret(made_.scaling);
    clean_ = denoise(std::span(&job_, 1));
    request_.architecture = models::Architecture::load("mixtral-8x7b");
  }
  double with(const std::string& dispatcher) const {
    JobRequest request = request_;
    request.dispatcher = dispatcher;
    return forecast_us(clean_, made_.scaling.named, request);
  }
  std::string refusal(const JobRequest& request) const {
    try {
      requested_job(clean_, made_.scaling.named, request);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  SyntheticRecordings made_;
  RecordedJob job_;
  CleanJob clean_;
  JobRequest request_;
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
  JobRequest request = request_;
  request.dispatcher = "allgather-legacy";
  const RequestedJob after = requested_job(clean_, made_.scaling.named, request);
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
    EXPECT_GT(experts(place), experts(clean_.places.at(key)));
    for (const Step& step : place.steps) {
      if (step.kind != StepKind::forward && step.kind != StepKind::backward) continue;
      EXPECT_EQ(step.segments_us.size(), step.calls.size() + 1);
      for (const Call& call : step.calls) EXPECT_EQ(call.group, GroupKind::tp_expert);
      for (const double us : step.segments_us) EXPECT_GE(us, 0);
    }
    EXPECT_EQ(place.received_rows, clean_.places.at(key).received_rows);
  }
}

TEST_F(Substitute, ARoutingWithoutSkewIsFaster) {
  JobRequest request = request_;
  request.change.routing = models::RoutingSpec::parse("balanced");
  EXPECT_LT(forecast_us(clean_, made_.scaling.named, request), with("as-recorded"));
}

TEST_F(Substitute, RefusesWhatCannotBeDerived) {
  JobRequest request = request_;
  request.change.ep = 3;
  EXPECT_THAT(refusal(request), HasSubstr("found ep 3 with dp 4, expected an ep that divides dp"));
  request = request_;
  request.change.ep = 1;
  EXPECT_THAT(refusal(request), HasSubstr("--ep 1"));
  request = request_;
  request.change.pp = 3;
  EXPECT_THAT(refusal(request), HasSubstr("found pp 3 with 8 layers, expected a pp that divides the layers"));
  request = request_;
  request.change.experts = 12;
  EXPECT_THAT(refusal(request), HasSubstr("found 12 experts from a recording of 8"));
  request = request_;
  request.dispatcher = "alltoal";
  EXPECT_THAT(refusal(request), HasSubstr("alltoal"));
  request = request_;
  request.dispatcher = "allgather,alltoall";
  EXPECT_THAT(refusal(request), HasSubstr("found 2 dispatchers"));
  request = request_;
  request.cluster = "echo-h800x1";
  EXPECT_THAT(refusal({request}), HasSubstr("nothing was refused"));  // forecast() refuses it
  request.change.seq = 2048;
  EXPECT_THAT(refusal(request), HasSubstr("found a job of 16 ranks, expected at most the 8 GPUs"));
}

// The synthetic recorder and the models that rescale it price the experts alike, so that a recording of one
// size must tell another one closely; attention differs by the synthesizer's own formula.
TEST_F(Substitute, ARescaledJobIsTheJobRecordedAtThatSize) {
  struct Other {
    const char* what;
    double tolerance;
    std::function<void(SynthesisSpec&, JobChange&)> change;
  };
  for (const Other& other : {Other{"two stages", 0.05,
                                   [](auto&spec, auto&change) {
                                     spec.topology.pp = 2;
                                     change.pp = 2;
                                   }},
                             Other{"eight stages", 0.05,
                                   [](auto&spec, auto&change) {
                                     spec.topology.pp = 8;
                                     spec.cluster = models::Cluster::load("echo-h800x4");
                                     change.pp = 8;
                                   }},
                             Other{"two replicas", 0.05,
                                   [](auto&spec, auto&change) {
                                     spec.topology.expert_dp = 2;
                                     spec.cluster = models::Cluster::load("echo-h800x4");
                                     change.dp = 8;
                                   }},
                             Other{"long sequences", 0.10, [](auto&spec, auto&change) {
                                     spec.seq = 2048;
                                     change.seq = 2048;
                                   }}}) {
    JobRequest request = request_;
    SynthesisSpec spec = deep_job();
    other.change(spec, request.change);
    request.change.routing = spec.routing;  // drawn from the same seed
    const SyntheticRecordings target = synthesize(spec);
    const RecordedJob job = interpret(target.scaling);
    const CleanJob clean = denoise(std::span(&job, 1));
    JobRequest same;
    same.architecture = request.architecture;
    same.cluster = request.cluster = spec.cluster.name;
    const double direct = forecast_us(clean, target.scaling.named, same);
    const double rescaled = forecast_us(clean_, made_.scaling.named, request);
    EXPECT_NEAR(rescaled / direct, 1, other.tolerance) << other.what;
  }
}

// Every public recording, scaling and real: the recorded dispatcher in place of itself.
class SubstituteEcho : public testing::EchoTest {};

TEST_P(SubstituteEcho, TheRecordedDispatcherInPlaceOfItselfChangesTheIterationByLessThanOnePercent) {
  JobRequest request;
  request.dispatcher = "alltoall-legacy";
  const traces::Recording scaling = traces::read_cmd(folder() / "scaling");
  const RecordedJob scaled = interpret(scaling);
  const CleanJob clean = denoise(std::span(&scaled, 1));
  EXPECT_NEAR(forecast_us(clean, scaling.named, request) / forecast_us(clean, scaling.named, {}), 1, 0.01);

  const traces::Recording real = traces::read_cmd(folder() / "realistic");
  const RecordedJob run = interpret(real);
  const models::Cluster cluster = models::Cluster::load("echo-h800x2");
  const auto iteration = [&](const JobRequest& wanted) {
    RecordedPricing pricing;
    return simulate(run.topology, requested_plans(run, real.named, cluster, wanted).plans, pricing).us();
  };
  const double same = iteration(request);
  EXPECT_NEAR(same / iteration({}), 1, 0.01);
  // And another one does change it.
  request.dispatcher = "allgather-legacy";
  EXPECT_GT(std::abs(iteration(request) / same - 1), 0.001);
}
INSTANTIATE_TEST_SUITE_P(Jobs, SubstituteEcho, ::testing::ValuesIn(testing::kMoeConfigurations),
                         testing::test_name);

// One recorded job told from another's recording, with the routing that the other one had.
TEST(RescaleEcho, JobsAreToldFromEachOthersRecordings) {
  if (!std::filesystem::exists(testing::echo_folder())) GTEST_SKIP() << "the public recordings are not here";
  const models::Cluster cluster = models::Cluster::load("echo-h800x2");
  double sum = 0, worst = 0;
  int cases = 0;
  for (const char* from : testing::kMoeConfigurations) {
    const traces::Recording source = traces::read_cmd(testing::echo_folder() / from / "scaling");
    const RecordedJob job = interpret(source);
    const CleanJob clean = denoise(std::span(&job, 1));
    for (const char* to : testing::kMoeConfigurations) {
      if (std::string_view(from) == to) continue;
      const traces::Recording truth = traces::read_cmd(testing::echo_folder() / to / "realistic");
      const RecordedJob run = interpret(truth);
      JobRequest request;
      request.change.ep = run.topology.expert;
      request.change.experts = truth.named.experts;
      request.change.received.emplace();
      const CleanJob shown = denoise(std::span(&run, 1));
      for (int e = 0; e < run.topology.expert; ++e)
        request.change.received->push_back(shown.places.at({0, 0, e}).received_rows);
      const double measured = summarize(run, cluster.gpus_per_node).iteration_us;
      const double error = forecast_us(clean, source.named, request) / measured - 1;
      sum += std::abs(error);
      worst = std::max(worst, std::abs(error));
      ++cases;
    }
  }
  EXPECT_LE(sum / cases, 0.03);
  EXPECT_LE(worst, 0.06);
  RecordProperty("mean_abs_error", std::to_string(sum / cases));
}

TEST(SubstituteReal, SizesOfARunAreRefused) {
  const SyntheticRecordings made = synthesize(deep_job());
  const RecordedJob run = interpret(made.realistic);
  JobRequest request;
  request.change.seq = 2048;
  EXPECT_THROW(requested_plans(run, made.realistic.named, models::Cluster::load("echo-h800x2"), request),
               InputError);
}

}  // namespace
}  // namespace moesim::replay

// A job under timing `flow`: the calibrated forecast while nothing contends, longer where links are shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/hardware/cluster_fabric.h"
#include "replay/job/synthesize.h"
#include "replay/run/attribution.h"
#include "replay/run/forecast.h"
#include "replay/run/model_pricing.h"

namespace moesim::replay {
namespace {

using models::Cluster;

struct Job {
  SynthesisSpec spec;
  traces::NamedTopology named;
  CleanJob clean;
  Effects effects;
  ForecastOptions options;

  Job(const std::string& cluster, Topology topology) {
    spec.model = models::Architecture::load("mixtral-8x7b");
    spec.cluster = Cluster::load(JsonNode::parse(cluster, "cluster"));
    spec.topology = topology;
    spec.layers = 4;
    spec.routing = models::RoutingSpec::parse("zipf:1.2");
    spec.noise = 0;
    const SyntheticRecordings made = synthesize(spec);
    named = made.scaling.named;
    const RecordedJob job = interpret(made.scaling);
    clean = denoise(std::span(&job, 1));
    options.microbatches = 4;
    options.architecture = &spec.model;
  }

  Iteration run(const sim::Fabric* fabric) const {
    ForecastOptions with = options;
    with.fabric = fabric;
    return forecast(clean, named, spec.cluster, effects, with).iteration;
  }

  // Under flow over calibrated timing.
  double contention() const {
    const sim::Fabric fabric = cluster_fabric(spec.cluster);
    return run(&fabric).us() / run(nullptr).us();
  }
};

TEST(ReplayFlow, IsTheCalibratedForecastWhereNothingContends) {
  // One expert group, and four that lie on GPUs of their own, behind one switch each.
  EXPECT_NEAR(Job(R"({"base": "echo-h800x1"})", {.expert = 4}).contention(), 1.0, 0.01);
  EXPECT_NEAR(Job(R"({"base": "echo-h800x1"})", {.expert = 2, .expert_dp = 2}).contention(), 1.0, 0.01);
}

TEST(ReplayFlow, SharedLinksCostTime) {
  const auto contention = [](const char* ports) {
    return Job(std::string(R"({"base": "dgx-h100x2", "nic": {"ports_per_node": )") + ports + "}}",
               {.expert = 4, .expert_dp = 2, .pp = 2})
        .contention();
  };
  const double eight = contention("8"), one = contention("1");
  EXPECT_GE(eight, 0.999);
  EXPECT_GT(one, eight * 1.005);
}

TEST(ReplayFlow, ContentionIsAShareOfTheIteration) {
  const Job job(R"({"base": "dgx-h100x2", "nic": {"ports_per_node": 1}})",
                {.expert = 4, .expert_dp = 2, .pp = 2});
  const sim::Fabric fabric = cluster_fabric(job.spec.cluster);
  ForecastOptions with = job.options;
  with.fabric = &fabric;
  const ScalingForecast made = forecast(job.clean, job.named, job.spec.cluster, job.effects, with);
  const Attribution told = attribute(made.iteration, made.plans, 2, [&] {
    return std::make_unique<ModelPricing>(job.spec.cluster, job.clean, job.effects);
  });
  ASSERT_EQ(told.shares.size(), kCausesOfTime);
  EXPECT_EQ(told.shares.front().cause, CauseOfTime::contention);
  EXPECT_NEAR(told.shares.front().us, made.iteration.us() - job.run(nullptr).us(), 1e-3);
  double sum = 0;
  for (const TimeShare& share : told.shares) sum += share.us;
  EXPECT_NEAR(sum, made.iteration.us(), 1e-3);
  const models::LinkLoad busiest = models::busiest_link(made.iteration.timeline, fabric);
  EXPECT_FALSE(busiest.from.empty());
  EXPECT_GT(busiest.utilisation, 0);
  EXPECT_LE(busiest.utilisation, 1 + 1e-9);
}

}  // namespace
}  // namespace moesim::replay

// Faults of the simulated machine: what they cost follows from where they are; failures and restarts against
// Daly's and a played-out history.
#include "models/step/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/random.h"
#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "models/step/step_forecast.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Faults faults_of(const std::string& text) { return Faults::parse(JsonNode::parse(text, "faults.json")); }

Scenario scenario(const std::string& faults, std::int64_t ep = 16) {
  Scenario s;
  s.model = Architecture::load("qwen3-30b-a3b");
  s.cluster = std::make_shared<const Cluster>(Cluster::load("dgx-h100x4"));
  s.set_dispatchers("alltoall");
  s.parallel.ep = ep;
  s.parallel.pp = 2;
  s.parallel.microbatches = 8;
  s.scope = Scenario::Scope::kStep;
  s.faults = faults_of(faults);
  s.resolve();
  return s;
}

Answer forecast(const std::string& faults, std::int64_t ep = 16) {
  return answer(scenario(faults, ep), {.draws = 0}).answers.front();
}

TEST(Faults, AreReadStrictly) {
  const auto error = [](const std::string& text) -> std::string {
    return message_of([&] {
      const Faults f = faults_of(text);
      f.check_against(Cluster::load("dgx-h100x1"));
    });
  };
  EXPECT_EQ(error(R"({"slow_gpus": [{"gpu": 7, "factor": 1.5}], "nics": [{"gpu": 0, "bandwidth": 0}]})"), "");
  EXPECT_THAT(error(R"({"slow_gpu": []})"), HasSubstr("slow_gpus"));
  EXPECT_THAT(error(R"({"slow_gpus": [{"gpu": 8, "factor": 2}]})"),
              HasSubstr("found GPU 8, expected 0 to 7"));
  EXPECT_THAT(error(R"({"slow_gpus": [{"gpu": 1, "factor": 0.5}]})"), HasSubstr("0.5"));
  EXPECT_THAT(error(R"({"nvlinks": [{"gpu": 1, "bandwidth": 0}]})"), HasSubstr("bandwidth"));
  EXPECT_THAT(error(R"({"jitter": -1})"), HasSubstr("-1"));
  EXPECT_THAT(error(R"({"restart_s": 60})"), HasSubstr("gpu_mtbf_hours"));
  EXPECT_THAT(error(R"({"slow_gpus": 3})"), HasSubstr("array"));
}

TEST(Faults, AFailedPortSharesItsNeighbours) {
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const std::vector<std::int32_t> gpus{6, 7, 8, 9, 15};
  const RankFaults f = RankFaults::of(
      faults_of(R"({"nics": [{"gpu": 7, "bandwidth": 0}, {"gpu": 9, "bandwidth": 0.25}]})"), cluster, gpus);
  // GPU 7's neighbour is GPU 0 of its own node, which is not among these.
  EXPECT_THAT(f.network, ElementsAre(1, 2, 1, 4, 1));
  EXPECT_THAT(f.compute, Each(1));
  // The last one of the second node has the first of that node beside it.
  const RankFaults last =
      RankFaults::of(faults_of(R"({"nics": [{"gpu": 15, "bandwidth": 0}]})"), cluster, gpus);
  EXPECT_THAT(last.network, ElementsAre(1, 1, 2, 1, 2));
}

TEST(Faults, NothingIsFree) {
  const double healthy = forecast("{}").time_us.value;
  EXPECT_EQ(forecast("{}").healthy_us, healthy);
  for (const char* text :
       {R"({"slow_gpus": [{"gpu": 3, "factor": 1.2}]})", R"({"nics": [{"gpu": 3, "bandwidth": 0.5}]})",
        R"({"nics": [{"gpu": 3, "bandwidth": 0}]})", R"({"jitter": 0.1})"}) {
    const Answer f = forecast(text);
    EXPECT_EQ(f.healthy_us, healthy) << text;
    EXPECT_GT(f.time_us.value, healthy) << text;
  }
}

TEST(Faults, LinksCountWhereTheyAreUsed) {
  constexpr const char* kNvlink = R"({"nvlinks": [{"gpu": 3, "bandwidth": 0.2}]})";
  constexpr const char* kNic = R"({"nics": [{"gpu": 3, "bandwidth": 0.2}]})";
  // Experts inside a node: dispatch goes over NVLink, only gradients and stages over the network.
  const Answer inside = forecast(kNvlink, 8), network = forecast(kNic, 8);
  EXPECT_GT(inside.time_us.value, 1.05 * inside.healthy_us);
  EXPECT_LT(network.time_us.value / network.healthy_us, inside.time_us.value / inside.healthy_us);
  // Experts over two nodes: the network is what dispatch waits for.
  EXPECT_GT(forecast(kNic).time_us.value, 1.3 * forecast(kNic).healthy_us);
}

TEST(Faults, OneSlowGpuSlowsTheStepAtMostByItsFactor) {
  const double healthy = forecast("{}").time_us.value;
  double last = healthy;
  for (const double factor : {1.1, 1.5, 3.0}) {
    const double t =
        forecast(R"({"slow_gpus": [{"gpu": 20, "factor": )" + std::to_string(factor) + "}]}").time_us.value;
    EXPECT_GT(t, last);
    EXPECT_LT(t, factor * healthy);
    last = t;
  }
  // Wherever it is in its stage, and a second one in the same place costs nothing more.
  const double one = forecast(R"({"slow_gpus": [{"gpu": 20, "factor": 1.5}]})").time_us.value;
  const double two =
      forecast(R"({"slow_gpus": [{"gpu": 20, "factor": 1.5}, {"gpu": 20, "factor": 1.2}]})").time_us.value;
  EXPECT_EQ(one, two);
}

TEST(Faults, JitterRepeatsWithItsSeed) {
  const double a = forecast(R"({"jitter": 0.1, "seed": 5})").time_us.value;
  EXPECT_EQ(a, forecast(R"({"jitter": 0.1, "seed": 5})").time_us.value);
  EXPECT_NE(a, forecast(R"({"jitter": 0.1, "seed": 6})").time_us.value);
  EXPECT_LT(a, forecast(R"({"jitter": 0.3, "seed": 5})").time_us.value);
}

// Plays failures out: work, checkpoints, losses and restarts, a failure possible at any time.
double played(double mean, double interval, double dump, double restart, std::uint64_t seed) {
  Random random(seed);
  const auto next = [&] { return -mean * std::log(1 - random.uniform()); };
  double now = 0, failure = next(), done = 0;
  const int segments = 20000;
  for (int i = 0; i < segments;) {
    if (now + interval + dump <= failure) {
      now += interval + dump, done += interval, ++i;
      continue;
    }
    now = failure;
    failure = now + next();
    while (failure < now + restart) {
      now = failure;
      failure = now + next();
    }
    now += restart;
  }
  return done / now;
}

TEST(Goodput, IsWhatAPlayedOutHistoryKeeps) {
  Faults f;
  EXPECT_EQ(goodput(f, 1024, 10).share, 1);
  f.gpu_mtbf_hours = 30'000;
  f.checkpoint_s = 60;
  f.restart_s = 600;
  f.interval_s = 1800;
  for (const std::int64_t gpus : {1024, 16384}) {
    const double mean = f.gpu_mtbf_hours * 3600 / static_cast<double>(gpus);
    EXPECT_NEAR(goodput(f, gpus, 10).share, played(mean, 1800, 60, 600, 3), 0.01) << gpus;
    EXPECT_NEAR(goodput(f, gpus, 10).failures_per_day, 86400 / mean, 1e-9);
  }
}

TEST(Goodput, WhatNobodySaysIsAssumed) {
  Faults f, said;
  f.gpu_mtbf_hours = said.gpu_mtbf_hours = 50'000;
  said.checkpoint_s = 30;
  said.restart_s = 300;
  EXPECT_EQ(goodput(f, 32, 3).share, goodput(said, 32, 3).share);
  EXPECT_GT(goodput(f, 32, 3).interval_s, 3600) << "not a checkpoint after every step";
}

TEST(Goodput, TheBestIntervalIsTheBest) {
  Faults f;
  f.gpu_mtbf_hours = 30'000;
  f.checkpoint_s = 60;
  f.restart_s = 600;
  const Goodput best = goodput(f, 4096, 10);
  EXPECT_NEAR(best.interval_s, std::sqrt(2 * 60 * 30'000 * 3600.0 / 4096), 120);  // Young's first order
  for (const double other : {0.5, 0.8, 1.25, 2.0}) {
    f.interval_s = best.interval_s * other;
    EXPECT_LT(goodput(f, 4096, 10).share, best.share + 1e-4) << other;
  }
  f.interval_s = 0;
  EXPECT_GT(goodput(f, 1024, 10).share, best.share);
}

}  // namespace
}  // namespace moesim::models

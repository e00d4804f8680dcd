// Faults of the simulated machine: what they cost follows from where they are; failures and restarts against
// Daly's and a played-out history.
#include "models/step/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/json_reader.h"
#include "base/random.h"
#include "models/hardware/cluster.h"

namespace moesim::models {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

Faults faults_of(const std::string& text) { return Faults::parse(JsonNode::parse(text, "faults.json")); }

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

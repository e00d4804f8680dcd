// The law of dispatch and combine kernels against copies counted by hand and by drawing.
#include "models/costs/ep_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/random.h"

namespace moesim::models {
namespace {

constexpr double kNvlink = 300e9, kNic = 50e9;

// All of both links, 10 us to start and 2 us for each doubling of the ranks.
EpKernelModel kernels() {
  Profile profile = Profile::load("h100-sxm");
  ParameterSet set;
  set.law = "ep-kernel";
  set.names = {"latency", "latency_per_octave", "scaleup_share", "network_share"};
  set.values = {1e-5, 2e-6, 1, 1};
  profile.set("ep/law", set);
  return EpKernelModel(profile, "ep/law", kNic, kNvlink);
}

EpKernelCall call(int ranks, int domains, bool merged) {
  EpKernelCall c;
  c.tokens = 4096;
  c.hidden = 7168;
  c.topk = 8;
  c.ranks = ranks;
  c.domains = domains;
  c.merged = merged;
  return c;
}

double transfer(const EpKernelCall& c) { return kernels().seconds(c) - 1e-5 - 2e-6 * std::log2(c.ranks); }

TEST(EpKernel, DistinctPlacesAreWhatDrawingFinds) {
  Random random(1);
  for (const int places : {2, 4, 8, 64}) {
    double sum = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      std::set<int> hit;
      for (int k = 0; k < 8; ++k) hit.insert(static_cast<int>(random.uniform() * places));
      sum += static_cast<double>(hit.size());
    }
    EXPECT_NEAR(distinct_places(places, 8), sum / kDraws, 0.03) << places;
  }
  EXPECT_EQ(distinct_places(1, 8), 1);
}

TEST(EpKernel, CopiesOfATokenThatAreNotMerged) {
  const double bytes = 4096 * 7168 * 2.0;
  // 8 copies over 8 ranks: one for each, 7 leave.
  EXPECT_NEAR(transfer(call(8, 1, false)), 7 * bytes / kNvlink, 1e-12);
  // 8 copies over 16 ranks of two nodes: half a copy for each; 4 cross, which is what takes longer.
  EXPECT_NEAR(transfer(call(16, 2, false)), 4 * bytes / kNic, 1e-12);
}

TEST(EpKernel, MergedCopiesGoToARankOnce) {
  const double bytes = 4096 * 7168 * 2.0;
  const double ranks = 8 * (1 - std::pow(7.0 / 8, 8));
  EXPECT_NEAR(transfer(call(8, 1, true)), ranks * 7 / 8 * bytes / kNvlink, 1e-12);
  // Four nodes of 8: 3 of 4 of the nodes that a token goes to are others.
  const double nodes = 4 * (1 - std::pow(3.0 / 4, 8));
  EXPECT_NEAR(transfer(call(32, 4, true)), nodes * 3 / 4 * bytes / kNic, 1e-12);
  EpKernelCall limited = call(32, 4, true);
  limited.groups = 2;
  EXPECT_NEAR(transfer(limited), 2.0 * 3 / 4 * bytes / kNic, 1e-12);
}

// Two GPUs of a mesh of eight have one of seven links between them.
TEST(EpKernel, AMeshHasALinkForEachPeer) {
  Profile profile = Profile::load("mi300x");
  ParameterSet law;
  law.law = "ep-kernel";
  law.names = {"latency", "scaleup_share", "mesh"};
  law.values = {0, 1, 8};
  profile.set("ep/made", law);
  const EpKernelModel mesh(profile, "ep/made", kNic, kNvlink);
  EXPECT_NEAR(mesh.seconds(4096, 8, 3e9, 0), 3e9 / kNvlink, 1e-12);
  EXPECT_NEAR(mesh.seconds(4096, 2, 3e9, 0), 7 * 3e9 / kNvlink, 1e-12);
  EXPECT_NEAR(mesh.seconds(4096, 4, 3e9, 0), 7.0 / 3 * 3e9 / kNvlink, 1e-12);
  EXPECT_NEAR(mesh.seconds(4096, 16, 3e9, 0), 3e9 / kNvlink, 1e-12);
}

TEST(EpKernel, GivenBytesTakeThePortsAndTheLatency) {
  EXPECT_NEAR(kernels().seconds(4096, 16, 3e9, 0), 1e-5 + 4 * 2e-6 + 3e9 / kNvlink, 1e-12);
  EXPECT_NEAR(kernels().seconds(4096, 16, 3e9, 1e9), 1e-5 + 4 * 2e-6 + 1e9 / kNic, 1e-12);
}

}  // namespace
}  // namespace moesim::models

// Collectives, and the measured kernels of dispatch and combine.
#include "models/costs/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/input_error.h"
#include "base/random.h"
#include "models/costs/ep_kernel.h"
#include "models/hardware/cluster.h"
#include "models/hardware/profile.h"

namespace moesim::models {
namespace {

using sim::CollectiveOp;

const Cluster& dgx() {
  static const Cluster cluster = Cluster::load(std::string("dgx-h100x16"));
  return cluster;
}

const CollectiveModel& model() {
  static const CollectiveModel model(dgx());
  return model;
}

constexpr CollectiveOp kOps[] = {CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
                                 CollectiveOp::all_reduce, CollectiveOp::all_to_all};

TEST(Collectives, OneRankTakesNoTime) {
  for (const CollectiveOp op : kOps) EXPECT_EQ(model().seconds(op, GroupShape::uniform(1, 1), 1e9), 0);
}

RC_GTEST_PROP(Collectives, MoreBytesNeverTakeLess, ()) {
  const auto op = *rc::gen::elementOf(std::vector<CollectiveOp>(std::begin(kOps), std::end(kOps)));
  const GroupShape shape = GroupShape::uniform(*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 9));
  const double bytes = *rc::gen::inRange(0, 1 << 28);
  const double more = bytes + *rc::gen::inRange(0, 1 << 28);
  RC_ASSERT(model().seconds(op, shape, more) >= model().seconds(op, shape, bytes) * (1 - 1e-12));
}

RC_GTEST_PROP(Collectives, IntervalsHoldTheirValueAndWidenOutsideTheData, ()) {
  const auto op = *rc::gen::elementOf(std::vector<CollectiveOp>(std::begin(kOps), std::end(kOps)));
  // The whole message inside the measured sizes: only the number of nodes is outside.
  const double size = 1024.0 * *rc::gen::inRange(1 << 16, 1 << 23);
  const bool pieces = op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
  const Estimate inside = model().estimate(op, GroupShape::uniform(10, 8), pieces ? size / 80 : size);
  RC_ASSERT(inside.low <= inside.value);
  RC_ASSERT(inside.value <= inside.high);
  const Estimate far = model().estimate(op, GroupShape::uniform(128, 8), pieces ? size / 1024 : size);
  RC_ASSERT(far.high / far.low > inside.high / inside.low);
}

TEST(Collectives, BandwidthStaysBelowTheLinks) {
  // Bytes on the wire of one GPU over the time can not exceed its NVLink, nor its port across nodes.
  constexpr double kBytes = 4e9;
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
    const double piece = op == CollectiveOp::all_gather ? kBytes / 8 : kBytes;
    EXPECT_LT(kBytes * 7 / 8 / model().seconds(op, GroupShape::uniform(1, 8), piece), dgx().nvlink.bandwidth);
  }
  const double across = model().seconds(CollectiveOp::all_to_all, GroupShape::uniform(8, 8), kBytes);
  EXPECT_LT(kBytes * 7 / 8 / across, dgx().nic.bandwidth);
}

TEST(Collectives, FasterPortsHelpAcrossNodesOnly) {
  Cluster faster = dgx();
  faster.nic.bandwidth *= 2;
  const CollectiveModel changed(faster);
  const GroupShape inside = GroupShape::uniform(1, 8), across = GroupShape::uniform(4, 8);
  EXPECT_EQ(changed.seconds(CollectiveOp::all_to_all, inside, 1e8),
            model().seconds(CollectiveOp::all_to_all, inside, 1e8));
  const double ratio = model().seconds(CollectiveOp::all_to_all, across, 1e9) /
                       changed.seconds(CollectiveOp::all_to_all, across, 1e9);
  EXPECT_GT(ratio, 1.7);
  EXPECT_LE(ratio, 2.0);
}

TEST(Collectives, UnevenExchangeWithEqualSplitsIsTheEqualOne) {
  for (const GroupShape& shape : {GroupShape::uniform(1, 8), GroupShape::uniform(2, 4)}) {
    const auto n = static_cast<std::size_t>(shape.ranks);
    const std::vector<double> bytes(n * n, 1e6);
    std::vector<double> out(n);
    model().all_to_all_v(shape, bytes, out);
    const double equal = model().seconds(CollectiveOp::all_to_all, shape, 1e6 * shape.ranks);
    for (const double seconds : out) EXPECT_NEAR(seconds, equal, 1e-9 * equal);
  }
}

TEST(Collectives, EverythingToOneRankIsBoundByItsLink) {
  // Example 2 of docs/spec.md 6.3 scaled up: rank 0 receives from all others; its link bounds every rank.
  constexpr std::size_t kRanks = 4;
  std::vector<double> bytes(kRanks * kRanks, 0.0);
  for (std::size_t r = 0; r < kRanks; ++r) bytes[r * kRanks] = 64e6;
  std::vector<double> out(kRanks);
  const GroupShape shape = GroupShape::uniform(1, kRanks);
  model().all_to_all_v(shape, bytes, out);
  // An equal exchange in which every rank sends 3 x 64 MB.
  const double bound = model().seconds(CollectiveOp::all_to_all, shape, 4 * 64e6);
  for (const double seconds : out) EXPECT_NEAR(seconds, bound, 1e-9 * bound);
}

RC_GTEST_PROP(Collectives, TheWayBackTakesAsLongAsTheWayThere, ()) {
  const int n = *rc::gen::inRange(2, 9);
  const auto count = static_cast<std::size_t>(n);
  const auto rows = *rc::gen::container<std::vector<std::uint32_t>>(count * count,
                                                                    rc::gen::inRange<std::uint32_t>(0, 5000));
  std::vector<std::uint32_t> turned(rows.size());
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < count; ++j) turned[j * count + i] = rows[i * count + j];
  const GroupShape shape = GroupShape::uniform(1, n);
  std::vector<double> a(count), b(count);
  model().all_to_all_v(shape, rows, 8192, a);
  model().all_to_all_v(shape, turned, 8192, b);
  RC_ASSERT(a == b);
}

RC_GTEST_PROP(Collectives, NobodyIsDoneBeforeItsOwnLinkIs, ()) {
  const int n = *rc::gen::inRange(2, 9);
  const auto count = static_cast<std::size_t>(n);
  const auto rows = *rc::gen::container<std::vector<std::uint32_t>>(
      count * count, rc::gen::inRange<std::uint32_t>(0, 100000));
  const GroupShape shape = GroupShape::uniform(1, n);
  std::vector<double> out(count);
  model().all_to_all_v(shape, rows, 8192, out);
  for (std::size_t i = 0; i < count; ++i) {
    double sent = 0, received = 0;
    for (std::size_t j = 0; j < count; ++j) {
      if (j == i) continue;
      sent += 8192.0 * rows[i * count + j];
      received += 8192.0 * rows[j * count + i];
    }
    RC_ASSERT(out[i] >= std::max(sent, received) / dgx().nvlink.bandwidth);
  }
}

TEST(Collectives, PiecesOfEqualSizeAreAnAllGather) {
  const GroupShape shape = GroupShape::uniform(1, 8);
  const std::vector<double> pieces(8, 3e6);
  EXPECT_DOUBLE_EQ(model().all_gather_v(shape, pieces),
                   model().seconds(CollectiveOp::all_gather, shape, 3e6));
  EXPECT_DOUBLE_EQ(model().reduce_scatter_v(shape, pieces),
                   model().seconds(CollectiveOp::reduce_scatter, shape, 3e6));
}

TEST(Collectives, ShapesSeeNodesAndDomains) {
  const std::vector<std::int32_t> members = {0, 1, 8, 9, 10};
  const GroupShape shape = GroupShape::of(dgx(), members);
  EXPECT_EQ(shape.ranks, 5);
  EXPECT_EQ(shape.domains, 2);
  EXPECT_EQ(shape.max_per_domain, 3);
  EXPECT_EQ(shape.min_per_domain, 2);
  EXPECT_EQ(shape.domain_of, (std::vector<std::int32_t>{0, 0, 1, 1, 1}));
  EXPECT_THROW(GroupShape::of(dgx(), std::vector<std::int32_t>{128}), InputError);
  EXPECT_THROW(GroupShape::of(dgx(), std::vector<std::int32_t>{}), InputError);
}

// The bytes that pass a member's links, and the time put together again from its parts.
TEST(Collectives, PartsAreThoseOfTheAlgorithm) {
  const double bytes = 1 << 24;
  for (const int n : {2, 4, 8}) {
    const GroupShape shape = GroupShape::uniform(1, n);
    struct Row {
      CollectiveOp op;
      double wire;
      int steps;
    };
    for (const Row& row :
         {Row{CollectiveOp::all_gather, bytes * (n - 1), n - 1},
          Row{CollectiveOp::reduce_scatter, bytes * (n - 1), n - 1},
          Row{CollectiveOp::all_reduce, 2 * bytes * (n - 1) / n, 2 * (n - 1)},
          Row{CollectiveOp::all_to_all, bytes * (n - 1) / n, 1}, Row{CollectiveOp::broadcast, bytes, n - 1},
          Row{CollectiveOp::send_recv, bytes, 1}}) {
      SCOPED_TRACE(testing::Message() << sim::name(row.op) << " of " << n);
      const CollectiveParts parts = model().parts(row.op, shape, bytes);
      EXPECT_DOUBLE_EQ(parts.wire_bytes, row.wire);
      EXPECT_EQ(parts.steps, row.steps);
      EXPECT_EQ(parts.launch, model().seconds(row.op, shape, 0));
      EXPECT_GT(parts.bandwidth, 0);
      EXPECT_LE(parts.efficiency, 1);
      if (parts.efficiency < 1) {
        EXPECT_NEAR(parts.launch + parts.wire_bytes / parts.bandwidth / parts.efficiency,
                    model().seconds(row.op, shape, bytes), 1e-9);
      }
    }
  }
}

// B200's messages between two were not measured, its exchanges were: half of an exchange's buffer is the message.
TEST(Collectives, AGpusOwnExchangesStandBeforeAnotherGpusMessages) {
  const CollectiveModel b200(Cluster::load(std::string("dgx-b200x1")));
  const GroupShape pair = GroupShape::uniform(1, 2);
  for (const double bytes : {1e6, 3e7, 2e8})
    EXPECT_DOUBLE_EQ(b200.seconds(CollectiveOp::send_recv, pair, bytes),
                     b200.seconds(CollectiveOp::all_to_all, pair, 2 * bytes));
  EXPECT_THAT(b200.outside(CollectiveOp::send_recv, pair, 1e6)->text(), testing::HasSubstr("all_to_all"));
}

// Two nodes whose members talk among themselves only: an exchange inside each.
TEST(Collectives, AnExchangeThatStaysInsideItsNodesTakesWhatItTakesThere) {
  const GroupShape shape = GroupShape::uniform(2, 8);
  std::vector<double> bytes(16 * 16, 0.0), out(16);
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j)
      if (i / 8 == j / 8 && i != j) bytes[i * 16 + j] = 1 << 26;
  model().all_to_all_v(shape, bytes, out);
  const double inside = model().seconds(CollectiveOp::all_to_all, GroupShape::uniform(1, 8), 8.0 * (1 << 26));
  for (const double seconds : out) EXPECT_NEAR(seconds, inside, 1e-9);
}

// A drawn profile is off where nothing was measured, the more the farther, and not where something was.
TEST(Collectives, DrawsAreOffOutsideOfTheDomain) {
  Cluster off = dgx();
  for (const CollectiveOp op : kOps)
    for (const char* scope : {"/scaleup", "/network"}) {
      const std::string key = "collective/" + std::string(sim::name(op)) + scope;
      const ParameterSet* set = off.profile.find(key);
      if (!set) continue;
      ParameterSet changed = *set;
      changed.beyond = 1;
      off.profile.set(key, changed);
    }
  const CollectiveModel drawn(off);
  const auto ratio = [&](CollectiveOp op, const GroupShape& shape, double bytes) {
    return drawn.seconds(op, shape, bytes) / model().seconds(op, shape, bytes);
  };
  EXPECT_DOUBLE_EQ(ratio(CollectiveOp::all_gather, GroupShape::uniform(1, 8), 1 << 20), 1);
  const double far = ratio(CollectiveOp::all_gather, GroupShape::uniform(64, 8), 1 << 20);
  const double farther = ratio(CollectiveOp::all_gather, GroupShape::uniform(512, 8), 1 << 20);
  EXPECT_GT(far, 1.05);
  EXPECT_NEAR(farther / far, std::exp(2 * 3 * 0.06), 1e-6);  // three octaves more of ranks, and of nodes
  // Another operation's law stands in.
  EXPECT_NEAR(ratio(CollectiveOp::broadcast, GroupShape::uniform(1, 8), 1 << 20), std::exp(0.2), 1e-9);
}

// Between the measured calls of a refined law the interval is wider than at one, and a draw is off by its
// standard deviations there, in whichever model of the draw the call is made.
TEST(Collectives, IntervalsWidenBetweenMeasuredCalls) {
  const std::string key = "collective/all_to_all/network";
  const GroupShape shape = GroupShape::uniform(2, 8);
  const auto with = [&](double spread, double beyond) {
    Cluster own = dgx();
    ParameterSet set = own.profile.at(key);
    set.covariance.clear(), set.domain.clear();
    for (const auto& [name, value] : {std::pair{"correction_sigma", spread},
                                      {"correction/2/8/65536", 1.3},
                                      {"correction/2/8/268435456", 0.9}}) {
      set.names.emplace_back(name);
      set.values.push_back(value);
    }
    set.beyond = beyond;
    own.profile.set(key, set);
    return own;
  };
  const auto width = [&](const Cluster& cluster, double bytes) {
    const Estimate estimate = CollectiveModel(cluster).estimate(CollectiveOp::all_to_all, shape, bytes);
    return std::log(estimate.high / estimate.low);
  };
  const Cluster own = with(0.4, 0);
  EXPECT_NEAR(width(own, 65536), width(with(0, 0), 65536), 0.02);
  EXPECT_GT(width(own, 262144), width(own, 65536) * 1.2);
  EXPECT_GT(width(own, 4194304), width(own, 262144));
  EXPECT_NEAR(width(with(0, 0), 4194304), width(with(0, 0), 65536), 1e-12);
  // Six octaves from either call, which share exp(-2) of their variation: K = [1.001 r^2; r^2 1.001], r = 1/e.
  const double r = std::exp(-1.0), sigma = 0.4 * std::sqrt(1 - 2 * r * r / (1.001 + r * r));
  const CollectiveModel usual(own), drawn(with(0.4, -1.5)), again(with(0.4, -1.5));
  const double time = drawn.seconds(CollectiveOp::all_to_all, shape, 4194304);
  EXPECT_NEAR(time / usual.seconds(CollectiveOp::all_to_all, shape, 4194304), std::exp(-1.5 * sigma), 1e-9);
  EXPECT_EQ(time, again.seconds(CollectiveOp::all_to_all, shape, 4194304));
}

TEST(Collectives, ExtrapolationIsSaid) {
  const auto why = [](CollectiveOp op, const GroupShape& shape) {
    const auto outside = model().outside(op, shape, 1 << 20);
    return outside ? outside->text() : "";
  };
  EXPECT_EQ(why(CollectiveOp::all_gather, GroupShape::uniform(1, 8)), "");
  EXPECT_EQ(why(CollectiveOp::all_gather, GroupShape::uniform(1, 1)), "");
  EXPECT_THAT(why(CollectiveOp::all_gather, GroupShape::uniform(512, 8)),
              ::testing::HasSubstr("all_gather across nodes extrapolates to "));
  EXPECT_THAT(why(CollectiveOp::broadcast, GroupShape::uniform(1, 8)),
              ::testing::HasSubstr("broadcast inside a node was not measured, taken from all_gather"));
}

// The law of dispatch and combine kernels against copies counted by hand and by drawing.

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

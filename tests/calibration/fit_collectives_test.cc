// Fits of collectives and of networks find the law that made the rows.
#include "calibration/fit/fit_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "calibration/fit/fit_networks.h"
#include "calibration/rows/devices.h"
#include "models/costs/collectives.h"
#include "models/costs/network_law.h"
#include "models/costs/size_curve.h"
#include "models/hardware/group_shape.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::NetworkProfile;
using models::ParameterSet;
using models::Profile;
using sim::CollectiveOp;

TEST(FitSizeCurve, RankCountsBetweenFollowTheRing) {
  // A ring whose steps move a piece each, with a protocol of short steps for small pieces and one of high
  // bandwidth from 1 MiB on, chosen too late: a jump. Counts 3 to 7 are forecast from 2 and 8.
  const auto law = [](int n, double bytes) {
    const double piece = bytes / n;
    return 5e-6 + piece / 900e9 + (n - 1) * (piece < 1 << 20 ? 1e-6 + piece / 180e9 : 8e-6 + piece / 350e9);
  };
  const auto curve =
      models::SizeCurve::from(fit_size_curve(rows_of_law(CollectiveOp::all_gather, {2, 8}, law)), "fit");
  for (int n = 2; n <= 8; ++n)
    for (double piece = 1000; piece < 1 << 26; piece *= 1.7) {
      if (piece > 1 << 19 && piece < 1 << 20) continue;  // between two measured sizes the jump is a slope
      EXPECT_NEAR(curve.seconds(n, n * piece) / law(n, n * piece), 1, 0.03) << n << " " << piece;
    }
  // Beyond the data, bandwidth and steps go on.
  EXPECT_NEAR(curve.seconds(8, 8e9) / law(8, 8e9), 1, 0.02);
  EXPECT_NEAR(curve.seconds(32, 1e9) / law(32, 1e9), 1, 0.03);
}

TEST(FitNetwork, NodeCountsBetweenAreForecast) {
  models::ParameterSet truth;
  truth.names = {"latency", "latency_per_rank", "connection_share", "node_share"};
  truth.values = {3e-5, 4e-6, 0.9, 0.8};
  models::Profile profile;
  profile.device() = find_device("h100-sxm")->limits;
  const models::Cluster cluster = cluster_of(profile, nullptr, 64, 8);
  const auto law = models::NetworkCurve::from(truth, "collective/all_gather/network", cluster);
  std::vector<CollectiveRow> rows;
  Random random(9);
  for (const int nodes : {2, 10})
    for (const int per_node : {1, 2, 8})
      for (double bytes = 1 << 20; bytes < 1e10; bytes *= 2) {
        CollectiveRow row;
        row.op = CollectiveOp::all_gather;
        row.nodes = nodes;
        row.gpus_per_node = per_node;
        row.bytes = bytes;
        row.seconds = law.seconds(models::GroupShape::uniform(nodes, per_node), bytes) *
                      std::exp(0.02 * random.normal());
        rows.push_back(row);
      }
  const auto fitted =
      models::NetworkCurve::from(fit_network(cluster, rows), "collective/all_gather/network", cluster);
  for (const int nodes : {3, 4, 6, 16})
    for (double bytes = 1 << 20; bytes < 1e10; bytes *= 4) {
      const auto shape = models::GroupShape::uniform(nodes, 4);
      EXPECT_NEAR(fitted.seconds(shape, bytes) / law.seconds(shape, bytes), 1, 0.08) << nodes << " " << bytes;
    }
}

TEST(Medians, AreOfOneRankCountAndSize) {
  std::vector<CollectiveRow> rows;
  const auto add = [&](int ranks, double bytes, double seconds) {
    CollectiveRow row;
    row.gpus_per_node = ranks;
    row.bytes = bytes;
    row.seconds = seconds;
    rows.push_back(row);
  };
  add(8, 1024, 7);
  for (const double seconds : {9.0, 2.0, 3.0}) add(2, 1024, seconds);
  for (const double seconds : {4.0, 1.0}) add(2, 2048, seconds);  // of two, their geometric mean
  const auto points = medians(rows);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].ranks, 2);
  EXPECT_EQ(points[0].bytes, 1024);
  EXPECT_EQ(points[0].seconds, 3);
  EXPECT_EQ(points[1].bytes, 2048);
  EXPECT_DOUBLE_EQ(points[1].seconds, 2);
  EXPECT_EQ(points[2].ranks, 8);
  EXPECT_EQ(points[2].seconds, 7);
}

// 10 us for two ranks, 2 us for each one more, and nothing but bandwidth beyond: three knots say it all.
TEST(CurveThrough, ALineNeedsNoMoreThanThreeKnots) {
  std::vector<CurvePoint> points;
  const auto law = [](int ranks, double bytes) { return 10e-6 + 2e-6 * (ranks - 2) + bytes / 100e9; };
  for (const int ranks : {2, 4, 8})
    for (double bytes = 1024; bytes <= 1 << 28; bytes *= 4)
      points.push_back({ranks, bytes, law(ranks, bytes)});
  const models::ParameterSet set = curve_through(points, 0.02);
  EXPECT_NEAR(set.get("latency", 0), 8e-6, 0.1e-6);
  EXPECT_NEAR(set.get("latency_per_rank", 0), 2e-6, 0.02e-6);
  EXPECT_EQ(set.names.size(), 2u + 3 * 3);
  EXPECT_EQ(set.range("ranks")->low, 2);
  EXPECT_EQ(set.range("ranks")->high, 8);
  const auto curve = models::SizeCurve::from(set, "line");
  for (const CurvePoint& point : points)
    EXPECT_NEAR(curve.seconds(point.ranks, point.bytes) / point.seconds, 1, 0.02)
        << point.ranks << " " << point.bytes;
}

// A larger message that was measured faster than a smaller one does not make a curve that falls.
TEST(CurveThrough, TimesNeverFallWithTheSize) {
  std::vector<CurvePoint> points;
  double seconds = 10e-6;
  Random random(7);
  for (double bytes = 1024; bytes <= 1 << 28; bytes *= 2, seconds *= 1.3)
    for (const int ranks : {2, 8})
      points.push_back({ranks, bytes, seconds * std::exp(0.4 * random.normal())});
  const auto curve = models::SizeCurve::from(curve_through(points, 0.02), "noise");
  for (const double ranks : {2.0, 8.0})
    for (double bytes = 1024; bytes < 1 << 28; bytes *= 1.5)
      EXPECT_LE(curve.seconds(ranks, bytes), curve.seconds(ranks, 1.5 * bytes)) << ranks << " " << bytes;
}

TEST(RankCounts, SwitchReductionsBetweenRingAndNvls) {
  // Two ranks use the ring, eight the switch, integers the ring everywhere: four ranks take the better of
  // both.
  const auto ring = [](int n, double bytes) {
    return 6e-6 + 1e-6 * (n - 1) + 2 * (n - 1.0) / n * bytes / 300e9;
  };
  const auto floats = rows_of_law(CollectiveOp::all_reduce, {2, 8}, [&](int n, double bytes) {
    return n == 2 ? ring(n, bytes) : 13e-6 + (1 + 1.0 / n) * bytes / 280e9;
  });
  auto integers = rows_of_law(CollectiveOp::all_reduce, {2, 8}, ring);
  for (auto& row : integers) row.datatype = "int8";
  const auto points = missing_rank_counts(floats, integers, {}, *find_device("h100-sxm"));
  ASSERT_FALSE(points.empty());
  for (const CurvePoint& point : points) {
    if (point.bytes <= 1e8) continue;
    EXPECT_NEAR(point.seconds / std::min(ring(4, point.bytes), 1.25 * point.bytes / 280e9 + 9e-6), 1, 0.03);
  }
}

TEST(RankCounts, AreLeftAloneWhereNothingIsKnownOfThem) {
  const auto law = [](int n, double bytes) { return 10e-6 + 1e-6 * n + bytes / 300e9; };
  const auto floats = rows_of_law(CollectiveOp::all_reduce, {2, 8}, law);
  const Device& h100 = *find_device("h100-sxm");
  EXPECT_TRUE(missing_rank_counts(floats, {}, floats, h100).empty());  // no integers to show the ring
  const auto measured = rows_of_law(CollectiveOp::all_reduce, {2, 4, 8}, law);
  EXPECT_TRUE(missing_rank_counts(measured, floats, measured, h100).empty());
  const auto gather = rows_of_law(CollectiveOp::all_gather, {2, 8}, law);
  EXPECT_TRUE(missing_rank_counts(gather, floats, gather, h100).empty());  // no reduction
}

// A B200 measured two and eight ranks, a GB200 four: the curve of the GB200 stands in, with the latencies of
// the B200 and at its bandwidth, which is two thirds of the GB200's here.
TEST(RankCounts, OfBlackwellComeFromItsSibling) {
  const auto law = [](double latency, double bandwidth) {
    return [=](int n, double bytes) { return latency * (1 + 0.1 * n) + bytes * (n - 1) / n / bandwidth; };
  };
  auto b200 = rows_of_law(CollectiveOp::all_gather, {2, 8}, law(10e-6, 400e9));
  for (CollectiveRow& row : b200) row.origin.gpu = find_device("b200-sxm")->gpu;
  auto gb200 = rows_of_law(CollectiveOp::all_gather, {2, 4, 8}, law(20e-6, 600e9));
  for (CollectiveRow& row : gb200) row.origin.gpu = find_device("gb200")->gpu;
  std::vector<CollectiveRow> all = b200;
  all.insert(all.end(), gb200.begin(), gb200.end());
  const auto points = missing_rank_counts(b200, {}, all, *find_device("b200-sxm"));
  ASSERT_EQ(points.size(), 21u);  // 512 bytes to 512 MiB
  for (const CurvePoint& point : points) {
    EXPECT_EQ(point.ranks, 4);
    EXPECT_NEAR(point.seconds / law(10e-6, 400e9)(4, point.bytes), 1, 0.02) << point.bytes;
  }
  for (CollectiveRow& row : all)
    row.library = row.origin.gpu == gb200.front().origin.gpu ? "NCCL 2.1" : row.library;
  EXPECT_TRUE(missing_rank_counts(b200, {}, all, *find_device("b200-sxm")).empty());  // another library
}

// Networks fitted to rows that laws made: each finds its own law again, and all together say how they differ.

constexpr const char* kGather = "collective/all_gather/network";
// Machines that publish rows, by the words that tell them (devices.cc): 8 ports of 50 GB/s, 32 of 12.5 GB/s.
constexpr const char *kInfiniband = "together-nccl-tests", *kEfa = "aws-samples";
constexpr const char* kGpu = "H100-SXM5-80GB";

const Profile& profile() {
  static const Profile one = Profile::load("h100-sxm");
  return one;
}

ParameterSet law(double latency, double connection_share) {
  ParameterSet truth;
  truth.law = "network";
  truth.names = {"latency", "latency_per_rank", "connection_share", "node_share"};
  truth.values = {latency, 2e-6, connection_share, 0.8};
  return truth;
}

double seconds_of_law(const ParameterSet& set, const char* source, int nodes, double bytes) {
  const models::Cluster cluster = cluster_of(profile(), machine_of(source, kGpu), nodes, 8);
  return models::NetworkCurve::from(set, kGather, cluster)
      .seconds(models::GroupShape::uniform(nodes, 8), bytes);
}

// All-gathers of 2, 4 and 8 nodes at every power of four from 1 MiB to 4 GiB; at most so many rows.
void add_rows(Measurements& to, const char* source, const ParameterSet& truth, std::size_t most = 1000) {
  Random random(5);
  std::size_t added = 0;
  for (const int nodes : {2, 4, 8})
    for (int power = 20; power <= 32 && added < most; power += 2, ++added) {
      const double bytes = std::ldexp(1.0, power);
      CollectiveRow row;
      row.origin = {{}, kGpu, source};
      row.op = CollectiveOp::all_gather;
      row.nodes = nodes;
      row.gpus_per_node = 8;
      row.bytes = bytes;
      row.seconds = seconds_of_law(truth, source, nodes, bytes) * noise(random);
      to.collectives.push_back(row);
    }
}

std::vector<NetworkProfile> fitted(const Measurements& rows, const FitNetworksOptions& options = {}) {
  return fit_networks(
      rows, [](const Device&) -> const Profile& { return profile(); }, options);
}

const NetworkProfile& named(const std::vector<NetworkProfile>& all, const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const NetworkProfile& n) { return n.name == name; });
}

TEST(FitNetworks, EveryNetworkFindsItsOwnLaw) {
  const ParameterSet fast = law(2e-5, 0.9), slow = law(6e-5, 0.45);
  Measurements rows;
  add_rows(rows, kInfiniband, fast);
  add_rows(rows, kEfa, slow);
  const auto all = fitted(rows);
  ASSERT_EQ(all.size(), networks().size() + 1);
  EXPECT_EQ(all.back().name, models::kLineRate);
  const ParameterSet &ndr = named(all, "infiniband-ndr").laws.at(kGather),
                     &efa = named(all, "efa-p5").laws.at(kGather), &pooled = all.back().laws.at(kGather);
  for (const int nodes : {2, 4, 8})
    for (int power = 22; power <= 30; power += 2) {
      const double bytes = std::ldexp(1.0, power);
      EXPECT_NEAR(
          seconds_of_law(ndr, kInfiniband, nodes, bytes) / seconds_of_law(fast, kInfiniband, nodes, bytes), 1,
          0.05)
          << nodes << " " << bytes;
      EXPECT_NEAR(seconds_of_law(efa, kEfa, nodes, bytes) / seconds_of_law(slow, kEfa, nodes, bytes), 1, 0.05)
          << nodes << " " << bytes;
    }
  EXPECT_EQ(ndr.source, kInfiniband);
  EXPECT_EQ(ndr.rows, 3 * 7);
  // The residual of a network without measurements is the spread between the measured ones.
  EXPECT_EQ(pooled.source, "2 networks");
  EXPECT_GT(pooled.residual, 5 * ndr.residual);
  EXPECT_GT(pooled.systematic, 0);
}

// Two rows move the law of all networks, but make none of their own; others have none at all.
TEST(FitNetworks, FewRowsMakeNoLawOfTheirOwn) {
  Measurements rows;
  add_rows(rows, kInfiniband, law(2e-5, 0.9));
  add_rows(rows, kEfa, law(6e-5, 0.45), 2);
  const auto all = fitted(rows);
  EXPECT_FALSE(named(all, "efa-p5").laws.contains(kGather));
  EXPECT_FALSE(named(all, "infiniband-ndr").laws.empty());
  EXPECT_EQ(all.back().laws.at(kGather).source, "2 networks");
  EXPECT_FALSE(named(all, "infiniband-xdr").laws.contains(kGather));
  EXPECT_THAT(named(all, "infiniband-xdr").gaps,
              ::testing::ElementsAre("no rows: priced from its line rate"));
}

// The slowdown of exchanges inside a step comes from whole steps: a fit of benchmarks keeps it.
TEST(FitNetworks, TheFactorOfWholeStepsSurvives) {
  Measurements rows;
  add_rows(rows, kInfiniband, law(2e-5, 0.9));
  int kept = 0;
  for (const NetworkProfile& network : fitted(rows)) {
    const NetworkProfile shipped = NetworkProfile::load(network.name);
    const auto law = shipped.laws.find(models::kExchangeInStep);
    ASSERT_EQ(network.laws.contains(models::kExchangeInStep), law != shipped.laws.end()) << network.name;
    if (law == shipped.laws.end()) continue;
    ++kept;
    const ParameterSet& own = network.laws.at(models::kExchangeInStep);
    EXPECT_EQ(own.values, law->second.values) << network.name;
    EXPECT_EQ(own.source, law->second.source) << network.name;
  }
  EXPECT_GT(kept, 1);
}

// Inside a node, of an unknown machine, of integers that are reduced: not of these networks.
TEST(FitNetworks, OtherRowsChangeNothing) {
  Measurements rows;
  add_rows(rows, kInfiniband, law(2e-5, 0.9));
  Measurements more = rows;
  CollectiveRow row = rows.collectives.front();
  row.seconds *= 100;
  row.nodes = 1;
  more.collectives.push_back(row);
  row.nodes = 2;
  row.origin.source = "nobody";
  more.collectives.push_back(row);
  row.origin.source = kInfiniband;
  row.op = CollectiveOp::all_reduce;
  row.datatype = "int32";
  more.collectives.push_back(row);
  const auto once = fitted(rows), again = fitted(more);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i].to_json(), again[i].to_json());
}

TEST(FitNetworks, FactsAndProvenanceComeAlong) {
  Measurements rows;
  add_rows(rows, kInfiniband, law(2e-5, 0.9));
  DispatchRow flagged;
  flagged.origin = {{}, kGpu, "deepseek-ai/DeepEP"};
  flagged.kernel = "deepep_dispatch";
  flagged.dtype = "bf16";
  flagged.note = "suspect: unit";
  flagged.ep = 16;
  flagged.nodes = 2;
  flagged.tokens = 4096;
  flagged.hidden = 7168;
  flagged.topk = 8;
  flagged.seconds = 1e-3;
  rows.dispatches.assign(3, flagged);
  std::set<std::string> told;
  FitNetworksOptions options;
  options.provenance = "made by a test";
  options.progress = [&](const std::string& what) { told.insert(what); };
  const auto all = fitted(rows, options);
  const NetworkProfile& ndr = named(all, "infiniband-ndr");
  EXPECT_EQ(ndr.provenance, "made by a test");
  EXPECT_EQ(ndr.kind, "infiniband");
  EXPECT_EQ(ndr.ports_per_node, 8);
  EXPECT_EQ(ndr.line_rate, 50e9);
  EXPECT_TRUE(ndr.rails);
  EXPECT_THAT(ndr.gaps,
              ::testing::ElementsAre("3 rows of runs that the data set suspects stay out of the fits"));
  EXPECT_EQ(ndr.laws.count(kGather), 1u);
  EXPECT_FALSE(ndr.laws.contains("ep/deepep_dispatch@bf16/network"));  // of flagged rows
  EXPECT_TRUE(told.contains(std::string("infiniband-ndr: ") + kGather));
  EXPECT_TRUE(told.contains(std::string(models::kLineRate) + ": " + kGather));
}

}  // namespace
}  // namespace moesim::calibration

// Networks fitted to rows that laws made: each finds its own law again, and all together say how they differ.
#include "calibration/fit/fit_networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "models/costs/network_law.h"
#include "models/hardware/group_shape.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::NetworkProfile;
using models::ParameterSet;
using models::Profile;
using sim::CollectiveOp;

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

// Profiles made one's own: rows of a machine that differs in a known way.
#include "calibration/fit/refine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "calibration/check/check.h"
#include "models/costs/network_law.h"
#include "models/hardware/group_shape.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::NetworkProfile;
using models::ParameterSet;
using models::Profile;
using sim::CollectiveOp;

const Profile& base() {
  static const Profile one = Profile::load("h100-sxm");
  return one;
}

// Collectives of a machine that takes `slower` times as long as the profile says, at so many sizes.
std::vector<CollectiveRow> machine_rows(CollectiveOp op, double slower, int sizes, std::uint64_t seed = 5) {
  std::vector<CollectiveRow> rows;
  for (int i = 0; i < sizes; ++i) {
    CollectiveRow row;
    row.origin = {{}, base().gpu(), "my cluster"};
    row.op = op;
    row.gpus_per_node = i % 2 ? 8 : 2;
    row.bytes = std::ldexp(1.0, 12 + i * 18 / std::max(1, sizes - 1));
    row.library = "NCCL 9.1";
    row.datatype = "half";
    row.seconds = 1;
    rows.push_back(row);
  }
  Measurements all;
  all.collectives = rows;
  Random random(seed);
  const CheckReport report = check_rows(all, [](const std::string&) { return &base(); });
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].seconds = report.rows[i].forecast.value * slower * noise(random);
  return rows;
}

double mean_error(const Profile& profile, const std::vector<CollectiveRow>& rows) {
  Measurements all;
  all.collectives = rows;
  return check_rows(all, [&](const std::string&) { return &profile; }).total().mean_abs_error;
}

TEST(Refine, TwelveRowsMoveTheirLawAndNoOther) {
  Measurements own;
  own.collectives = machine_rows(CollectiveOp::all_gather, 1.4, 12);
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  ASSERT_EQ(report.laws.size(), 1u);
  const RefinedLaw& law = report.laws.front();
  EXPECT_EQ(law.key, "collective/all_gather/scaleup");
  EXPECT_EQ(law.rows, 12);
  EXPECT_NEAR(law.moved, std::log(1.4), 0.05);
  EXPECT_GT(law.moved_sigma, 0.5);
  EXPECT_GT(law.own_share, 0.5);
  EXPECT_LE(law.own_share, 1);
  EXPECT_LT(law.error_left_out, 0.1);
  const auto others = machine_rows(CollectiveOp::all_gather, 1.4, 17, 8);
  EXPECT_GT(mean_error(base(), others), 0.25);
  EXPECT_LT(mean_error(mine, others), 0.04);
  // Everything else is as it was.
  for (const auto& [key, set] : base().sets()) {
    ASSERT_TRUE(mine.find(key)) << key;
    if (key == law.key) continue;
    EXPECT_EQ(mine.at(key).values, set.values) << key;
    EXPECT_EQ(mine.at(key).own_share, 0) << key;
  }
  EXPECT_THAT(mine.at(law.key).source, testing::HasSubstr("12 own rows (my cluster)"));
  EXPECT_NEAR(mine.at(law.key).own_share, law.own_share, 1e-12);
}

// The file keeps the share, and what is read back forecasts the same.
TEST(Refine, IsReadBack) {
  Measurements own;
  own.collectives = machine_rows(CollectiveOp::all_gather, 1.4, 12);
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  const Profile again = Profile::parse(mine.to_json(), "mine.json");
  EXPECT_NEAR(again.at("collective/all_gather/scaleup").own_share, report.laws.front().own_share, 1e-3);
  EXPECT_NEAR(mean_error(again, own.collectives), mean_error(mine, own.collectives), 1e-4);
}

// However far a machine is off: 6 of these 25 were refused ("a matrix that is no correlation") while only the
// covariance itself was one, and not what three digits leave of it.
TEST(Refine, IsReadBackHoweverFarTheMachineIsOff) {
  const Measurements all = read_measurements(MOESIM_SOURCE_DIR "/tests/docs/fixtures/own.csv");
  for (int i = 0; i < 25; ++i) {
    const double slower = 0.4 * std::pow(1.15, i);
    Measurements own;
    for (CollectiveRow row : all.collectives)
      if (row.op == CollectiveOp::all_gather && row.nodes == 1) {
        row.seconds *= slower;
        own.collectives.push_back(row);
      }
    ASSERT_EQ(own.collectives.size(), 12u);
    RefineReport report;
    const Profile mine = refine(base(), own, report);
    EXPECT_NO_THROW(Profile::parse(mine.to_json(), "mine.json")) << "scaled by " << slower;
  }
}

TEST(Refine, AnIntervalNarrowsWhereRowsAgree) {
  Measurements own;
  own.collectives = machine_rows(CollectiveOp::all_to_all, 1.0, 16);
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  const ParameterSet &before = base().at("collective/all_to_all/scaleup"),
                     &after = mine.at("collective/all_to_all/scaleup");
  EXPECT_LT(after.residual, before.residual);
  EXPECT_LT(after.systematic, before.systematic);
}

TEST(Refine, OneThrottledRowMovesLittle) {
  Measurements own;
  own.collectives = machine_rows(CollectiveOp::all_gather, 1.0, 12);
  own.collectives[9].seconds *= 2.5;
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  EXPECT_EQ(report.laws.front().outliers, 1);
  EXPECT_LT(mean_error(mine, machine_rows(CollectiveOp::all_gather, 1.0, 17, 8)), 0.05);
}

// Rows that agree move their law to them however far they are, or are not believed: nothing is left out silently.
TEST(Refine, RowsThatAgreeMoveTheirLawOrAreNotBelieved) {
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_to_all, CollectiveOp::all_reduce})
    for (const double slower : {0.05, 0.1, 0.25, 0.5, 2.0, 3.0, 5.0, 6.0, 8.0, 10.0, 20.0, 40.0}) {
      Measurements own;
      own.collectives = machine_rows(op, slower, 33);
      RefineReport report;
      const Profile mine = refine(base(), own, report);
      const RefinedLaw& law = report.laws.front();
      if (law.believed) {
        EXPECT_LT(mean_error(mine, own.collectives), 0.15) << law.key << " x " << slower;
      } else {
        EXPECT_LT(slower, 0.6) << law.key;  // beyond the links
        EXPECT_EQ(mine.at(law.key).values, base().at(law.key).values) << law.key << " x " << slower;
      }
    }
}

// Likewise between nodes.
TEST(Refine, RowsBetweenNodesMoveTheirLawOrAreNotBelieved) {
  const NetworkProfile network = NetworkProfile::load("infiniband-ndr");
  const auto profile_of = [](const Device&) -> const Profile& { return base(); };
  const models::Cluster cluster =
      cluster_of(base(), machine_of("xxrjun/nccl-tests-cluster", base().gpu()), 4, 8);
  for (const CollectiveOp op :
       {CollectiveOp::all_gather, CollectiveOp::all_to_all, CollectiveOp::all_reduce}) {
    const std::string key = "collective/" + std::string(sim::name(op)) + "/network";
    const auto curve = models::NetworkCurve::from(network.laws.at(key), key, cluster);
    for (const double slower : {0.05, 0.1, 0.25, 0.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0}) {
      Measurements own;
      for (int octave = 11; octave <= 33; octave += 2) {
        CollectiveRow row;
        row.origin = {{}, base().gpu(), "xxrjun/nccl-tests-cluster"};
        row.op = op;
        row.nodes = 4;
        row.gpus_per_node = 8;
        row.bytes = std::ldexp(1.0, octave);
        row.library = "NCCL 9.1";
        row.datatype = "half";
        row.seconds = slower * curve.seconds(models::GroupShape::uniform(4, 8), row.bytes);
        own.collectives.push_back(row);
      }
      RefineReport report;
      const NetworkProfile mine = refine(network, own, profile_of, report);
      Profile with = base();
      with.set(key, mine.laws.at(key));
      const double error = check_rows(own, [&](const std::string&) { return &with; }).total().mean_abs_error;
      if (report.laws.front().believed) {
        EXPECT_LT(error, 0.15) << key << " x " << slower;
      } else {
        EXPECT_LT(slower, 0.6) << key;  // beyond the ports
        EXPECT_EQ(mine.laws.at(key).values, network.laws.at(key).values) << key << " x " << slower;
      }
    }
  }
}

// A law of the library that the rows have is what they start from, and gives way to the refined one.
TEST(Refine, TheLawOfTheLibraryIsTheBase) {
  const std::string special = "collective/all_gather/scaleup@NCCL 2.23";
  ASSERT_TRUE(base().find(special));
  Measurements own;
  own.collectives = machine_rows(CollectiveOp::all_gather, 1.0, 6);
  for (CollectiveRow& row : own.collectives) row.library = "NCCL 2.23";
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  EXPECT_FALSE(mine.find(special));
  EXPECT_THAT(mine.at("collective/all_gather/scaleup").source,
              testing::HasSubstr(base().at(special).source.substr(0, 20)));
}

TEST(Refine, WhatIsNotOfTheProfileIsSkippedByName) {
  Measurements own;
  own.collectives = machine_rows(CollectiveOp::all_gather, 1.1, 3);
  own.collectives[0].nodes = 2;
  own.collectives[1].origin.gpu = "MI300X";
  own.collectives.push_back(own.collectives[2]);
  own.collectives[3].origin.gpu = "my box";
  RefineReport report;
  refine(base(), own, report);
  EXPECT_EQ(report.rows, 1u);
  ASSERT_EQ(report.skipped.size(), 3u);
  EXPECT_EQ(
      report.skipped.at("rows of 'my box', a GPU without a profile (calibrate import --gpu says of which)"),
      1u);
  EXPECT_EQ(report.skipped.at("rows of another GPU than H100-SXM5-80GB"), 1u);
  EXPECT_EQ(report.skipped.at("rows between nodes: they are of a network (calibrate refine NETWORK)"), 1u);
}

// Grouped products of eight experts, as the bench measures them.
std::vector<GroupedGemmRow> grouped_rows(const std::string& dtype, const std::vector<std::string>& kinds) {
  std::vector<GroupedGemmRow> rows;
  for (const std::string& kind : kinds)
    for (const double m : {256.0, 1024.0, 2048.0}) {
      GroupedGemmRow row;
      row.origin = {{}, base().gpu(), "my cluster"};
      row.kind = kind;
      row.dtype = dtype;
      row.groups = 8;
      row.m_per_group = m;
      row.n = 4096;
      row.k = 7168;
      row.seconds = 1;
      rows.push_back(row);
    }
  return rows;
}

CheckReport checked_by(const Profile& profile, const Measurements& rows) {
  return check_rows(rows, [&](const std::string&) { return &profile; });
}

// Gradients, skewed experts and CUTLASS's kernels are rows of the law of one launch; loops and batches are rows
// of that of dense products, which prices them.
TEST(Refine, EveryGroupedProductCounts) {
  Measurements own;
  own.grouped =
      grouped_rows("bf16", {"grouped fwd none", "grouped dgrad none", "grouped wgrad none",
                            "grouped fwd half", "cutlass fwd none", "loop fwd none", "batched dgrad none"});
  const CheckReport said = checked_by(base(), own);
  ASSERT_EQ(said.rows.size(), 21u);
  // A wgrad sums over the rows: another product than the forward one.
  EXPECT_NE(said.rows[0].forecast.value, said.rows[6].forecast.value);
  EXPECT_NE(said.rows[0].forecast.value, said.rows[9].forecast.value);
  EXPECT_EQ(said.rows[0].law, "grouped_gemm/bf16");
  EXPECT_EQ(said.rows[15].law, "gemm/bf16");
  // Loops and batches take longer by another factor than one launch.
  for (std::size_t i = 0; i < 21; ++i)
    own.grouped[i].seconds = (i < 15 ? 1.3 : 1.15) * said.rows[i].forecast.value;
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  EXPECT_EQ(report.rows, 21u);
  EXPECT_TRUE(report.skipped.empty());
  ASSERT_EQ(report.laws.size(), 2u);
  EXPECT_EQ(report.laws[0].key, "gemm/bf16");
  EXPECT_EQ(report.laws[0].rows, 6);
  EXPECT_NEAR(report.laws[0].moved, std::log(1.15), 0.05);
  EXPECT_NEAR(report.laws[1].moved, std::log(1.3), 0.05);
  EXPECT_LT(checked_by(mine, own).total().mean_abs_error, 0.08);
}

// The bench's fp8 rows are loops of cuBLASLt's products; MXFP8 has no law until there are rows.
TEST(Refine, LoopsOfFp8ProductsCount) {
  const Profile blackwell = Profile::load("b200-sxm");
  for (const auto& [type, key] : {std::pair{"fp8", "gemm/fp8"}, {"mxfp8", "gemm/mxfp8"}}) {
    Measurements own;
    own.grouped = grouped_rows(type, {"loop fwd none", "loop dgrad none", "loop wgrad none"});
    for (GroupedGemmRow& row : own.grouped) row.origin.gpu = blackwell.gpu();
    for (const double m : {1024.0, 4096.0, 16384.0}) {
      GemmRow row;
      row.origin = own.grouped.front().origin;
      row.dtype = type;
      row.kernel = "cublas";
      row.m = m, row.n = 4096, row.k = 4096;
      row.seconds = 1;
      own.gemms.push_back(row);
    }
    const CheckReport said = checked_by(blackwell, own);
    ASSERT_EQ(said.rows.size(), 12u);
    for (std::size_t i = 0; i < 3; ++i) own.gemms[i].seconds = 1.2 * said.rows[i].forecast.value;
    for (std::size_t i = 0; i < 9; ++i) own.grouped[i].seconds = 1.2 * said.rows[3 + i].forecast.value;
    RefineReport report;
    const Profile mine = refine(blackwell, own, report);
    EXPECT_EQ(report.rows, 12u) << type;
    EXPECT_TRUE(report.skipped.empty()) << type;
    ASSERT_EQ(report.laws.size(), 1u) << type;
    EXPECT_EQ(report.laws.front().key, key);
    EXPECT_EQ(report.laws.front().added, blackwell.find(key) == nullptr);
    EXPECT_LT(checked_by(mine, own).total().mean_abs_error, 0.06) << type;
  }
}

TEST(Refine, ProductsWithoutMatrixUnitsAreSkippedByName) {
  const Profile ampere = Profile::load("a100-sxm");
  Measurements own;
  own.grouped = grouped_rows("fp8", {"loop fwd none"});
  for (GroupedGemmRow& row : own.grouped) row.origin.gpu = ampere.gpu();
  RefineReport report;
  refine(ampere, own, report);
  EXPECT_EQ(report.rows, 0u);
  EXPECT_EQ(report.skipped.at("products in fp8, for which the GPU has no matrix units"), 3u);
}

// A base whose rows are all of eight GPUs and large messages has no curve for others: the rows make one.
TEST(Refine, RowsThatTheBaseHasNoCurveForMakeTheirOwn) {
  Measurements own;
  for (const int ranks : {2, 4, 8})
    for (int size = 10; size <= 30; size += 2) {
      CollectiveRow row;
      row.origin = {{}, base().gpu(), "my cluster"};
      row.op = CollectiveOp::send_recv;
      row.gpus_per_node = ranks;
      row.bytes = std::ldexp(1.0, size);
      row.library = "NCCL 9.1";
      row.datatype = "float";
      row.seconds = 9e-6 + 0.5e-6 * ranks + row.bytes / 360e9;
      own.collectives.push_back(row);
    }
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  EXPECT_LT(mean_error(mine, own.collectives), 0.05);
}

// The rows of a network choose it among all.
TEST(Refine, TheBaseIsTheOneUnderWhichTheRowsAreMostLikely) {
  const NetworkProfile truth = NetworkProfile::load("slingshot-polaris");
  const auto candidates = [] {
    std::vector<NetworkProfile> all;
    for (const std::string& name : NetworkProfile::names()) all.push_back(NetworkProfile::load(name));
    return all;
  }();
  Measurements own;
  for (const CollectiveOp op : {CollectiveOp::all_gather, CollectiveOp::all_reduce, CollectiveOp::all_to_all})
    for (int i = 0; i < 6; ++i) {
      CollectiveRow row;
      row.origin = {{}, base().gpu(), "my cluster", truth.name};
      row.op = op;
      row.nodes = i % 2 ? 4 : 8;
      row.gpus_per_node = 8;
      row.bytes = std::ldexp(1.0, 14 + 3 * i);
      row.library = "NCCL 9.1";
      row.datatype = "float";
      row.seconds = 1;
      own.collectives.push_back(row);
    }
  const CheckReport said = check_rows(own, [](const std::string&) { return &base(); });
  ASSERT_EQ(said.rows.size(), own.collectives.size());
  Random random(11);
  for (std::size_t i = 0; i < own.collectives.size(); ++i)
    own.collectives[i].seconds = said.rows[i].forecast.value * noise(random);
  std::vector<BaseEvidence> evidence;
  RefineReport report;
  refine_nearest(
      candidates, own, [](const Device&) -> const Profile& { return base(); }, evidence, report);
  EXPECT_EQ(evidence.front().name, truth.name);
  EXPECT_EQ(evidence.front().rows, own.collectives.size());
  EXPECT_GT(evidence.front().log_probability, evidence[1].log_probability);
}

// TCPXO has 200 GB/s a node: rows at 300, and rows that name InfiniBand, are not of it.
TEST(Refine, KindAndRateSayWhichNetworksARowMayBeOf) {
  Measurements own;
  const auto kinds = [&] {
    std::set<std::string> all;
    for (const NetworkProfile& one : possible_networks(own)) all.insert(one.kind);
    return all;
  };
  own.collectives.push_back(
      {{{}, base().gpu(), "my cluster"}, CollectiveOp::all_gather, 2, 8, 1e9, 4e-3, "float", "NCCL 9.1"});
  EXPECT_THAT(kinds(), ::testing::IsSupersetOf({"tcpx", "infiniband"}));
  own.collectives[0].seconds = 1e9 / 2 / 300e9;
  EXPECT_THAT(kinds(), ::testing::AllOf(::testing::Contains("infiniband"),
                                        ::testing::Not(::testing::Contains("tcpx"))));
  own.collectives[0].seconds = 4e-3;
  own.collectives[0].origin.network = "infiniband";
  EXPECT_THAT(kinds(), ::testing::ElementsAre("infiniband"));
  own.collectives[0].origin.network = "efa-p5";
  EXPECT_THAT(kinds(), ::testing::ElementsAre("efa"));
}

// Kernels without measurements, and host costs.
TEST(Refine, JudgedNumbersBecomeMeasured) {
  Measurements own;
  const double bandwidth = base().device().hbm_bandwidth * base().device().hbm_efficiency;
  for (const double bytes : {1e6, 1e7, 1e8, 1e9})
    own.kernels.push_back({of_a_law(), "gather_rows", bytes, 3e-6 + bytes / (0.6 * bandwidth), 1});
  own.machine.push_back({of_a_law(), "launch", 2.2e-6});
  own.machine.push_back({of_a_law(), "host_sync", 11e-6});
  own.machine.push_back({of_a_law(), "compute_under_communication", 1.12});
  RefineReport report;
  const Profile mine = refine(base(), own, report);
  EXPECT_NEAR(mine.at("kernel/gather_rows").get("share", 0), 0.6, 0.03);
  EXPECT_DOUBLE_EQ(mine.launch().kernel, 2.2e-6);
  EXPECT_DOUBLE_EQ(mine.launch().host_sync, 11e-6);
  EXPECT_DOUBLE_EQ(mine.overlap().compute_under_communication, 1.12);
  EXPECT_TRUE(report.laws.front().added);
  EXPECT_EQ(report.rows, 7u);
}

TEST(Refine, ANetworkTakesRowsBetweenNodesAndALawItLacked) {
  const NetworkProfile network = NetworkProfile::load("efa-p5");
  ASSERT_FALSE(network.laws.contains("collective/all_gather/network"));
  Measurements own;
  const models::Cluster cluster = cluster_of(base(), machine_of("aws-samples", base().gpu()), 2, 8);
  Random random(2);
  for (int i = 0; i < 8; ++i) {
    CollectiveRow row;
    row.origin = {{}, base().gpu(), "my cluster"};
    row.op = CollectiveOp::all_gather;
    row.nodes = 2;
    row.gpus_per_node = 8;
    row.bytes = std::ldexp(1.0, 20 + 2 * i);
    row.seconds = (1e-4 + row.bytes / 200e9) * noise(random);
    own.collectives.push_back(row);
  }
  own.collectives.push_back(machine_rows(CollectiveOp::all_gather, 1, 1).front());
  RefineReport report;
  const NetworkProfile mine = refine(
      network, own, [](const Device&) -> const Profile& { return base(); }, report);
  ASSERT_EQ(report.laws.size(), 1u);
  EXPECT_TRUE(report.laws.front().added);
  EXPECT_LT(report.laws.front().error_left_out, 0.5 * report.laws.front().error_before);
  EXPECT_TRUE(mine.laws.contains("collective/all_gather/network"));
  EXPECT_FALSE(mine.laws.at("collective/all_gather/network").derived);
  EXPECT_EQ(report.skipped.size(), 1u);
  for (const auto& [key, set] : network.laws) EXPECT_EQ(mine.laws.at(key).values, set.values) << key;
}

// NCCL changes its protocol between 256 KiB and 16 MiB of this cluster, which no parameter of the law can say.
TEST(Refine, ANetworkFollowsAProtocolThatItsLawLacks) {
  const NetworkProfile network = NetworkProfile::load("infiniband-ndr");
  const std::string key = "collective/all_reduce/network";
  const auto profile_of = [](const Device&) -> const Profile& { return base(); };
  const models::Cluster cluster =
      cluster_of(base(), machine_of("xxrjun/nccl-tests-cluster", base().gpu()), 4, 8);
  const auto curve = models::NetworkCurve::from(network.laws.at(key), key, cluster);
  const auto seconds = [&](double bytes) {
    return curve.seconds(models::GroupShape::uniform(4, 8), bytes) * (bytes > 2e5 && bytes < 3e7 ? 2.5 : 1);
  };
  const auto row_of = [&](int octave) {
    CollectiveRow row;
    row.origin = {{}, base().gpu(), "xxrjun/nccl-tests-cluster"};
    row.op = CollectiveOp::all_reduce;
    row.nodes = 4;
    row.gpus_per_node = 8;
    row.bytes = std::ldexp(1.0, octave);
    row.library = "NCCL 9.1";
    row.datatype = "float";
    row.seconds = seconds(row.bytes);
    return row;
  };
  Measurements own, held;
  for (int octave = 11; octave <= 33; octave += 2) own.collectives.push_back(row_of(octave));
  // Between two rows of one protocol.
  for (const int octave : {12, 14, 16, 20, 22, 26, 28, 30, 32}) held.collectives.push_back(row_of(octave));
  RefineReport report;
  const NetworkProfile mine = refine(network, own, profile_of, report);
  const auto checked = [&](const models::ParameterSet& law) {
    Profile with = base();
    with.set(key, law);
    return check_rows(held, [&](const std::string&) { return &with; }).total();
  };
  const models::ParameterSet& refined = mine.laws.at(key);
  EXPECT_GT(checked(network.laws.at(key)).mean_abs_error, 0.1);
  EXPECT_LT(checked(refined).mean_abs_error, 0.08);
  EXPECT_GT(checked(refined).coverage, 0.7);
  // Without the corrections it is the law that the rows would fit.
  EXPECT_TRUE(std::ranges::any_of(
      refined.names, [](const std::string& name) { return name.starts_with("correction/4/8/"); }));
  // It is surer of a row's call than of one between two protocols.
  const auto curve_of_mine = models::NetworkCurve::from(refined, key, cluster);
  const auto doubt = [&](double bytes) {
    return curve_of_mine.corrections.sigma(models::GroupShape::uniform(4, 8), bytes);
  };
  EXPECT_LT(doubt(std::ldexp(1.0, 17)), 0.2 * doubt(std::ldexp(1.0, 18)));
  EXPECT_LT(doubt(std::ldexp(1.0, 18)), refined.get(models::Corrections::kSigma, 0));
  // It is read back, and refined once more it has no further corrections.
  const NetworkProfile again = NetworkProfile::parse(mine.to_json(), "mine.json");
  EXPECT_NEAR(checked(again.laws.at(key)).mean_abs_error, checked(refined).mean_abs_error, 1e-3);
  const NetworkProfile twice = refine(again, own, profile_of, report);
  EXPECT_EQ(twice.laws.at(key).names, refined.names);
}

}  // namespace
}  // namespace moesim::calibration

// Fits recover the laws that made the rows, and shipped profiles forecast the published ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>

#include "base/random.h"
#include "calibration/check/check.h"
#include "calibration/fit/constants_file.h"
#include "calibration/fit/derive.h"
#include "calibration/fit/fit_collectives.h"
#include "calibration/fit/fit_gemm.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/fit/least_squares.h"
#include "calibration/fit/leave_out.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/ffn_rows.h"
#include "calibration/rows/rank_counts.h"
#include "models/costs/collectives.h"
#include "models/costs/gemm.h"
#include "models/costs/network_law.h"
#include "models/costs/size_curve.h"

namespace moesim::calibration {
namespace {

using sim::CollectiveOp;

TEST(LeastSquares, FindsParametersInSpiteOfOutliers) {
  Random random(5);
  std::vector<double> x, y;
  for (int i = 0; i < 200; ++i) {
    x.push_back(1 + i);
    y.push_back((3 + 0.25 * x.back()) * std::exp(0.02 * random.normal()) * (i % 20 == 0 ? 4 : 1));
  }
  const FitResult fit = fit_log({1, 1}, [&](const std::vector<double>& p) {
    std::vector<double> r;
    for (std::size_t i = 0; i < x.size(); ++i) r.push_back(std::log((p[0] + p[1] * x[i]) / y[i]));
    return r;
  });
  EXPECT_NEAR(fit.values[0], 3, 0.15);
  EXPECT_NEAR(fit.values[1], 0.25, 0.01);
  EXPECT_GT(fit.covariance[0], 0);
}

std::vector<CollectiveRow> rows_of_law(CollectiveOp op, const std::vector<int>& counts,
                                       const std::function<double(int, double)>& seconds) {
  std::vector<CollectiveRow> rows;
  for (const int n : counts)
    for (double bytes = 512; bytes <= 1 << 29; bytes *= 2) {
      CollectiveRow row;
      row.op = op;
      row.gpus_per_node = n;
      row.bytes = bytes;
      row.seconds = seconds(n, bytes);
      row.library = "NCCL 2.29.2";
      row.datatype = "half";
      row.origin.gpu = "H100-SXM5-80GB";
      row.origin.source = "a law";
      rows.push_back(row);
    }
  return rows;
}

TEST(SizeCurve, RankCountsBetweenFollowTheRing) {
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

TEST(SizeCurve, FourGpusOfOneMachineFromTwoAndEightOfAnother) {
  const auto file = std::filesystem::path(MOESIM_DATA_DIR) / "published" / "collectives_intranode.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not here";
  const CheckReport report = leave_out(read_measurements(file), "between");
  EXPECT_GE(report.rows.size(), 168u);
  double sum = 0, large = 0;
  std::size_t rows = 0;
  for (const CheckedRow& row : report.rows) {
    sum += std::abs(row.error());
    if (row.sizes.find("M-") != std::string::npos || row.sizes.ends_with("GB")) {
      large += std::abs(row.error());
      ++rows;
    }
  }
  EXPECT_LT(sum / static_cast<double>(report.rows.size()), 0.06);
  EXPECT_LT(large / static_cast<double>(rows), 0.05);
}

TEST(SizeCurve, SwitchReductionsBetweenRingAndNvls) {
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

TEST(NetworkLaw, NodeCountsBetweenAreForecast) {
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

TEST(DenseGemm, RecoversItsOwnLaw) {
  models::Profile profile;
  profile.device() = find_device("h100-sxm")->limits;
  models::ParameterSet truth;
  truth.law = "tiles";
  truth.names = {"peak_share", "floor", "memory_share"};
  truth.values = {0.7, 4e-6, 0.8};
  models::Profile made = profile;
  made.set("gemm/bf16", truth);
  const models::GemmModel model(made, models::Clocks::kBurst);
  std::vector<GemmRow> rows;
  for (const double m : {1., 16., 100., 500., 2000., 9000.})
    for (const auto& [n, k] :
         std::vector<std::pair<double, double>>{{1024, 4096}, {4096, 4096}, {8192, 2048}, {16384, 8192}}) {
      GemmRow row;
      row.origin.gpu = "H100-SXM5-80GB";
      row.origin.source = "a law";
      row.dtype = "bf16";
      row.m = m;
      row.n = n;
      row.k = k;
      row.seconds = model.seconds(
          {static_cast<std::int64_t>(m), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)},
          models::DType::kBf16);
      rows.push_back(row);
    }
  profile.set("gemm/bf16", fit_dense_gemm(profile, rows, false));
  for (const double r : gemm_residuals(profile, rows)) EXPECT_NEAR(r, 0, 0.06);
  EXPECT_NEAR(profile.at("gemm/bf16").get("peak_share", 0), 0.7, 0.05);
}

TEST(FfnRows, CountsAddUpAndRespectTheCap) {
  FfnRow row;
  row.experts = 64;
  row.topk = 6;
  row.ep = 1;
  for (const std::int64_t tokens : {1, 5, 11, 64, 1000, 16384}) {
    row.tokens = tokens;
    for (const char* routing : {"balanced", "power_law_1.2"}) {
      row.routing = routing;
      for (const auto& rows : expert_rows(row)) {
        EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), tokens * 6)
            << routing << tokens;
        EXPECT_LE(*std::max_element(rows.begin(), rows.end()), tokens);
      }
    }
  }
  // Few tokens: balanced routing still spreads over distinct experts.
  row.tokens = 2;
  row.routing = "balanced";
  const auto few = expert_rows(row).front();
  EXPECT_EQ(std::count(few.begin(), few.end(), 1), 12);
  // The most loaded of eight ranks holds at least an eighth.
  row.tokens = 4096;
  row.ep = 8;
  row.routing = "power_law_1.2";
  for (const auto& rows : expert_rows(row)) {
    EXPECT_EQ(rows.size(), 8u);
    EXPECT_GE(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), 4096 * 6 / 8);
  }
  row.routing = "zipf";
  EXPECT_THROW(expert_rows(row), InputError);
}

TEST(DerivedProfiles, SlowerLinksStretchOnlyTheBandwidthPart) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  models::Profile half;
  half.describe("half", "Half", "test", {});
  half.device() = h100.device();
  half.device().scaleup_bandwidth /= 2;
  derive_missing(half, h100);
  const std::string key = "collective/all_gather/scaleup";
  ASSERT_TRUE(half.at(key).derived);
  const auto slow = models::SizeCurve::from(half.at(key), key),
             fast = models::SizeCurve::from(h100.at(key), key);
  EXPECT_DOUBLE_EQ(slow.floor(8), fast.floor(8));
  // The links bind, the copying of the same chip does not get slower: between the link's own time and twice
  // the time.
  EXPECT_LT(slow.seconds(8, 1e10) / fast.seconds(8, 1e10), 2);
  EXPECT_GT(slow.seconds(8, 1e10), 1e10 * 7 / 8 / (0.85 * half.device().scaleup_bandwidth));
  // Another chip copies at another rate, too.
  half.device().sms /= 2;
  const auto other =
      models::SizeCurve::from(on_other_links(h100.at(key), h100.device(), half.device(), 1, 0.84), key);
  EXPECT_NEAR(other.seconds(8, 1e10) / fast.seconds(8, 1e10), 2, 0.05);
  EXPECT_NEAR(slow.seconds(8, 4096) / fast.seconds(8, 4096), 1, 0.05);
}

TEST(DerivedProfiles, AreSetRightByFewRows) {
  // H800: an H100 with slower links; five exchanges of one recording, made by a law with a link rate and a
  // time of small messages that differ from the derivation's.
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const Device& h800 = *find_device("h800-sxm");
  const std::string key = "collective/all_to_all/scaleup";
  models::ParameterSet truth =
      on_other_links(h100.at(key), h100.device(), h800.limits, /*wire_factor=*/1, /*share=*/0.7);
  for (std::size_t i = 0; i < truth.names.size(); ++i)
    if (truth.names[i].starts_with("latency")) truth.values[i] *= 2;
  const auto law = models::SizeCurve::from(truth, key);
  Measurements rows;
  for (const auto& [ranks, bytes] : {std::pair(2, 24e6), {4, 30e6}, {4, 32e6}, {8, 45e6}, {8, 54e6}}) {
    CollectiveRow row;
    row.op = CollectiveOp::all_to_all;
    row.gpus_per_node = ranks;
    row.bytes = bytes;
    row.seconds = law.seconds(ranks, bytes);
    row.origin.gpu = h800.gpu;
    rows.collectives.push_back(row);
  }
  const auto of = [&](const Measurements& measured) {
    models::Profile profile = fit_profile(h800, measured);
    derive_missing(profile, h100, measured);
    return profile;
  };
  const models::Profile fitted = of(rows), blind = of({});
  EXPECT_FALSE(fitted.at(key).derived);
  EXPECT_TRUE(blind.at(key).derived);
  const auto curve = models::SizeCurve::from(fitted.at(key), key);
  for (const int ranks : {2, 3, 6, 8})
    for (const double bytes : {20e6, 100e6, 500e6})
      EXPECT_NEAR(curve.seconds(ranks, bytes) / law.seconds(ranks, bytes), 1, 0.05) << ranks << " " << bytes;
  // The rate of the links serves operations without rows of their own.
  const std::string gather = "collective/all_gather/scaleup";
  EXPECT_TRUE(fitted.at(gather).derived);
  EXPECT_GT(models::SizeCurve::from(fitted.at(gather), gather).seconds(8, 1e9),
            1.1 * models::SizeCurve::from(blind.at(gather), gather).seconds(8, 1e9));
}

TEST(DerivedProfiles, EqualLinksChangeNothing) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const std::string key = "collective/all_reduce/scaleup";
  const auto same = on_other_links(h100.at(key), h100.device(), h100.device(), 2, 0.84);
  const auto before = models::SizeCurve::from(h100.at(key), key), after = models::SizeCurve::from(same, key);
  for (double bytes = 512; bytes < 1e10; bytes *= 3)
    EXPECT_NEAR(after.seconds(8, bytes) / before.seconds(8, bytes), 1, 0.02) << bytes;
}

TEST(Check, RowsThatNobodyCanForecastAreSkippedWithTheirReason) {
  Measurements rows;
  GemmRow gemm;
  gemm.origin.gpu = "H100-SXM5-80GB";
  gemm.m = gemm.n = gemm.k = 4096;
  gemm.seconds = 2e-4;
  gemm.kernel = "torch";
  for (const char* dtype : {"bfloat16", "nvfp4", "nvfp4"}) {
    gemm.dtype = dtype;
    rows.gemms.push_back(gemm);
  }
  gemm.origin.gpu = "GTX";
  rows.gemms.push_back(gemm);
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const CheckReport report =
      check_rows(rows, [&](const std::string& gpu) { return gpu.starts_with("H100") ? &h100 : nullptr; });
  EXPECT_EQ(report.rows.size(), 1u);
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(report.skipped.at("no profile for GTX"), 1u);
  const auto unknown = std::find_if(report.skipped.begin(), report.skipped.end(), [](const auto& entry) {
    return entry.first.find("nvfp4") != std::string::npos;
  });
  ASSERT_NE(unknown, report.skipped.end());
  EXPECT_EQ(unknown->second, 2u);
  // A fit leaves them out, too.
  EXPECT_NE(fit_profile(*find_device("h100-sxm"), rows,
                        {.leave_out_shapes = false, .provenance = {}, .progress = {}})
                .find("gemm/bf16@torch"),
            nullptr);
}

TEST(Check, TheMedianOfTwoIsTheirMean) {
  CheckReport report;
  for (const double forecast : {1.1, 1.3}) {
    CheckedRow row;
    row.measured = 1;
    row.forecast = models::Estimate::exact(forecast);
    report.rows.push_back(row);
  }
  EXPECT_NEAR(report.total().median_abs_error, 0.2, 1e-12);
}

TEST(LeastSquares, ACoveringSigmaHoldsNinetyPercentInSpiteOfOutliers) {
  Random random(3);
  std::vector<double> residuals;
  for (int i = 0; i < 2000; ++i) residuals.push_back(0.05 * random.normal() * (i % 50 == 0 ? 100 : 1));
  const double sigma = covering_sigma(residuals);
  EXPECT_NEAR(sigma, 0.05, 0.01);
  EXPECT_EQ(covering_sigma({}), 0);
}

TEST(Constants, SurviveAFitAndNameTheirMistakes) {
  const std::string text =
      R"({"schema": "moesim.constants/1", "profiles": {"h800-sxm": {"gap": {"value": 3, "sigma": 1, "unit": "us", "source": "me"}}}})";
  models::Profile profile = fit_profile(*find_device("h800-sxm"), {});
  add_constants(profile, parse_constants(text, "c.json"));
  EXPECT_EQ(profile.constant("gap"), 3);
  EXPECT_EQ(models::Profile::parse(profile.to_json(), "p.json").find_constant("gap")->source, "me");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    try {
      parse_constants(changed, "c.json");
    } catch (const InputError& wrong) {
      return std::string(wrong.what());
    }
    return std::string();
  };
  EXPECT_NE(error("h800-sxm", "h80-sxm").find("h80-sxm"), std::string::npos);
  EXPECT_NE(error("\"source\": \"me\"", "\"source\": \"\"").find("empty source"), std::string::npos);
  EXPECT_NE(error("sigma", "sigm").find("sigm"), std::string::npos);
}

struct Published {
  const char* file;
  double median;  // the shipped profiles must stay this good on the rows they were fitted to
  double coverage;
};

class PublishedRows : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedRows, AreForecastByTheShippedProfiles) {
  const auto path = std::filesystem::path(MOESIM_DATA_DIR) / "published" / GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no data set at " << path;
  std::map<std::string, models::Profile> profiles;
  const CheckReport report =
      check_rows(read_measurements(path), [&](const std::string& gpu) -> const models::Profile* {
        const Device* device = device_of_gpu(gpu);
        if (!device) return nullptr;
        const std::string name(device->profile);
        return &profiles.try_emplace(name, models::Profile::load(name)).first->second;
      });
  const CheckGroup total = report.total();
  EXPECT_GT(total.rows, 0u);
  EXPECT_LE(total.median_abs_error, GetParam().median);
  EXPECT_GE(total.coverage, GetParam().coverage);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PublishedRows,
                         ::testing::Values(Published{"collectives_intranode.csv", 0.01, 0.95},
                                           Published{"collectives_multinode.csv", 0.06, 0.85},
                                           Published{"gemm_dense.csv", 0.07, 0.85},
                                           Published{"grouped_gemm.csv", 0.12, 0.5},
                                           Published{"moe_ffn_h100.csv", 0.07, 0.85},
                                           Published{"moe_ffn_b200.csv", 0.08, 0.85},
                                           Published{"ep_dispatch_combine_sweeps.csv", 0.1, 0.85}),
                         [](const auto& info) {
                           std::string name = info.param.file;
                           name = name.substr(0, name.find('.'));
                           return name;
                         });

}  // namespace
}  // namespace moesim::calibration

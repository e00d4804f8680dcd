// A profile from rows: fitted, derived from data sheets, with numbers of one machine.
#include "calibration/fit/fit_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "calibration/fit/derive.h"
#include "calibration/fit/machine_numbers.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "models/costs/collectives.h"
#include "models/costs/size_curve.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"
#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Links = models::GpuFamily::Links;
using models::Profile;
using models::SizeCurve;
using moesim::testing::message_of;
using sim::CollectiveOp;

const Device& h100() { return *find_device("h100-sxm"); }

double seconds_of_law(const models::Profile& profile, const std::string& key) {
  return models::SizeCurve::from(profile.at(key), key).seconds(8, 1 << 28);
}

std::vector<CollectiveRow> sweep(const std::string& library, double bandwidth) {
  auto rows = rows_of_law(CollectiveOp::all_gather, {2, 8}, [=](int n, double bytes) {
    return 10e-6 + 1e-6 * n + bytes * (n - 1) / n / bandwidth;
  });
  for (CollectiveRow& row : rows) row.library = library;
  return rows;
}

void add(Measurements& rows, const std::vector<CollectiveRow>& more) {
  rows.collectives.insert(rows.collectives.end(), more.begin(), more.end());
}

TEST(FitProfile, WithoutRowsThereAreLimitsAndGapsOnly) {
  const models::Profile profile =
      fit_profile(h100(), {}, {.leave_out_shapes = true, .provenance = "nobody", .progress = {}});
  EXPECT_EQ(profile.name(), "h100-sxm");
  EXPECT_EQ(profile.provenance(), "nobody");
  EXPECT_TRUE(profile.sets().empty());
  EXPECT_EQ(profile.device().hbm_bandwidth, h100().limits.hbm_bandwidth);
  EXPECT_THAT(profile.gaps(), Contains(HasSubstr("memory-bound kernels")));
}

// 2.9 comes before 2.18; the old release's law stays beside the default under its name.
TEST(FitProfile, TheNewestLibraryIsTheDefault) {
  Measurements rows;
  rows.collectives = sweep("NCCL 2.9.1", 200e9);
  add(rows, sweep("NCCL 2.18.3", 400e9));
  const models::Profile profile = fit_profile(h100(), rows);
  const std::string key = "collective/all_gather/scaleup";
  EXPECT_NEAR(seconds_of_law(profile, key), 18e-6 + 0.875 * (1 << 28) / 400e9, 1e-5);
  EXPECT_NEAR(seconds_of_law(profile, key + "@NCCL 2.9.1"), 18e-6 + 0.875 * (1 << 28) / 200e9, 1e-5);
  EXPECT_EQ(profile.find(key + "@NCCL 2.18.3"), nullptr);
  // A newer one that was measured at three sizes only is no default.
  std::vector<CollectiveRow> few = sweep("NCCL 2.30.0", 300e9);
  std::erase_if(few, [](const CollectiveRow& row) { return row.bytes > 2048; });
  add(rows, few);
  EXPECT_NEAR(seconds_of_law(fit_profile(h100(), rows), key), 18e-6 + 0.875 * (1 << 28) / 400e9, 1e-5);
}

TEST(FitProfile, SinglePointsAndOtherGpusMakeNoLaw) {
  Measurements rows;
  rows.collectives = sweep("NCCL 2.29.2", 300e9);
  std::erase_if(rows.collectives, [](const CollectiveRow& row) { return row.bytes > 1024; });
  EXPECT_TRUE(fit_profile(h100(), rows).sets().empty());  // two sizes are no sweep
  rows.collectives = sweep("NCCL 2.29.2", 300e9);
  EXPECT_TRUE(fit_profile(*find_device("a100-sxm"), rows).sets().empty());
  EXPECT_EQ(fit_profile(h100(), rows).sets().size(), 1u);
}

TEST(FitProfile, SaysWhatItFitsAndFromWhom) {
  Measurements rows;
  rows.collectives = sweep("NCCL 2.29.2", 300e9);
  for (std::size_t i = 0; i < rows.collectives.size(); ++i)
    rows.collectives[i].origin.source = "source " + std::to_string(i % 5);
  rows.kernels.push_back({of_a_law(), "copy", 1e6, 5e-6, 1});
  rows.kernels.push_back({of_a_law(), "copy", 1e8, 1e-4, 1});
  std::vector<std::string> told;
  const models::Profile profile = fit_profile(
      h100(), rows, {.leave_out_shapes = true, .provenance = "", .progress = [&](const std::string& what) {
                       told.push_back(what);
                     }});
  EXPECT_THAT(told,
              ::testing::ElementsAre("h100-sxm: collective/all_gather/scaleup", "h100-sxm: kernel/copy"));
  EXPECT_EQ(profile.at("collective/all_gather/scaleup").source, "source 0; source 1; source 2; 2 more");
  EXPECT_THAT(profile.gaps(), ::testing::Not(Contains(HasSubstr("memory-bound kernels"))));
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

TEST(DerivedProfiles, KeepWhatWasMeasuredAndSayWhatWasNot) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const Device& h200 = *find_device("h200-sxm");
  models::Profile profile = fit_profile(h200, {});
  models::ParameterSet own;
  own.law = "tiles";
  own.names = {"peak_share"};
  own.values = {0.5};
  profile.set("gemm/bf16", own);
  const std::size_t gaps = profile.gaps().size();
  derive_missing(profile, h100);
  EXPECT_EQ(profile.at("gemm/bf16").get("peak_share", 0), 0.5);
  EXPECT_FALSE(profile.at("gemm/bf16").derived);
  const std::string key = "collective/all_gather/scaleup";
  EXPECT_TRUE(profile.at(key).derived);
  EXPECT_EQ(profile.at(key).rows, 0);
  EXPECT_GT(profile.at(key).residual, h100.at(key).residual);
  ASSERT_EQ(profile.gaps().size(), gaps + 1);
  EXPECT_NE(profile.gaps().back().find(key), std::string::npos);
  EXPECT_EQ(profile.gaps().back().find(" gemm/bf16"), std::string::npos);
}

// MI300X's best dense product reaches 668.4 of 1307 TFLOP/s, H100's 794.5 of 989.
TEST(DerivedProfiles, ProductsReachWhatTheBestOneDid) {
  const models::Profile h100 = models::Profile::load("h100-sxm");
  const Device& mi300x = *find_device("mi300x");
  models::Profile profile = fit_profile(mi300x, {});
  derive_missing(profile, h100, {});
  const double ratio = 668.4 / 1307 / (794.5 / 989);
  const auto share = [](const models::Profile& p, const char* key) { return p.at(key).get("peak_share", 0); };
  EXPECT_NEAR(share(profile, "gemm/bf16") / share(h100, "gemm/bf16"), ratio, 1e-9);
  EXPECT_NEAR(share(profile, "grouped_gemm/bf16") / share(h100, "grouped_gemm/bf16"),
              ratio * mi300x.grouped_share, 1e-9);
  EXPECT_LT(mi300x.grouped_share, 1);
}

constexpr double kPcie4 = 31.5e9, kPcie5 = 63e9;

SizeCurve curve(const std::string& op, double link, Links links = Links::kPcie) {
  const std::string key = "collective/" + op + "/scaleup";
  return SizeCurve::from(pcie_law(key, link, links), key);
}

// GB/s of nccl-tests' bus bandwidth.
double bus(const SizeCurve& law, double factor, int ranks, double bytes) {
  return factor * (ranks - 1) / ranks * bytes / law.seconds(ranks, bytes) / 1e9;
}

TEST(PcieLaw, ReachesWhatBoxesWithPcie4AndPcie5Publish) {
  // Eight RTX 4090, A100 PCIe and the like on PCIe 4: 10 to 24 GB/s; RTX 5090 and RTX PRO 6000 on PCIe
  // 5: 21.6 to 46.4.
  const double pcie4 = bus(curve("all_reduce", kPcie4), 2, 8, 1e9),
               pcie5 = bus(curve("all_reduce", kPcie5), 2, 8, 1e9);
  EXPECT_GT(pcie4, 10);
  EXPECT_LT(pcie4, 24);
  EXPECT_GT(pcie5, 21.6);
  EXPECT_LT(pcie5, 46.4);
  // The smallest message of eight takes 17 to 48 us.
  EXPECT_GT(curve("all_reduce", kPcie5).seconds(8, 8), 17e-6);
  EXPECT_LT(curve("all_reduce", kPcie5).seconds(8, 8), 48e-6);
}

TEST(PcieLaw, MoreGpusShareTheHostAndExchangesMost) {
  const auto rings = curve("all_gather", kPcie5), exchanges = curve("all_to_all", kPcie5);
  EXPECT_GT(bus(rings, 1, 2, 1e9), bus(rings, 1, 4, 1e9));
  EXPECT_GT(bus(rings, 1, 4, 1e9), bus(rings, 1, 8, 1e9));
  EXPECT_GT(bus(rings, 1, 8, 1e9), 1.3 * bus(exchanges, 1, 8, 1e9));
  EXPECT_NEAR(bus(rings, 1, 2, 1e9), bus(exchanges, 1, 2, 1e9), 0.1);
  // Half the link, half the rate; copies through the host's memory are slower than those between peers.
  EXPECT_NEAR(bus(curve("all_to_all", kPcie4), 1, 8, 1e9), bus(exchanges, 1, 8, 1e9) / 2, 0.1);
  EXPECT_GT(bus(exchanges, 1, 8, 1e9),
            1.1 * bus(curve("all_to_all", kPcie5, Links::kPcieThroughMemory), 1, 8, 1e9));
  // A message to a peer takes its own bytes, as the exchange of two takes half of its buffer.
  EXPECT_NEAR(curve("send_recv", kPcie5).seconds(2, 1e8), exchanges.seconds(2, 2e8), 1e-4);
}

TEST(PcieLaw, IsWhatCardsTakeInsideANodeAndSaysSo) {
  for (const char* name : {"l40s", "rtx-5090", "h100-nvl"}) {
    const Device& device = *find_device(name);
    models::Profile profile = fit_profile(device, {});
    derive_missing(profile, models::Profile::load(std::string(device.relative)));
    const std::string key = "collective/all_to_all/scaleup";
    const models::ParameterSet& law = profile.at(key);
    EXPECT_TRUE(law.derived);
    EXPECT_EQ(law.rows, 0);
    EXPECT_GT(law.residual, 0.2) << "boxes differ";
    EXPECT_NE(law.source.find("PCIe"), std::string::npos);
    EXPECT_NE(profile.gaps().back().find("derived from"), std::string::npos);
    bool told = false;
    for (const std::string& gap : profile.gaps())
      told = told || (gap.find("PCIe") != std::string::npos && gap.find(key) != std::string::npos);
    EXPECT_TRUE(told) << name;
    EXPECT_EQ(profile.at("gemm/bf16").get("peak_share", 2), std::min(1.0, profile.at("gemm/bf16").values[0]));
  }
}

// Six all-reduces of one's own box set the share of the host and the latency right, faster ones, too.
TEST(PcieLaw, IsSetRightByFewRows) {
  const Device& l40s = *find_device("l40s");
  const std::string key = "collective/all_reduce/scaleup";
  const auto law = curve("all_reduce", kPcie4);
  Measurements rows;
  for (const double bytes : {1e8, 5e8}) {
    CollectiveRow row;
    row.op = sim::CollectiveOp::all_reduce;
    row.gpus_per_node = 8;
    row.bytes = bytes;
    row.seconds = law.seconds(8, bytes) / 1.4;
    row.origin.gpu = "NVIDIA L40S";
    rows.collectives.push_back(row);
  }
  models::Profile profile = fit_profile(l40s, rows);
  derive_missing(profile, models::Profile::load(std::string("h100-sxm")), rows);
  EXPECT_FALSE(profile.at(key).derived);
  EXPECT_NEAR(SizeCurve::from(profile.at(key), key).seconds(8, 2e8) / (law.seconds(8, 2e8) / 1.4), 1, 0.05);
  const std::string gather = "collective/all_gather/scaleup";
  EXPECT_TRUE(profile.at(gather).derived);
  EXPECT_LT(SizeCurve::from(profile.at(gather), gather).seconds(8, 1e9),
            curve("all_gather", kPcie4).seconds(8, 1e9) / 1.3);
}

// Costs of a GPU besides its kernels: from the benchmark to the profile.

constexpr const char* kBench = R"({"context": {"gpu": "H200-SXM5-141GB"}, "benchmarks": [
  {"name": "latency/launch/min_time:0.200/manual_time", "real_time": 2.5, "time_unit": "us", "sm_MHz": 1900},
  {"name": "latency/host_sync/min_time:0.200/manual_time", "real_time": 9, "time_unit": "us"},
  {"name": "latency/nccl_single_rank/min_time:0.200/manual_time", "real_time": 6, "time_unit": "us"},
  {"name": "overlap/product_alone/min_time:0.200/manual_time", "real_time": 200, "time_unit": "us"},
  {"name": "overlap/product_beside_kernel/sms:20/min_time:0.200/manual_time", "real_time": 250, "time_unit": "us"},
  {"name": "overlap/product_beside_copies/min_time:0.200/manual_time", "real_time": 230, "time_unit": "us"}]})";

double value_of(const Measurements& rows, const std::string& what) {
  for (const auto& row : rows.machine)
    if (row.what == what) return row.value;
  return 0;
}

TEST(MachineNumbers, ComeFromTheBench) {
  const Measurements rows = import_google_benchmark(kBench, "bench.json", {}).rows;
  EXPECT_EQ(rows.machine.size(), 3u);  // one rank of NCCL is no number of a profile
  EXPECT_DOUBLE_EQ(value_of(rows, "launch"), 2.5e-6);
  EXPECT_DOUBLE_EQ(value_of(rows, "host_sync"), 9e-6);
  EXPECT_DOUBLE_EQ(value_of(rows, "compute_under_communication"), 1.15);
  EXPECT_THAT(
      import_google_benchmark(kBench, "bench.json", {}).notes,
      ::testing::ElementsAre(
          "bench.json: 1 benchmark left out: latency/nccl_single_rank, which no profile has a number for",
          "bench.json: 1 benchmark left out: overlap/product_beside_kernel, which no profile has a "
          "number for"));
  // A file of measurements keeps them.
  const Measurements again = parse_measurement_file(to_json(rows, "a test"), "rows.json");
  ASSERT_EQ(again.machine.size(), 3u);
  EXPECT_DOUBLE_EQ(value_of(again, "launch"), 2.5e-6);
}

TEST(MachineNumbers, AFitTakesThemAndNoLongerCallsThemAGap) {
  const Measurements rows = import_google_benchmark(kBench, "bench.json", {}).rows;
  const models::Profile profile = fit_profile(*find_device("h200-sxm"), rows);
  EXPECT_DOUBLE_EQ(profile.launch().kernel, 2.5e-6);
  EXPECT_DOUBLE_EQ(profile.launch().host_sync, 9e-6);
  EXPECT_DOUBLE_EQ(profile.overlap().compute_under_communication, 1.15);
  for (const std::string& gap : profile.gaps()) {
    EXPECT_THAT(gap, ::testing::Not(::testing::StartsWith("launch.kernel")));
    EXPECT_THAT(gap, ::testing::Not(::testing::StartsWith("overlap:")));
  }
}

TEST(MachineNumbers, TheMedianCountsAndNothingComputesFaster) {
  models::Profile profile = models::Profile::load("h200-sxm");
  const Origin origin{{}, "H200-SXM5-141GB", "a test"};
  const auto set = set_machine_numbers(profile, {{origin, "launch", 2e-6},
                                                 {origin, "launch", 9e-6},
                                                 {origin, "launch", 3e-6},
                                                 {origin, "compute_under_communication", 0.98}});
  EXPECT_DOUBLE_EQ(profile.launch().kernel, 3e-6);
  EXPECT_DOUBLE_EQ(profile.overlap().compute_under_communication, 1);
  EXPECT_EQ(set.size(), 2u);
}

TEST(MachineNumbers, AnotherNameIsRefused) {
  EXPECT_THROW(parse_measurement_file(R"({"schema": "moesim.measurements/1", "provenance": "", "machine":
                 [{"gpu": "H200-SXM5-141GB", "source": "x", "what": "weather", "value": 1}]})",
                                      "rows.json"),
               InputError);
}

TEST(CallOverheads, AreWhatALaunchAddsToTheTransfer) {
  Profile profile = Profile::load("h100-sxm");
  const models::CollectiveModel model(cluster_of(profile, nullptr, 1, 8));
  Measurements measured;
  const auto add = [&](double bytes, double overhead) {
    CollectiveRow row;
    row.origin = of_a_law();
    row.op = CollectiveOp::all_gather;
    row.gpus_per_node = 8;
    row.bytes = bytes;
    row.seconds = model.seconds(row.op, models::GroupShape::uniform(1, 8), bytes / 8) + overhead;
    measured.exposed_calls.push_back(row);
  };
  for (const double us : {80, 100, 140}) add(1 << 20, us * 1e-6);
  add(1 << 30, 1e-6);  // mostly transfer: does not count
  fit_call_overheads(profile, measured);
  const models::Constant* constant = profile.find_constant("exposed_call/all_gather");
  ASSERT_NE(constant, nullptr);
  EXPECT_NEAR(constant->value, 100, 0.1);
  EXPECT_NEAR(constant->sigma, std::sqrt((400 + 0 + 1600) / 3.0), 0.1);
  EXPECT_EQ(constant->unit, "us");
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
    return message_of([&] { parse_constants(changed, "c.json"); });
  };
  EXPECT_NE(error("h800-sxm", "h80-sxm").find("h80-sxm"), std::string::npos);
  EXPECT_NE(error("\"source\": \"me\"", "\"source\": \"\"").find("empty source"), std::string::npos);
  EXPECT_NE(error("sigma", "sigm").find("sigm"), std::string::npos);
}

TEST(Constants, AFittedOneOfTheSameNameStays) {
  const auto constants = parse_constants(
      R"({"schema": "moesim.constants/1", "profiles": {"h800-sxm": {
        "gap": {"value": 3, "unit": "us", "source": "file"}, "hop": {"value": 4, "unit": "us", "source": "file"}}}})",
      "c.json");
  EXPECT_EQ(constants.at("h800-sxm").at("gap").sigma, 0);
  models::Profile profile = fit_profile(*find_device("h800-sxm"), {});
  profile.set_constant("gap", {7, 1, "us", "fit"});
  add_constants(profile, constants);
  EXPECT_EQ(profile.constant("gap"), 7);
  EXPECT_EQ(profile.constant("hop"), 4);
  models::Profile other = fit_profile(*find_device("h100-sxm"), {});
  add_constants(other, constants);
  EXPECT_EQ(other.find_constant("hop"), nullptr);
}

TEST(Constants, CommunicationUnderComputingGoesIntoTheOverlap) {
  models::Profile profile = fit_profile(*find_device("h800-sxm"), {});
  add_constants(profile, parse_constants(
                             R"({"schema": "moesim.constants/1", "profiles": {"h800-sxm": {
        "communication_under_compute": {"value": 1.3, "unit": "times", "source": "a chunk"}}}})",
                             "c.json"));
  EXPECT_EQ(profile.overlap().communication_under_compute, 1.3);
  EXPECT_EQ(profile.find_constant("communication_under_compute"), nullptr);
  const auto about = std::ranges::count_if(
      profile.gaps(), [](const std::string& gap) { return gap.starts_with("overlap:"); });
  EXPECT_EQ(about, 1);
}

}  // namespace
}  // namespace moesim::calibration

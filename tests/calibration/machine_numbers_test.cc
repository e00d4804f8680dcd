// Costs of a GPU besides its kernels: from the benchmark to the profile.
#include "calibration/fit/machine_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/input_error.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "models/costs/collectives.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"
#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using models::Profile;
using moesim::testing::message_of;
using sim::CollectiveOp;

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

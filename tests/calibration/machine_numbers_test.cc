// Costs of a GPU besides its kernels: from the benchmark to the profile.
#include "calibration/fit/machine_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {
namespace {

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
      testing::ElementsAre(
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
    EXPECT_THAT(gap, testing::Not(testing::StartsWith("launch.kernel")));
    EXPECT_THAT(gap, testing::Not(testing::StartsWith("overlap:")));
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

}  // namespace
}  // namespace moesim::calibration

// Rows of a sweep in its report: all of them or every second, fourth, ... scenario, whole; numbers as
// numbers.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/moesim/study/sweep_summary.h"

namespace moesim::tools {
namespace {

using nlohmann::ordered_json;

const SweepTable& table() {
  static const SweepTable table(
      RowFormat::kCsv, {{"topk", models::FieldType::kInteger, ""}},
      {{.name = "dispatcher", .text = true}, {"time_us.value"}, {"breakdown_us.loss"}, {"winner"}});
  return table;
}

void add(SweepReport& report, const std::string& lines) {
  table().read(lines, [&](SweepRow&& row) { report.add(std::move(row)); });
}

ordered_json result_of(const SweepReport& report) {
  ordered_json result;
  report.add_to(result);
  return result;
}

TEST(SweepReport, CellsBecomeNumbersFlagsAndNothing) {
  SweepReport report(table());
  add(report, "scenario,topk,dispatcher,time_us.value,breakdown_us.loss,winner,error\n");
  add(report, "0,1,alltoall,12.5,0.000000,true,\n0,1,\"a,b\",,,,\"no, \"\"never\"\"\"\n");
  add(report, "{\"scenario\":0,\"topk\":2,\"dispatcher\":\"c\",\"time_us.value\":7.5,\"winner\":false}\n");
  const ordered_json result = result_of(report);
  EXPECT_EQ(result["scenarios"], 1);
  EXPECT_FALSE(result.contains("left_out"));
  // A part of the time that is zero everywhere says nothing.
  EXPECT_EQ(result["columns"].dump(), R"(["scenario","topk","dispatcher","time_us.value","winner","error"])");
  EXPECT_EQ(result["rows"][0].dump(), R"([0,1,"alltoall",12.5,true,null])");
  EXPECT_EQ(result["rows"][1].dump(), R"([0,1,"a,b",null,null,"no, \"never\""])");
  EXPECT_EQ(result["rows"][2].dump(), R"([0,2,"c",7.5,false,null])");
}

TEST(SweepReport, PathsHaveTheUnitsThatPeopleUse) {
  const SweepTable paths(RowFormat::kCsv,
                         {{"cluster.nic.bandwidth", models::FieldType::kBandwidth, ""},
                          {"topk", models::FieldType::kInteger, ""}},
                         {{.name = "dispatcher", .text = true}, {"time_us.value"}});
  SweepReport report(paths);
  paths.read(
      "scenario,cluster.nic.bandwidth,topk,dispatcher,time_us.value,error\n0,25000000000,1,alltoall,12.5,\n",
      [&](SweepRow&& row) { report.add(std::move(row)); });
  EXPECT_EQ(result_of(report)["units"].dump(),
            R"({"cluster.nic.bandwidth":{"name":"GB/s","one":1000000000.0}})");
}

TEST(SweepReport, OfALongSweepWholeScenariosAreKept) {
  SweepReport report(table(), 2000);
  for (int scenario = 0; scenario < 1000; ++scenario)
    for (const char* dispatcher : {"allgather", "alltoall"})
      add(report, std::to_string(scenario) + ",1," + dispatcher + ",1.0,0,true,\n");
  const ordered_json result = result_of(report);
  EXPECT_EQ(result["scenarios"], 1000);
  EXPECT_EQ(result["left_out"], "all but every 32th scenario");
  ASSERT_EQ(result["rows"].size(), 2u * 32);
  for (std::size_t i = 0; i < result["rows"].size(); ++i)
    EXPECT_EQ(result["rows"][i][0].get<double>(), 32.0 * static_cast<double>(i >> 1));
}

}  // namespace
}  // namespace moesim::tools

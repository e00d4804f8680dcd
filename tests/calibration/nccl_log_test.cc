#include "calibration/rows/nccl_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tests/message_of.h"

namespace moesim::calibration {
namespace {

using moesim::testing::message_of;
using sim::CollectiveOp;
using ::testing::HasSubstr;

Imported read(const std::string& text, const ImportFacts& facts = {}, const std::string& file = "x.log") {
  return read_nccl_log(text, file, facts);
}

std::string error_of(const std::string& text, const ImportFacts& facts = {},
                     const std::string& file = "x.log") {
  return message_of([&] { read(text, facts, file); });
}

TEST(NcclLog, NamesOfTestsAndLaunchers) {
  for (const char* name : {"allreduce", "AllReduce", "all_reduce", "all-reduce", "all_reduce_perf"})
    EXPECT_EQ(op_named(name), CollectiveOp::all_reduce) << name;
  EXPECT_EQ(op_named("alltoallv"), std::nullopt);
  EXPECT_EQ(op_named("reduce"), std::nullopt);
  std::string launcher;
  EXPECT_EQ(without_prefix("host:12:13 [0] NCCL INFO Launch mode Parallel", launcher),
            "host:12:13 [0] NCCL INFO Launch mode Parallel");
}

// The logs of others: each read as what it is, or refused for what it lacks.
TEST(NcclLog, LogsOfOthers) {
  const std::filesystem::path folder = std::filesystem::path(MOESIM_DATA_DIR) / "foreign/nccl";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no data set at " << folder;
  int read_whole = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string error = error_of(read_file(entry.path()), {}, name);
    if (name.starts_with("readme__oracle") && name.ends_with("_0.log")) {
      const Imported all = read(read_file(entry.path()), {}, name);
      EXPECT_EQ(all.rows.collectives.front().nodes, 2);
      EXPECT_EQ(all.rows.collectives.front().gpus_per_node, 8);
    } else if (name.starts_with("readme__")) {
      EXPECT_THAT(error, HasSubstr("a table without")) << name;
    } else if (name == "superbench__nccl_reduce.log") {
      EXPECT_THAT(error, HasSubstr("34 rows of 'reduce'"));
    } else {
      EXPECT_EQ(error, "") << name;
    }
    ++(error.empty() ? read_whole : refused);
  }
  EXPECT_GE(read_whole, 9);
  EXPECT_GE(refused, 1);
}

}  // namespace
}  // namespace moesim::calibration

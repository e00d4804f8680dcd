#include "calibration/training/step_constants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "calibration/rows/publication.h"
#include "models/hardware/cluster.h"

namespace moesim::calibration {
namespace {

constexpr const char* kBridge = "NVIDIA-NeMo/Megatron-Bridge docs/performance.md";

TEST(Publications, AreSourcesWithoutTableAndFile) {
  EXPECT_EQ(publication_of(kBridge), "NVIDIA-NeMo/Megatron-Bridge");
  EXPECT_EQ(publication_of("arXiv 2504.14960 (MoE Parallel Folding) Table 2"), "arXiv 2504.14960");
  EXPECT_EQ(publication_of("MLPerf Training v6.0 log"), "MLPerf");
  EXPECT_EQ(publication_of("me"), "me");
}

const StepConstant& constant(const std::string& name) {
  for (const StepConstant& one : step_constants())
    if (one.name == name) return one;
  throw std::out_of_range(name);
}

// Rows of B200 that take what a forecast with `power` takes: one of Megatron-Bridge, `others` of another
// publication.
std::vector<TrainingRow> rows(int others, double power) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "step_constants.csv").string();
  std::ofstream file(path);
  file << "gpu,gpus,model,framework,precision,gbs,mbs,seq_len,tp,pp,cp,vp,ep,etp,step_time_s,source\n";
  const auto row = [&](int batch, const std::string& source) {
    file << "B200-SXM6-180GB,8,OLMoE,in-house,BF16," << batch << ",4,4096,1,1,1,1,8,1,1," << source << "\n";
  };
  row(64, kBridge);
  for (int i = 0; i < others; ++i) row(64 << i, "somewhere else");
  file.close();
  std::vector<TrainingRow> all = read_training_table(path).rows;
  std::filesystem::remove(path);
  for (TrainingRow& one : all) {
    TrainingRow planted = one;
    constant("power of Blackwell").set(planted.scenario, power);
    one.measured_s = forecast_of(planted, 0).seconds();
  }
  return all;
}

double power_of(const TrainingRow& row) { return row.scenario.cluster->profile.device().power_slowdown; }

TEST(StepConstants, AreFittedToTheRowsOfOthers) {
  std::vector<TrainingRow> all = rows(3, 1.6);
  const double shipped = power_of(all.back());
  const std::vector<Refit> refits = leave_out_sources(all, {});
  ASSERT_EQ(refits.size(), 1u);
  EXPECT_EQ(refits[0].publication, "NVIDIA-NeMo/Megatron-Bridge");
  EXPECT_EQ(refits[0].rows, 3u);
  EXPECT_NEAR(refits[0].value, 1.6, 0.05);
  EXPECT_EQ(power_of(all.front()), refits[0].value);
  EXPECT_EQ(power_of(all.back()), shipped);  // its publication set nothing
}

TEST(StepConstants, WithFewRowsOfOthersAreNeutral) {
  std::vector<TrainingRow> all = rows(2, 1.6);
  const std::vector<Refit> refits = leave_out_sources(all, {});
  ASSERT_EQ(refits.size(), 1u);
  EXPECT_EQ(refits[0].rows, 0u);
  EXPECT_EQ(power_of(all.front()), 1);
}

TEST(StepConstants, ShippedValuesAreThoseOfProfilesAndChangeTheStep) {
  for (const StepConstant& one : step_constants()) {
    EXPECT_FALSE(one.publications.empty()) << one.name;
    EXPECT_NE(one.shipped, one.neutral) << one.name;
  }
  std::vector<TrainingRow> all = rows(1, 1.3);
  TrainingRow slower = all.front();
  constant("power of Blackwell").set(slower.scenario, 2);
  EXPECT_GT(forecast_of(slower, 0).seconds(), forecast_of(all.front(), 0).seconds());
}

}  // namespace
}  // namespace moesim::calibration

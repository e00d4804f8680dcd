#include "calibration/fit/fit_ffn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/expert_ffn.h"
#include "models/hardware/profile.h"
#include "tests/calibration/made_rows.h"

namespace moesim::calibration {
namespace {

using models::Profile;

std::vector<FfnRow> ffn_rows(const Profile& profile, const std::string& key) {
  const models::ExpertFfnModel truth(profile, key, models::DType::kBf16);
  Random random(2);
  std::vector<FfnRow> rows;
  for (const auto& [hidden, inter, experts] : {std::tuple{4096, 14336, 8}, {2048, 768, 64}})
    for (const char* routing : {"balanced", "power_law_1.2"})
      for (const std::int64_t tokens : {16, 64, 256, 1024, 4096, 16384}) {
        FfnRow row{of_a_law(), "a law", "", "bf16", routing, tokens, hidden, inter, 2, experts, 1, 1, 0};
        const auto draws = expert_rows(row);
        const models::FfnShape shape = ffn_shape(row, draws);
        for (const auto& draw : draws) row.seconds += truth.seconds(shape, draw);
        row.seconds *= noise(random) / static_cast<double>(draws.size());
        rows.push_back(row);
      }
  return rows;
}

TEST(FitFfn, ForecastsTheRowsOfALaw) {
  Profile profile = Profile::load("h100-sxm");
  const std::string key = "ffn/bf16@moe_torch_flow_cutlass";
  ASSERT_NE(profile.find(key), nullptr);
  const std::vector<FfnRow> rows = ffn_rows(profile, key);
  const models::ParameterSet set = fit_ffn(profile, rows, key, true);
  EXPECT_LT(set.residual, 0.03);
  EXPECT_GT(set.systematic, 0);  // shapes were left out
  EXPECT_EQ(set.range("tokens")->low, 16);
  EXPECT_EQ(set.range("tokens")->high, 16384);
  profile.set(key, set);
  for (const double error : ffn_residuals(profile, rows, key)) EXPECT_LT(std::abs(error), 0.1);
  EXPECT_TRUE(ffn_residuals(profile, {}, key).empty());
}

}  // namespace
}  // namespace moesim::calibration

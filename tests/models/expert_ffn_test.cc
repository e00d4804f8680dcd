#include "models/costs/expert_ffn.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moesim::models {
namespace {

const std::string kKey = "ffn/bf16";

// H100's limits and a law with these parameters beside those of its products.
Profile profile_of(const std::vector<std::pair<std::string, double>>& parameters) {
  Profile profile;
  profile.device() = Profile::load("h100-sxm").device();
  profile.device().hbm_bandwidth = 2e12;
  profile.device().hbm_efficiency = 0.5;  // 1 TB/s
  ParameterSet set;
  set.law = "expert-ffn";
  for (const auto& [name, value] : parameters) {
    set.names.push_back(name);
    set.values.push_back(value);
  }
  profile.set(kKey, set);
  return profile;
}

double products(const Profile& profile, const FfnShape& shape, const std::vector<std::int64_t>& rows) {
  const GemmModel gemm(profile, Clocks::kBurst, kKey);
  return gemm.grouped_seconds(rows, 2 * shape.inter, shape.hidden, DType::kBf16) +
         gemm.grouped_seconds(rows, shape.hidden, shape.inter, DType::kBf16);
}

// 100 tokens with two choices, hidden 1,000, experts of 500: 200 rows of 2 x (3,000 + 1,500) bytes through
// permute, activation and unpermute, 1.8 MB; 100 outputs of 4,000 bytes, 0.4 MB; 200 choices of 2 x (2,000 +
// 1,500), 1.4 MB.
TEST(ExpertFfn, KernelsAroundTheProductsByHand) {
  const FfnShape shape{100, 1000, 500, 2, 0};
  const std::vector<std::int64_t> rows = {120, 0, 50, 30};
  const auto around = [&](double row_pass, double token_pass, double slot_pass) {
    const Profile profile = profile_of(
        {{"overhead", 7e-6}, {"row_pass", row_pass}, {"token_pass", token_pass}, {"slot_pass", slot_pass}});
    return ExpertFfnModel(profile, kKey, DType::kBf16).seconds(shape, rows) - products(profile, shape, rows);
  };
  EXPECT_NEAR(around(0, 0, 0), 7e-6, 1e-12);
  EXPECT_NEAR(around(1, 0, 0), 7e-6 + 1.8e-6, 1e-12);
  EXPECT_NEAR(around(0, 1, 0), 7e-6 + 0.4e-6, 1e-12);
  EXPECT_NEAR(around(0, 0, 1), 7e-6 + 1.4e-6, 1e-12);
  EXPECT_NEAR(around(2, 3, 0.5), 7e-6 + 3.6e-6 + 1.2e-6 + 0.7e-6, 1e-12);
}

// Where half of the rows that belong elsewhere are multiplied all the same, 100 of them grow 200 rows to 250,
// spread like the own ones.
TEST(ExpertFfn, RowsOfOtherRanksTakePart) {
  const Profile profile =
      profile_of({{"overhead", 7e-6}, {"row_pass", 1}, {"token_pass", 1}, {"remote_share", 0.5}});
  const ExpertFfnModel model(profile, kKey, DType::kBf16);
  const FfnShape alone{150, 1024, 512, 2, 0}, shared{150, 1024, 512, 2, 100};
  EXPECT_DOUBLE_EQ(model.seconds(shared, std::vector<std::int64_t>{120, 80}),
                   model.seconds(alone, std::vector<std::int64_t>{150, 100}));
}

TEST(ExpertFfn, MoreRowsNeverTakeLess) {
  const Profile h100 = Profile::load("h100-sxm");
  const ExpertFfnModel model(h100, "ffn/bf16@moe_torch_flow_cutlass", DType::kBf16);
  double last = 0;
  for (std::int64_t rows = 1; rows <= 1 << 14; rows *= 2) {
    const double seconds = model.seconds({rows * 4, 4096, 14336, 2, 0}, std::vector<std::int64_t>(8, rows));
    EXPECT_GE(seconds, last) << rows;
    last = seconds;
  }
  // Never faster than the arithmetic at the peak: 6 FLOPs for each of rows, hidden and intermediate size.
  EXPECT_GE(last, 6.0 * (8 << 14) * 4096 * 14336 /
                      h100.device().peak_flops[static_cast<std::size_t>(DType::kBf16)]);
}

}  // namespace
}  // namespace moesim::models

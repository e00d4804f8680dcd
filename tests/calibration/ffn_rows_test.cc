#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/input_error.h"
#include "calibration/rows/row_laws.h"

namespace moesim::calibration {
namespace {

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

// 8 experts, top-2: the second choice lies four experts on. Three tokens take 0 4, 1 5, 2 6 (tokens are fewer
// than the stride, so spread over it: 0, 4/3, 8/3); sixteen fill two turns of all.
TEST(FfnRows, BalancedRowsByHand) {
  FfnRow row;
  row.experts = 8;
  row.topk = 2;
  row.ep = 1;
  row.routing = "balanced";
  row.tokens = 3;
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{{1, 1, 1, 0, 1, 1, 1, 0}}));
  row.tokens = 5;
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{{2, 1, 1, 1, 2, 1, 1, 1}}));
  row.tokens = 16;
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{std::vector<std::int64_t>(8, 4)}));
  row.tokens = 5;
  row.ep = 4;  // of four ranks with two experts each the first of the busiest
  EXPECT_EQ(expert_rows(row), (std::vector<std::vector<std::int64_t>>{{2, 1}}));
}

// Under EP a token with a choice here comes with its other choice, too: 60 rows are of at most 60 tokens,
// whose choices are 120.
TEST(FfnRows, ChoicesElsewhereComeAlong) {
  FfnRow row;
  row.tokens = 100;
  row.topk = 2;
  row.experts = 8;
  row.hidden = 4096;
  row.inter = 1536;
  row.tp = 2;
  row.ep = 4;
  const models::FfnShape shape = ffn_shape(row, {{40, 20}, {10, 30}});
  EXPECT_EQ(shape.inter, 768);
  EXPECT_DOUBLE_EQ(shape.remote_rows, 50);  // the mean of 60 x 2 - 60 and 40 x 2 - 40
  // Never more tokens than there are: 150 rows are of all 100 tokens, whose choices are 200.
  EXPECT_DOUBLE_EQ(ffn_shape(row, {{100, 50}}).remote_rows, 50);
  row.ep = 1;
  EXPECT_DOUBLE_EQ(ffn_shape(row, {{40, 20}}).remote_rows, 0);
}

}  // namespace
}  // namespace moesim::calibration

#include "models/routing/scaling_mode.h"

#include <gtest/gtest.h>

#include "base/input_error.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

std::vector<ScalingRank> sent_by_example_1() {
  const Routing routing = example_1();
  std::vector<ScalingRank> ranks(4);
  for (int r = 0; r < 4; ++r) ranks[r].sent.assign(routing.counts(r).begin(), routing.counts(r).end());
  return ranks;
}

TEST(ScalingMode, RowsOfAnExpertRank) {
  std::vector<ScalingRank> ranks = sent_by_example_1();
  EXPECT_EQ(scaling_rows(ranks, 0, 8, {}).rows, (Numbers{19, 11}));
  ranks[1].received = {9, 5};
  EXPECT_EQ(scaling_rows(ranks, 1, 8, {}).rows, (Numbers{9, 5}));
  EXPECT_EQ(scaling_rows(ranks, 1, 8, {}).warning, "");
}

TEST(ScalingMode, FallbackSaysSo) {
  const ScalingRows rows = scaling_rows(std::vector<ScalingRank>(4), 1, 8, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(rows.rows, (Numbers{3, 4}));
  EXPECT_NE(rows.warning.find("not representative"), std::string::npos);
}

TEST(ScalingMode, SentIsNotReceived) {
  std::vector<ScalingRank> ranks = sent_by_example_1();
  ranks[0].received = {5, 3};  // what rank 0 sends to its own experts
  EXPECT_THROW(scaling_rows(ranks, 0, 8, {}), InputError);
  ranks[0].received = {5, 3, 2};
  EXPECT_THROW(scaling_rows(ranks, 0, 8, {}), InputError);
  EXPECT_THROW(scaling_rows(ranks, 4, 8, {}), InputError);
  EXPECT_THROW(scaling_rows(std::vector<ScalingRank>(4), 0, 8, {1, 2}), InputError);
}

}  // namespace
}  // namespace moesim::models::testing

// The split matrix: margins exact, spread as evenly as whole rows allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

#include "base/input_error.h"
#include "replay/recording/recorded_routing.h"

namespace moesim::replay {
namespace {

using ::testing::ElementsAre;

// Column sums that add up to the rows sent: the rows are dealt out to random ranks with random favourites.
std::vector<std::int64_t> deal(std::int64_t total, std::size_t n) {
  std::vector<std::int64_t> weights;
  for (std::size_t j = 0; j < n; ++j) weights.push_back(*rc::gen::inRange<std::int64_t>(0, 50));
  const std::int64_t sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::vector<std::int64_t> out(n, 0);
  if (sum == 0) {
    out[0] = total;
    return out;
  }
  std::int64_t left = total;
  for (std::size_t j = 0; j < n; ++j) left -= out[j] = total * weights[j] / sum;
  out[*rc::gen::inRange<std::size_t>(0, n)] += left;
  return out;
}

RC_GTEST_PROP(RoutingRecovery, MarginsAreExactAndRowsSpreadLikeTheColumns, ()) {
  const auto n = *rc::gen::inRange<std::size_t>(1, 33);
  std::vector<std::int64_t> sent;
  for (std::size_t i = 0; i < n; ++i) sent.push_back(*rc::gen::inRange<std::int64_t>(0, 5000));
  const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
  const std::vector<std::int64_t> received = deal(total, n);
  const auto rows = recover_split_matrix(sent, received);
  RC_ASSERT(rows.size() == n * n);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t row = 0, column = 0;
    for (std::size_t j = 0; j < n; ++j) {
      row += rows[i * n + j];
      column += rows[j * n + i];
      const double independent =
          total == 0
              ? 0.0
              : static_cast<double>(sent[i]) * static_cast<double>(received[j]) / static_cast<double>(total);
      // Rounding of each row, and what the rows before left over for it.
      RC_ASSERT(std::abs(rows[i * n + j] - independent) <= static_cast<double>(n) + 1);
    }
    RC_ASSERT(row == sent[i]);
    RC_ASSERT(column == received[i]);
  }
}

TEST(RoutingRecovery, DividesEvenly) {
  EXPECT_THAT(recover_split_matrix(std::vector<std::int64_t>{8, 8}, std::vector<std::int64_t>{12, 4}),
              ElementsAre(6, 2, 6, 2));
  EXPECT_THAT(recover_split_matrix(std::vector<std::int64_t>{6, 2}, std::vector<std::int64_t>{0, 8}),
              ElementsAre(0, 6, 0, 2));
  EXPECT_THAT(recover_split_matrix(std::vector<std::int64_t>{0, 0}, std::vector<std::int64_t>{0, 0}),
              ElementsAre(0, 0, 0, 0));
}

TEST(RoutingRecovery, RefusesWhatDoesNotAddUp) {
  EXPECT_THROW(recover_split_matrix(std::vector<std::int64_t>{8, 8}, std::vector<std::int64_t>{12, 5}),
               InputError);
  EXPECT_THROW(recover_split_matrix(std::vector<std::int64_t>{8}, std::vector<std::int64_t>{4, 4}),
               InputError);
  const std::vector<std::int64_t> huge{std::int64_t{1} << 31};
  EXPECT_THROW(recover_split_matrix(huge, huge), InputError);
}

}  // namespace
}  // namespace moesim::replay

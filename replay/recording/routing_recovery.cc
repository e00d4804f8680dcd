#include "replay/recording/routing_recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/input_error.h"

namespace moesim::replay {

std::vector<std::uint32_t> recover_split_matrix(std::span<const std::int64_t> sent,
                                                std::span<const std::int64_t> received) {
  const std::size_t n = sent.size();
  const std::int64_t total = std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
  const std::int64_t arrived = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  if (n != received.size() || total != arrived)
    throw InputError(SourcePlace{}, fmt::format("{} rows received by {} ranks", arrived, received.size()),
                     fmt::format("the {} rows that {} ranks sent", total, n));
  if (total >= std::int64_t{1} << 31)
    throw InputError(SourcePlace{}, fmt::format("{} rows in one all-to-all", total), "fewer than 2^31");
  std::vector<std::uint32_t> rows(n * n, 0);
  std::vector<std::int64_t> missing(received.begin(), received.end());
  std::int64_t missing_total = total;
  std::vector<std::size_t> order(n);
  std::vector<std::int64_t> remainder(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (missing_total == 0) break;
    std::int64_t left = sent[i];
    for (std::size_t j = 0; j < n; ++j) {
      const std::int64_t share = sent[i] * missing[j];  // both below 2^31
      const std::int64_t whole = share / missing_total;
      remainder[j] = share % missing_total;
      rows[i * n + j] = static_cast<std::uint32_t>(whole);
      left -= whole;
    }
    // Largest remainders take the rows lost in rounding down; a column with a remainder has room for one.
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
    for (std::size_t k = 0; left > 0; ++k, --left) ++rows[i * n + order[k]];
    for (std::size_t j = 0; j < n; ++j) missing[j] -= rows[i * n + j];
    missing_total -= sent[i];
  }
  return rows;
}

}  // namespace moesim::replay

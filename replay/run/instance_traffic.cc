#include "replay/run/instance_traffic.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "replay/recording/routing_recovery.h"

namespace moesim::replay {

namespace {

std::uint64_t bytes_in(const Instance& instance, std::size_t member) {
  return static_cast<std::uint64_t>(instance.rows[member]) * instance.row_bytes;
}

bool all_equal(const std::vector<std::int64_t>& values) {
  return std::ranges::adjacent_find(values, std::ranges::not_equal_to{}) == values.end();
}

}  // namespace

sim::TrafficRef InstanceTraffic::of(const Instance& instance, sim::TaskGraphBuilder& builder) {
  const std::uint64_t first = bytes_in(instance, 0);
  switch (instance.op) {
    case sim::CollectiveOp::all_to_all:
      return exchange(instance, builder);
    case sim::CollectiveOp::reduce_scatter:
      return sim::uniform_traffic(first / instance.members.size());  // the piece of a rank
    case sim::CollectiveOp::all_gather: {
      if (all_equal(instance.rows)) return sim::uniform_traffic(first);
      std::vector<std::uint64_t> pieces;
      for (std::size_t m = 0; m < instance.rows.size(); ++m) pieces.push_back(bytes_in(instance, m));
      return sim::pieces_traffic(builder.add_pieces(pieces));
    }
    default:
      return sim::uniform_traffic(first);
  }
}

sim::TrafficRef InstanceTraffic::exchange(const Instance& instance, sim::TaskGraphBuilder& builder) {
  const std::size_t g = instance.members.size();
  const auto total = [](const std::vector<std::int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  };
  const std::int64_t all = total(instance.rows);
  const bool known = instance.out_rows.size() == g && total(instance.out_rows) == all &&
                     all <= std::numeric_limits<std::uint32_t>::max();
  if (!known && all_equal(instance.rows)) return sim::uniform_traffic(bytes_in(instance, 0));
  const auto [at, added] = matrices_.try_emplace(
      {instance.rows, known ? instance.out_rows : std::vector<std::int64_t>{}}, sim::MatrixId{});
  if (added) {
    std::vector<std::uint32_t> rows;
    if (known)
      rows = recover_split_matrix(instance.rows, instance.out_rows);
    else
      for (const std::int64_t mine : instance.rows)
        rows.insert(rows.end(), g, static_cast<std::uint32_t>(mine / static_cast<std::int64_t>(g)));
    at->second = builder.add_matrix(g, rows);
  }
  return sim::matrix_traffic(at->second, instance.row_bytes);
}

}  // namespace moesim::replay

#include "models/routing/scaling_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/input_error.h"

namespace moesim::models {

namespace {

std::int64_t sum(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

ScalingRows scaling_rows(const std::vector<ScalingRank>& ranks, int exp_rank, std::int64_t experts,
                         const std::vector<std::int64_t>& own_histogram) {
  const auto ep = static_cast<std::int64_t>(ranks.size());
  if (ep < 1 || experts % ep != 0 || exp_rank < 0 || exp_rank >= ep)
    throw InputError(fmt::format(
        "scaling mode: found expert rank {} of {} for {} experts, expected a rank of a group that "
        "divides them",
        exp_rank, ep, experts));
  const auto local = static_cast<std::size_t>(experts / ep),
             first = local * static_cast<std::size_t>(exp_rank);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].sent.empty() && static_cast<std::int64_t>(ranks[r].sent.size()) != experts)
      throw InputError(
          fmt::format("scaling mode: found {} sent counts on expert rank {}, expected {} (one per expert)",
                      ranks[r].sent.size(), r, experts));
    if (!ranks[r].received.empty() && ranks[r].received.size() != local)
      throw InputError(
          fmt::format("scaling mode: found {} received counts on expert rank {}, expected {} (one per local "
                      "expert)",
                      ranks[r].received.size(), r, local));
  }
  const bool all_sent =
      std::all_of(ranks.begin(), ranks.end(), [](const ScalingRank& r) { return !r.sent.empty(); });
  std::vector<std::int64_t> from_senders(local, 0);
  if (all_sent)
    for (const ScalingRank& rank : ranks)
      for (std::size_t e = 0; e < local; ++e) from_senders[e] += rank.sent[first + e];
  const ScalingRank& own = ranks[static_cast<std::size_t>(exp_rank)];
  if (!own.received.empty()) {
    const bool own_slice =
        !own.sent.empty() && std::equal(own.received.begin(), own.received.end(),
                                        own.sent.begin() + static_cast<std::ptrdiff_t>(first));
    if (ep > 1 && own_slice && sum(own.received) > 0 && !(all_sent && from_senders == own.received))
      throw InputError(
          fmt::format("scaling mode: found received counts of expert rank {} that are the slice of what it "
                      "sends itself, expected the sum over all {} senders",
                      exp_rank, ep));
    return {own.received, ""};
  }
  if (all_sent) return {from_senders, ""};
  if (static_cast<std::int64_t>(own_histogram.size()) != experts)
    throw InputError(
        fmt::format("scaling mode: found no dispatching results for expert rank {} and a histogram of {} "
                    "experts, expected one of {}",
                    exp_rank, own_histogram.size(), experts));
  const auto begin = own_histogram.begin() + static_cast<std::ptrdiff_t>(first);
  return {
      {begin, begin + static_cast<std::ptrdiff_t>(local)},
      fmt::format(
          "expert rank {}: no dispatching results, its own histogram is taken; routing not representative",
          exp_rank)};
}

}  // namespace moesim::models

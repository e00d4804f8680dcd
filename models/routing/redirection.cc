#include "models/routing/redirection.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace moesim::models {

namespace {

// Rows of an expert, in rank order, that one rank computes.
struct Share {
  std::size_t rank = 0;
  std::int64_t rows = 0;
};

// Returns for every expert the rows that each rank computes.
std::vector<std::vector<Share>> shares_of(const std::vector<std::int64_t>& totals, std::size_t ranks,
                                          const RedirectionLimits& limits) {
  const std::size_t local = totals.size() / ranks;
  std::vector<std::int64_t> load(ranks, 0);  // of assigned rows, and of its own experts not yet assigned
  for (std::size_t e = 0; e < totals.size(); ++e) load[e / local] += totals[e];
  const std::int64_t all = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  const double mean = static_cast<double>(all) / static_cast<double>(ranks);
  const auto most = static_cast<std::int64_t>(limits.limit * mean);
  const bool moves =
      static_cast<double>(*std::max_element(load.begin(), load.end())) > limits.threshold * mean;
  std::vector<std::size_t> order(totals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return totals[a] > totals[b]; });
  std::vector<std::vector<Share>> shares(totals.size());
  for (const std::size_t e : order) {
    const std::size_t home = e / local;
    load[home] -= totals[e];
    std::int64_t stays = moves ? std::clamp<std::int64_t>(most - load[home], 0, totals[e]) : totals[e];
    std::int64_t left = totals[e] - stays;
    std::vector<Share> elsewhere;
    while (left > 0) {
      std::size_t helper = ranks;
      for (std::size_t r = 0; r < ranks; ++r)
        if (r != home && (helper == ranks || load[r] < load[helper])) helper = r;
      const std::int64_t rows = helper == ranks ? 0 : std::min(left, most - load[helper]);
      if (rows < std::max<std::int64_t>(1, limits.min_rows)) break;
      elsewhere.push_back({helper, rows});
      load[helper] += rows;
      left -= rows;
    }
    stays += left;
    load[home] += stays;
    shares[e].push_back({home, stays});
    shares[e].insert(shares[e].end(), elsewhere.begin(), elsewhere.end());
  }
  return shares;
}

}  // namespace

Redirection least_loaded(const Routing& routing, int ranks, const RedirectionLimits& limits) {
  check(routing.ranks() == ranks && routing.experts() % ranks == 0, "whole experts on every rank");
  const auto n = static_cast<std::size_t>(ranks), experts = static_cast<std::size_t>(routing.experts()),
             local = experts / n;
  const std::vector<std::vector<Share>> shares = shares_of(routing.expert_totals(), n, limits);
  Redirection out;
  out.copies.assign(n * n, 0);
  out.foreign.assign(n, 0);
  for (std::size_t e = 0; e < experts; ++e)
    for (std::size_t i = 1; i < shares[e].size(); ++i) {
      ++out.copies[e / local * n + shares[e][i].rank];
      ++out.foreign[shares[e][i].rank];
    }
  const std::size_t more =
      static_cast<std::size_t>(*std::max_element(out.foreign.begin(), out.foreign.end()));
  out.slots = static_cast<int>(local + more);
  const std::size_t slots = local + more;
  // The slots of an expert with the end of their rows.
  struct Slot {
    std::size_t slot = 0;
    std::int64_t end = 0;
  };
  std::vector<std::vector<Slot>> slots_of(experts);
  std::vector<std::size_t> next(n, local);
  for (std::size_t e = 0; e < experts; ++e) {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < shares[e].size(); ++i) {
      const std::size_t rank = shares[e][i].rank, at = i == 0 ? e % local : next[rank]++;
      slots_of[e].push_back({rank * slots + at, end += shares[e][i].rows});
    }
  }
  std::vector<std::int64_t> place(experts, 0);  // rows of an expert so far
  const auto all = static_cast<int>(n * slots);
  if (routing.has_choices()) {
    std::vector<std::vector<std::int32_t>> choices;
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::int32_t> mapped(routing.choices(r).begin(), routing.choices(r).end());
      for (std::int32_t& e : mapped) {
        if (e < 0) continue;
        const auto expert = static_cast<std::size_t>(e);
        const std::int64_t row = place[expert]++;
        const auto slot = std::find_if(slots_of[expert].begin(), slots_of[expert].end(),
                                       [&](const Slot& s) { return row < s.end; });
        e = static_cast<std::int32_t>(slot->slot);
      }
      choices.push_back(std::move(mapped));
    }
    out.routing = Routing::from_choices(all, routing.topk(), std::move(choices));
    return out;
  }
  std::vector<std::int64_t> tokens, counts(n * n * slots, 0);
  for (int r = 0; r < ranks; ++r) {
    tokens.push_back(routing.tokens(r));
    for (std::size_t e = 0; e < experts; ++e) {
      const std::int64_t begin = place[e], end = begin + routing.count(r, static_cast<int>(e));
      place[e] = end;
      std::int64_t from = 0;
      for (const Slot& s : slots_of[e]) {
        counts[static_cast<std::size_t>(r) * n * slots + s.slot] +=
            std::max<std::int64_t>(0, std::min(end, s.end) - std::max(begin, from));
        from = s.end;
      }
    }
  }
  out.routing = Routing::from_counts(ranks, all, routing.topk(), std::move(tokens), std::move(counts));
  return out;
}

}  // namespace moesim::models

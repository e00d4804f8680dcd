#include "models/routing/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {

namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

void check_sizes(std::int64_t ranks, std::int64_t experts, std::int64_t topk) {
  if (ranks < 1 || ranks > (1 << 20))
    throw InputError(fmt::format("routing: found {} ranks, expected 1 to 1048576", ranks));
  if (experts < 1 || experts > (1 << 20))
    throw InputError(fmt::format("routing: found {} experts, expected 1 to 1048576", experts));
  if (topk < 1 || topk > experts)
    throw InputError(
        fmt::format("routing: found top-{} of {} experts, expected 1 to {}", topk, experts, experts));
  if (ranks * experts > (std::int64_t{1} << 28))
    throw InputError(
        fmt::format("routing: found {} ranks x {} experts, expected at most 2^28 counts", ranks, experts));
}

}  // namespace

Routing Routing::from_counts(int ranks, int experts, int topk, std::vector<std::int64_t> tokens,
                             std::vector<std::int64_t> counts) {
  check_sizes(ranks, experts, topk);
  check(tokens.size() == std::size_t(ranks), "a token count per rank");
  check(counts.size() == std::size_t(ranks) * experts, "a row count per rank and expert");
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t t = tokens[r];
    if (t < 0 || t > kMaxTokens)
      throw InputError(fmt::format("routing: found {} tokens on rank {}, expected 0 to 2^40", t, r));
    const auto row = std::span(counts).subspan(std::size_t(r) * experts, experts);
    std::int64_t sum = 0, outside = 0;  // its sign is set where a count is
    for (const std::int64_t n : row) sum += n, outside |= n | (t - n);
    if (outside < 0) {
      const auto e = std::find_if(row.begin(), row.end(), [&](std::int64_t n) { return n < 0 || n > t; });
      throw InputError(fmt::format(
          "routing: found {} rows from rank {} to expert {}, expected 0 to its {} tokens (a token "
          "meets an expert once)",
          *e, r, e - row.begin(), t));
    }
    if (sum > t * topk)
      throw InputError(
          fmt::format("routing: found {} rows on rank {}, expected at most {} tokens x top-{} = {}", sum, r,
                      t, topk, t * topk));
  }
  Routing routing;
  routing.ranks_ = ranks;
  routing.experts_ = experts;
  routing.topk_ = topk;
  routing.tokens_ = std::move(tokens);
  routing.counts_ = std::move(counts);
  return routing;
}

Routing Routing::from_choices(int experts, int topk, std::vector<std::vector<std::int32_t>> choices) {
  check_sizes(static_cast<std::int64_t>(choices.size()), experts, topk);
  Routing routing;
  routing.ranks_ = static_cast<int>(choices.size());
  routing.experts_ = experts;
  routing.topk_ = topk;
  routing.counts_.assign(std::size_t(routing.ranks_) * experts, 0);
  for (int r = 0; r < routing.ranks_; ++r) {
    const std::vector<std::int32_t>& c = choices[r];
    check(c.size() % topk == 0, "choices are [tokens][topk]");
    const std::int64_t tokens = static_cast<std::int64_t>(c.size()) / topk;
    routing.tokens_.push_back(tokens);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (int k = 0; k < topk; ++k) {
        const std::int32_t e = c[t * topk + k];
        if (e == -1) continue;
        if (e < -1 || e >= experts)
          throw InputError(fmt::format("routing: found expert {} for token {} of rank {}, expected 0 to {}",
                                       e, t, r, experts - 1));
        for (int j = 0; j < k; ++j)
          if (c[t * topk + j] == e)
            throw InputError(
                fmt::format("routing: found expert {} twice for token {} of rank {}, expected different "
                            "experts",
                            e, t, r));
        ++routing.counts_[std::size_t(r) * experts + e];
      }
  }
  routing.choices_ = std::move(choices);
  return routing;
}

std::int64_t Routing::max_tokens() const { return *std::max_element(tokens_.begin(), tokens_.end()); }

bool Routing::equal_tokens() const {
  return std::all_of(tokens_.begin(), tokens_.end(), [&](std::int64_t t) { return t == tokens_.front(); });
}

std::int64_t Routing::rows(int rank) const {
  const auto c = counts(rank);
  return std::accumulate(c.begin(), c.end(), std::int64_t{0});
}

std::vector<std::int64_t> Routing::expert_totals() const {
  std::vector<std::int64_t> totals(experts_);
  for (int r = 0; r < ranks_; ++r)
    for (int e = 0; e < experts_; ++e) totals[e] += count(r, e);
  return totals;
}

std::vector<std::int64_t> Routing::split_matrix(int blocks) const {
  check(blocks >= 1 && experts_ % blocks == 0, "experts are dealt out in equal blocks");
  const int local = experts_ / blocks;
  std::vector<std::int64_t> split(std::size_t(ranks_) * blocks);
  for (int r = 0; r < ranks_; ++r) {
    const std::int64_t* n = counts_.data() + std::size_t(r) * experts_;
    for (int d = 0; d < blocks; ++d, n += local)
      split[std::size_t(r) * blocks + d] = std::accumulate(n, n + local, std::int64_t{0});
  }
  return split;
}

std::vector<std::int64_t> Routing::dedup_matrix(int blocks) const {
  check(blocks >= 1 && experts_ % blocks == 0, "experts are dealt out in equal blocks");
  const int local = experts_ / blocks;
  std::vector<std::int64_t> dedup(std::size_t(ranks_) * blocks);
  if (has_choices()) {
    std::vector<std::int64_t> seen(blocks, -1);
    for (int r = 0; r < ranks_; ++r) {
      std::fill(seen.begin(), seen.end(), -1);
      for (std::int64_t t = 0; t < tokens_[r]; ++t)
        for (int k = 0; k < topk_; ++k) {
          const std::int32_t e = choices_[r][t * topk_ + k];
          if (e < 0 || seen[e / local] == t) continue;
          seen[e / local] = t;
          ++dedup[std::size_t(r) * blocks + e / local];
        }
    }
    return dedup;
  }
  if (round_robin_) {
    // The choices repeat after this many tokens.
    const std::int64_t period = experts_ / std::gcd(experts_, topk_);
    std::vector<std::int64_t> seen(blocks, -1);
    for (int r = 0; r < ranks_; ++r) {
      std::fill(seen.begin(), seen.end(), -1);
      for (std::int64_t t = 0; t < std::min(period, tokens_[r]); ++t) {
        const std::int64_t times = (tokens_[r] - t + period - 1) / period;
        for (int k = 0; k < topk_; ++k) {
          const auto block = static_cast<std::size_t>((t * topk_ + k) % experts_ / local);
          if (seen[block] == t) continue;
          seen[block] = t;
          dedup[std::size_t(r) * blocks + block] += times;
        }
      }
    }
    return dedup;
  }
  const std::vector<std::int64_t> split = split_matrix(blocks);
  const bool limited = groups_ > 1 && blocks % groups_ == 0 && experts_ * topk_groups_ / groups_ >= topk_;
  for (int r = 0; r < ranks_; ++r) {
    const std::int64_t tokens = tokens_[r];
    const double slots = static_cast<double>(tokens) * topk_;
    for (int d = 0; d < blocks; ++d) {
      const std::int64_t rows = split[std::size_t(r) * blocks + d];
      if (rows == 0) continue;
      // Hypergeometric probability that none of K different experts lies in the block, with the block's share
      // of the rows instead of its share of the experts: C(E-E_l,K)/C(E,K) when these are equal. A limit to M
      // of G groups leaves E*M/G experts to choose from, for the M/G of the tokens that may use the block's
      // group.
      const double share = static_cast<double>(rows) / slots;
      const double allowed = limited ? static_cast<double>(topk_groups_) / groups_ : 1;
      const double open = experts_ * allowed;
      double none = 1;
      for (int i = 0; i < topk_ && i < open; ++i) none *= std::max(0.0, 1 - share * experts_ / (open - i));
      const double hit = allowed * (1 - none);
      const auto expected = static_cast<std::int64_t>(std::llround(static_cast<double>(tokens) * hit));
      const std::int64_t per_token = std::min(topk_, local);
      dedup[std::size_t(r) * blocks + d] =
          std::clamp(expected, (rows + per_token - 1) / per_token, std::min(rows, tokens));
    }
  }
  return dedup;
}

Routing Routing::limited_to(const std::vector<std::int64_t>& capacity) const {
  check(capacity.size() == std::size_t(ranks_), "a capacity per rank");
  Routing limited = *this;
  if (has_choices()) {
    std::vector<std::int64_t> taken(experts_);
    for (int r = 0; r < ranks_; ++r) {
      std::fill(taken.begin(), taken.end(), 0);
      for (std::int32_t& e : limited.choices_[r])
        if (e >= 0 && ++taken[e] > capacity[r]) e = -1;
    }
  }
  for (int r = 0; r < ranks_; ++r)
    for (int e = 0; e < experts_; ++e) {
      std::int64_t& n = limited.counts_[std::size_t(r) * experts_ + e];
      if (n > capacity[r]) n = capacity[r], limited.round_robin_ = false;
    }
  return limited;
}

Routing Routing::replicated() const {
  Routing same = *this;
  for (int r = 1; r < ranks_; ++r) {
    same.tokens_[r] = tokens_[0];
    std::copy_n(counts_.begin(), experts_, same.counts_.begin() + std::ptrdiff_t(r) * experts_);
    if (has_choices()) same.choices_[r] = choices_[0];
  }
  return same;
}

Routing Routing::padded_to(std::int64_t multiple) const {
  Routing padded = *this;
  padded.choices_.clear();
  padded.round_robin_ = false;
  for (std::int64_t& n : padded.counts_) n = (n + multiple - 1) / multiple * multiple;
  return padded;
}

double Routing::expert_skew() const {
  const std::vector<std::int64_t> totals = expert_totals();
  const auto sum = static_cast<double>(std::accumulate(totals.begin(), totals.end(), std::int64_t{0}));
  if (sum == 0) return 1;
  return static_cast<double>(*std::max_element(totals.begin(), totals.end())) * experts_ / sum;
}

double Routing::rank_imbalance(int blocks) const {
  blocks = std::min(blocks, experts_);
  const std::vector<std::int64_t> split = split_matrix(blocks);
  std::vector<std::int64_t> received(blocks);
  for (std::size_t i = 0; i < split.size(); ++i) received[i % blocks] += split[i];
  const auto sum = static_cast<double>(std::accumulate(received.begin(), received.end(), std::int64_t{0}));
  if (sum == 0) return 1;
  return static_cast<double>(*std::max_element(received.begin(), received.end())) * blocks / sum;
}

double gini_of(std::vector<double> load) {
  std::sort(load.begin(), load.end());
  const double sum = std::accumulate(load.begin(), load.end(), 0.0);
  if (sum <= 0) return 0;
  const auto n = static_cast<double>(load.size());
  double weighted = 0;
  for (std::size_t i = 0; i < load.size(); ++i)
    weighted += (2.0 * (static_cast<double>(i) + 1) - n - 1) * load[i];
  return weighted / (n * sum);
}

double Routing::gini() const {
  const std::vector<std::int64_t> totals = expert_totals();
  return gini_of({totals.begin(), totals.end()});
}

}  // namespace moesim::models

#include "models/answers/decision.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/statistics.h"
#include "models/answers/answer.h"
#include "models/recipes/framework_recipe.h"

namespace moesim::models {

std::vector<double> smallest_shares(std::span<const std::vector<double>> times) {
  const std::size_t draws = times.front().size();
  const auto counted = static_cast<double>(draws + 1);
  std::vector<double> shares(times.size(), 1 / static_cast<double>(times.size()));
  for (std::size_t d = 0; d < draws; ++d) {
    double best = times.front()[d];
    for (const std::vector<double>& one : times) best = std::min(best, one[d]);
    double as_small = 0;
    for (const std::vector<double>& one : times) as_small += one[d] == best ? 1 : 0;
    for (std::size_t i = 0; i < times.size(); ++i)
      if (times[i][d] == best) shares[i] += 1 / as_small;
  }
  for (double& share : shares) share = std::min(1.0, share / counted);
  return shares;
}

std::vector<int> tie_groups(std::span<const double> values, std::span<const std::vector<double>> times,
                            double sure) {
  std::vector<int> groups(values.size(), 0);
  std::size_t first = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const bool drawn = !times[first].empty() && times[first].size() == times[i].size();
    const bool apart =
        drawn ? smallest_shares(std::array{times[first], times[i]})[0] >= sure : values[i] > values[first];
    groups[i] = groups[i - 1] + (apart ? 1 : 0);
    if (apart) first = i;
  }
  return groups;
}

namespace {

// Returns the competing answers, fastest first.
std::vector<std::size_t> candidates(const std::vector<Answer>& answers) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (answers[i].ranked()) order.push_back(i);
  if (order.empty())
    for (std::size_t i = 0; i < answers.size(); ++i)
      if (answers[i].ok()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return answers[a].time_us.value < answers[b].time_us.value;
  });
  return order;
}

// Sets how often each is the fastest and its loss, over the draws.
void weigh(Decision& d, const std::vector<Answer>& answers, const std::vector<std::size_t>& order) {
  std::vector<std::vector<double>> times;
  times.reserve(order.size());
  for (const std::size_t i : order) times.push_back(answers[i].draws_us);
  const std::vector<double> shares = smallest_shares(times);
  d.fastest.assign(answers.size(), 0);
  d.losses.assign(answers.size(), {});
  std::vector<double> lost(times.front().size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    for (std::size_t draw = 0; draw < lost.size(); ++draw) {
      double best = times[k][draw];
      for (const std::vector<double>& one : times) best = std::min(best, one[draw]);
      lost[draw] = times[k][draw] / best - 1;
    }
    const double expected = std::accumulate(lost.begin(), lost.end(), 0.0) / static_cast<double>(lost.size());
    d.fastest[order[k]] = shares[k];
    // With few heavy losses the quantile can fall below the mean, which would look contradictory.
    d.losses[order[k]] = {expected, std::max(expected, quantile_of(lost, Decision::kSure))};
  }
}

void judge(Decision& d, const std::vector<Answer>& answers, const std::vector<std::size_t>& order) {
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  const double time = answers[index(d.winner)].time_us.value;
  const std::optional<double> p = d.probability();
  const std::optional<Loss> loss = d.loss();
  d.verdict = p && *p >= Decision::kSure             ? Decision::Verdict::kClear
              : loss && loss->at_most <= d.tolerance ? Decision::Verdict::kSafe
                                                     : Decision::Verdict::kOpen;
  d.alike = {d.winner};
  if (d.answered() || !loss)
    for (const std::size_t i : order)
      if (static_cast<int>(i) != d.winner &&
          std::abs(answers[i].time_us.value / time - 1) <= Decision::kAlike &&
          (!loss || d.losses[i].at_most <= d.tolerance))
        d.alike.push_back(static_cast<int>(i));
  if (d.verdict != Decision::Verdict::kOpen || !p) return;
  std::vector<std::size_t> others;
  for (const std::size_t i : order)
    if (static_cast<int>(i) != d.winner) others.push_back(i);
  std::stable_sort(others.begin(), others.end(),
                   [&](std::size_t a, std::size_t b) { return d.fastest[a] > d.fastest[b]; });
  d.among = {d.winner};
  double known = *p;
  for (const std::size_t i : others) {
    if (known >= Decision::kSure && d.among.size() > 1) break;
    d.among.push_back(static_cast<int>(i));
    known += d.fastest[i];
  }
}

}  // namespace

std::optional<double> Decision::probability_of(int index) const {
  if (index < 0 || fastest.empty()) return std::nullopt;
  return fastest[static_cast<std::size_t>(index)];
}

std::optional<Loss> Decision::loss() const {
  if (winner < 0 || losses.empty()) return std::nullopt;
  return losses[static_cast<std::size_t>(winner)];
}

std::string_view name_of(Decision::Verdict verdict) {
  static constexpr std::string_view kNames[] = {"clear", "safe", "open", "only_one", "none_fits", "none"};
  return kNames[static_cast<std::size_t>(verdict)];
}

void rank(std::vector<Answer>& answers, bool skewed, const FrameworkRecipe* known) {
  for (Answer& a : answers) {
    if (!a.ok() || !a.moe) continue;
    if (a.program().forces_routing && skewed)
      a.bar = Bar::kForcesRouting;
    else if (a.program().tokens_replicated)
      a.bar = Bar::kReplicatesTokens;
  }
  // An answer that does less than was asked for is barred only where another does all of it.
  const auto bar_where = [&](Bar bar, auto&& worse) {
    if (std::ranges::none_of(answers, [&](const Answer& a) { return a.ranked() && !worse(a); })) return;
    for (Answer& a : answers)
      if (a.ranked() && worse(a)) a.bar = bar;
  };
  if (known)
    bar_where(Bar::kOtherFramework, [&](const Answer& a) {
      return !known->runs_dispatcher(a.dispatcher.substr(0, a.dispatcher.find(':')));
    });
  bar_where(Bar::kDropsRows, [](const Answer& a) { return a.dropped_rows > 0; });
  bar_where(Bar::kTooLarge, [](const Answer& a) { return !a.memory.fits; });
  bar_where(Bar::kNoRows, [](const Answer& a) { return a.exchange_without_rows(); });
}

Decision decide(const std::vector<Answer>& answers, double tolerance, bool fit) {
  Decision d;
  d.tolerance = tolerance;
  const std::vector<std::size_t> order = candidates(answers);
  if (order.empty()) return d;
  if (!answers[order.front()].draws_us.empty()) weigh(d, answers, order);
  d.shortest = static_cast<int>(order.front());
  std::vector<std::size_t> by_loss = order;
  if (!d.losses.empty())
    std::stable_sort(by_loss.begin(), by_loss.end(), [&](std::size_t a, std::size_t b) {
      return d.losses[a].expected < d.losses[b].expected;
    });
  d.winner = static_cast<int>(by_loss.front());
  if (order.size() == 1) {
    d.verdict = Decision::Verdict::kOnlyOne;
  } else {
    d.runner_up = static_cast<int>(by_loss[1]);
    d.speedup = ratio(answers[by_loss[0]], answers[by_loss[1]]);
    judge(d, answers, order);
  }
  if (fit && std::ranges::none_of(order, [&](std::size_t i) { return answers[i].memory.fits; }))
    d.verdict = Decision::Verdict::kNoneFits;
  return d;
}

}  // namespace moesim::models

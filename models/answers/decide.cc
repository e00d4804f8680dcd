#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "models/answers/answer.h"
#include "models/answers/shares.h"

namespace moesim::models {

namespace {

using sim::Category;

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

// Probability that each of `order` is the fastest.
std::vector<double> shares_of(const std::vector<Answer>& answers, const std::vector<std::size_t>& order) {
  std::vector<std::vector<double>> times;
  times.reserve(order.size());
  for (const std::size_t i : order) times.push_back(answers[i].draws_us);
  return smallest_shares(times);
}

// Where times are known exactly, equal ones share the win.
double exact_share(const std::vector<Answer>& answers, const std::vector<std::size_t>& order) {
  const double best = answers[order.front()].time_us.value;
  return 1 / static_cast<double>(std::count_if(order.begin(), order.end(), [&](std::size_t i) {
           return answers[i].time_us.value == best;
         }));
}

using Unmeasured = DomainReport::Unmeasured;

bool has(const Answer& a, const Unmeasured& part) {
  return std::ranges::find(a.unmeasured, part.part, &Unmeasured::part) != a.unmeasured.end();
}

// Finds an unmeasured part that only one of two answers has; null where there is none. It prefers dispatch
// kernels, then parts of the winner.
const Unmeasured* deciding_part(const Answer& w, const Answer& o) {
  const Unmeasured* found = nullptr;
  const auto look = [&](const Answer& one, const Answer& other) {
    for (const Unmeasured& part : one.unmeasured)
      if (!has(other, part) && (!found || (part.exchange && !found->exchange))) found = &part;
  };
  look(w, o);
  look(o, w);
  return found;
}

std::string busiest_bytes(const Answer& a) {
  return format_bytes(static_cast<double>(*std::max_element(a.tx_bytes.begin(), a.tx_bytes.end())));
}

// Where the winner saves its time.
std::string reason(const Answer& w, const Answer& o) {
  static const std::vector<BreakdownPart> kParts{
      {"dispatch and combine", {Category::dispatch, Category::combine}},
      {"permutation", {Category::permute, Category::unpermute}},
      {"the experts", {Category::expert}},
      {"waiting for slower ranks", {Category::straggler_wait}},
      {"host synchronisation and launches", {Category::host_sync}},
      {"the bubble", {Category::bubble}}};
  const bool same_rank = w.critical_rank == o.critical_rank && w.critical_stage == o.critical_stage;
  const std::vector<BreakdownPart> parts =
      same_rank ? kParts : comparable_parts(kParts, o.breakdown_us, w.breakdown_us);
  const BreakdownPart *most_saved = nullptr, *most_lost = nullptr;
  double saved = 0, lost = 0;
  for (const BreakdownPart& part : parts) {
    const double difference = part.us(o.breakdown_us) - part.us(w.breakdown_us);
    if (difference > saved) saved = difference, most_saved = &part;
    if (-difference > lost) lost = -difference, most_lost = &part;
  }
  const double total = o.time_us.value - w.time_us.value;
  if (!most_saved || total <= 0)
    return fmt::format("{} and {} take the same time", w.dispatcher, o.dispatcher);
  std::string text = fmt::format(
      "{} wins over {} by {}, most of it in {} ({} against {})", w.dispatcher, o.dispatcher, format_us(total),
      most_saved->name, format_us(most_saved->us(w.breakdown_us)), format_us(most_saved->us(o.breakdown_us)));
  if (most_saved->categories.front() == Category::dispatch)
    text += fmt::format(": its busiest rank sends {} a layer where {}'s sends {}", busiest_bytes(w),
                        o.dispatcher, busiest_bytes(o));
  if (most_saved->categories.back() == Category::straggler_wait || w.overload.printed().max > 1.05)
    text +=
        fmt::format("; the busiest rank computes {:.2f} times its balanced share", w.overload.printed().max);
  if (most_lost && lost > 0.1 * saved)
    text += fmt::format("; it loses {} in {}", format_us(lost), most_lost->name);
  return text;
}

}  // namespace

std::vector<std::string> Answer::unmeasured_parts() const {
  std::vector<std::string> parts;
  for (const Unmeasured& one : unmeasured) parts.push_back(one.part);
  return parts;
}

bool Answer::unmeasured_exchange() const {
  return std::ranges::any_of(unmeasured, &DomainReport::Unmeasured::exchange);
}

std::string_view name_of(Decision::Verdict verdict) {
  switch (verdict) {
    case Decision::Verdict::kClear:
      return "clear";
    case Decision::Verdict::kTooClose:
      return "too_close";
    case Decision::Verdict::kOnlyOne:
      return "only_one";
    case Decision::Verdict::kNoneFits:
      return "none_fits";
    case Decision::Verdict::kNone:
      return "none";
  }
  return "";
}

void rank(std::vector<Answer>& answers, bool skewed) {
  for (Answer& a : answers) {
    if (!a.ok()) continue;
    if (a.program().forces_routing && skewed)
      a.not_ranked = "it forces its own balanced routing, not the one that was asked for";
    else if (a.program().tokens_replicated)
      a.not_ranked = "all ranks of its EP group process the same tokens: EP times the work per token";
  }
  // What does other work than was asked for does not shut out what does that work.
  const auto does_the_work = [](const Answer& a) { return a.ranked(); };
  const bool whole = std::any_of(answers.begin(), answers.end(),
                                 [&](const Answer& a) { return does_the_work(a) && a.dropped_rows == 0; });
  for (Answer& a : answers)
    if (does_the_work(a) && whole && a.dropped_rows > 0)
      a.not_ranked = fmt::format("it drops {} rows ({:.1f} %) that others compute", a.dropped_rows,
                                 100 * a.dropped_share);
  const bool fits = std::any_of(answers.begin(), answers.end(),
                                [&](const Answer& a) { return a.ranked() && a.memory.fits; });
  for (Answer& a : answers)
    if (a.ranked() && fits && !a.memory.fits)
      a.not_ranked =
          fmt::format("it does not fit the memory: {} missing", format_bytes(a.memory.missing_bytes));
}

Decision decide(const std::vector<Answer>& answers) {
  Decision d;
  const std::vector<std::size_t> order = candidates(answers);
  if (order.empty()) {
    d.because = "No dispatcher could be forecast.";
    return d;
  }
  d.winner = static_cast<int>(order.front());
  const Answer& w = answers[order.front()];
  const bool fits =
      std::any_of(order.begin(), order.end(), [&](std::size_t i) { return answers[i].memory.fits; });
  if (order.size() == 1) {
    d.verdict = Decision::Verdict::kOnlyOne;
    d.because = answers.size() == 1
                    ? fmt::format("{} is the only dispatcher that was compared.", w.dispatcher)
                    : fmt::format("{} is the only dispatcher that can be ranked.", w.dispatcher);
  } else {
    d.runner_up = static_cast<int>(order[1]);
    const Answer& o = answers[order[1]];
    d.speedup = ratio(w, o);
    const std::vector<double> shares = w.draws_us.empty() ? std::vector<double>{} : shares_of(answers, order);
    d.probability = shares.empty() ? exact_share(answers, order) : shares.front();
    const Unmeasured* unmeasured = deciding_part(w, o);
    // A dispatch kernel that was never measured on this network does not win on its own word.
    if (unmeasured && unmeasured->exchange && has(w, *unmeasured))
      d.probability = std::min(d.probability, Decision::kUnmeasured);
    const bool close = d.probability < Decision::kSure;
    d.verdict = close ? Decision::Verdict::kTooClose : Decision::Verdict::kClear;
    if (close) {
      // Those that share the probability that the winner does not have.
      std::vector<std::size_t> others;
      for (std::size_t k = 1; k < order.size(); ++k) others.push_back(k);
      std::stable_sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) {
        return !shares.empty() && shares[a] > shares[b];
      });
      d.among.push_back(d.winner);
      double known = d.probability;
      for (const std::size_t k : others) {
        if (known >= Decision::kSure && d.among.size() > 1) break;
        d.among.push_back(static_cast<int>(order[k]));
        known += shares.empty() ? 1 : shares[k];
      }
      std::vector<std::string> names;
      for (const int i : d.among) names.push_back(answers[static_cast<std::size_t>(i)].dispatcher);
      const std::string last = names.back();
      names.pop_back();
      d.because = fmt::format("Too close to call between {} and {} (probability {:.2f}): {}.",
                              join(names, ", "), last, d.probability, reason(w, o));
      if (unmeasured) d.because += fmt::format(" What decides: {}.", unmeasured->part);
    } else {
      d.because = reason(w, o) + ".";
    }
  }
  if (!fits) {
    d.verdict = Decision::Verdict::kNoneFits;
    d.because = fmt::format("Nothing fits the memory: {} misses {}. {}", w.dispatcher,
                            format_bytes(w.memory.missing_bytes), d.because);
  }
  return d;
}

std::string Comparison::sentence() const {
  const Answer* w = winner();
  if (!w) return decision.because;
  const char* whole = scenario->scope == Scenario::Scope::kStep ? "step" : "layer";
  const auto interval = [](const Answer& a) {
    return a.draws_us.empty() ? std::string()
                              : fmt::format(" (90 % interval {} to {})", format_us(a.time_us.low),
                                            format_us(a.time_us.high));
  };
  const std::string time = fmt::format("{} a {}{}", format_us(w->time_us.value), whole, interval(*w));
  const Answer* o = decision.runner_up < 0 ? nullptr : &answers[static_cast<std::size_t>(decision.runner_up)];
  // Of those that it is too close between, the likeliest beside the winner.
  if (decision.verdict == Decision::Verdict::kTooClose && decision.among.size() > 1)
    o = &answers[static_cast<std::size_t>(decision.among[1])];
  const double p = decision.probability;
  // No number of draws makes anything certain.
  const std::string share = p > 0.995   ? "more than 99 %"
                            : p < 0.005 ? "less than 1 %"
                                        : fmt::format("{:.0f} %", 100 * p);
  switch (decision.verdict) {
    case Decision::Verdict::kClear:
      return fmt::format(
          "{} is the fastest with probability {}: {}, {:.2f} times as fast as {} ({:.2f} to {:.2f}).",
          w->dispatcher, share, time, decision.speedup.value, o->dispatcher, decision.speedup.low,
          decision.speedup.high);
    case Decision::Verdict::kTooClose:
      return fmt::format("Too close to call: {} takes {}, {} {}{}; {} is the fastest with probability {}.",
                         w->dispatcher, time, o->dispatcher, format_us(o->time_us.value), interval(*o),
                         w->dispatcher, share);
    case Decision::Verdict::kOnlyOne:
      return fmt::format("{} takes {}.", w->dispatcher, time);
    case Decision::Verdict::kNoneFits:
    case Decision::Verdict::kNone:
      break;
  }
  return decision.because;
}

Estimate difference_us(const Answer& a, const Answer& b) {
  const double value = b.time_us.value - a.time_us.value;
  if (a.draws_us.empty() || a.draws_us.size() != b.draws_us.size()) return Estimate::exact(value);
  std::vector<double> each(a.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = b.draws_us[d] - a.draws_us[d];
  return Estimate::from_samples(value, each);
}

Estimate ratio(const Answer& a, const Answer& b) {
  const double value = b.time_us.value / a.time_us.value;
  if (a.draws_us.empty() || a.draws_us.size() != b.draws_us.size()) return Estimate::exact(value);
  std::vector<double> each(a.draws_us.size());
  for (std::size_t d = 0; d < each.size(); ++d) each[d] = b.draws_us[d] / a.draws_us[d];
  return Estimate::from_samples(value, each);
}

void add_new(std::vector<std::string>& warnings, const std::vector<std::string>& more) {
  for (const std::string& one : more)
    if (std::find(warnings.begin(), warnings.end(), one) == warnings.end()) warnings.push_back(one);
}

}  // namespace moesim::models

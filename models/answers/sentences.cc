#include "models/answers/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"

namespace moesim::models {

namespace {

using sim::Category;
using Unmeasured = DomainReport::Unmeasured;
using Verdict = Decision::Verdict;

const Answer& at(const Comparison& c, int index) { return c.answers[static_cast<std::size_t>(index)]; }

std::string names_of(const Comparison& c, const std::vector<int>& indices) {
  std::vector<std::string> names;
  names.reserve(indices.size());
  for (const int i : indices) names.push_back(at(c, i).dispatcher);
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : fmt::format("{} and {}", join(names, ", "), last);
}

// Returns "10.9 ms a layer (90 % interval 10.4 ms to 12.1 ms)".
std::string time_text(const Comparison& c, const Answer& a) {
  const bool step = c.scenario->is_step();
  const char* whole =
      c.scenario->train ? (step ? "step" : "layer") : (step ? "forward pass" : "forward pass of a layer");
  std::string text = fmt::format("{} a {}", format_us(a.time_us.value), whole);
  const auto range = [](const Estimate& us) {
    std::string low = format_us(us.low);
    const std::string high = format_us(us.high);
    const std::size_t unit = low.rfind(' ');
    if (high.ends_with(low.substr(unit))) low.resize(unit);
    return fmt::format("{} to {}", low, high);
  };
  if (!a.draws_us.empty())
    text += fmt::format(" (90 % interval {}{})", range(a.interval()),
                        a.hosts ? "; untuned host " + range(a.hosts->untuned) : "");
  return text;
}

// Returns the answers that could be chosen and differ from the alike ones by more than kAlike, nearest first.
std::vector<int> others_of(const Comparison& c) {
  const Decision& d = c.decision;
  std::vector<int> others;
  for (int i = 0; i < static_cast<int>(c.answers.size()); ++i)
    if (at(c, i).ranked() && std::ranges::find(d.alike, i) == d.alike.end() && i != d.winner)
      others.push_back(i);
  const double time = at(c, d.winner).time_us.value;
  std::ranges::stable_sort(others, {}, [&](int i) { return std::abs(at(c, i).time_us.value - time); });
  return others;
}

// "flex-deepep takes 12 % longer (5 % to 18 %)".
std::string longer_text(const Comparison& c, int index) {
  const Answer& other = at(c, index);
  const Estimate r = ratio(at(c, c.decision.winner), other);
  const double more = r.value - 1;
  std::string text = std::abs(more) < 0.0005
                         ? fmt::format("{} takes as long", other.dispatcher)
                         : fmt::format("{} takes {} {}", other.dispatcher, share_text(std::abs(more)),
                                       more > 0 ? "longer" : "less");
  if (!other.draws_us.empty() && r.low > 1)
    text += fmt::format(" ({} to {})", share_text(r.low - 1), share_text(r.high - 1));
  return text;
}

std::string slower_text(const Loss& loss) {
  return fmt::format("{} slower than the fastest is expected, {} at most (90 %)", share_text(loss.expected),
                     share_text(loss.at_most));
}

std::string fitting_text(const Comparison& c) {
  if (!c.fitting) return "";
  const FittingChange& change = *c.fitting;
  if (change.options.empty()) return fmt::format(" None of {} changes makes it fit.", change.tried);
  return fmt::format(" With {} it fits: a step of {}, the fastest of {} changes that fit ({} were tried).",
                     change.options, format_us(change.seconds * 1e6), change.fitting, change.tried);
}

// Returns an unmeasured part that only one of two answers has; null without one. Prefers dispatch kernels,
// then parts of the first answer.
const Unmeasured* deciding_part(const Answer& first, const Answer& second) {
  const Unmeasured* found = nullptr;
  const auto look = [&](const Answer& one, const Answer& other) {
    for (const Unmeasured& part : one.unmeasured)
      if (std::ranges::find(other.unmeasured, part.part, &Unmeasured::part) == other.unmeasured.end() &&
          (!found || (part.exchange && !found->exchange)))
        found = &part;
  };
  look(first, second);
  look(second, first);
  return found;
}

std::string busiest_bytes(const Answer& a) {
  return format_bytes(static_cast<double>(*std::max_element(a.tx_bytes.begin(), a.tx_bytes.end())));
}

// Whether the answer is that of a model without experts, which has no dispatcher.
bool is_dense(const Answer& a) { return a.dispatcher == "none"; }

// Whether the bytes of the busiest ranks differ enough to be the reason.
bool sends_less(const Answer& fast, const Answer& slow) {
  constexpr double kVisible = 0.98;
  return static_cast<double>(std::ranges::max(fast.tx_bytes)) <
         kVisible * static_cast<double>(std::ranges::max(slow.tx_bytes));
}

// Returns where the faster one saves its time.
std::string saving_text(const Answer& fast, const Answer& slow) {
  static const std::vector<BreakdownPart> kParts{
      {"dispatch and combine", {Category::dispatch, Category::combine}},
      {"permutation", {Category::permute, Category::unpermute}},
      {"the experts", {Category::expert}},
      {"waiting for slower ranks", {Category::straggler_wait}},
      {"host synchronisation and launches", {Category::host_sync}},
      {"the bubble", {Category::bubble}}};
  const bool same_rank =
      fast.critical_rank == slow.critical_rank && fast.critical_stage == slow.critical_stage;
  const std::vector<BreakdownPart> parts =
      same_rank ? kParts : comparable_parts(kParts, slow.breakdown_us, fast.breakdown_us);
  const BreakdownPart *most_saved = nullptr, *most_lost = nullptr;
  double saved = 0, lost = 0;
  for (const BreakdownPart& part : parts) {
    const double difference = part.us(slow.breakdown_us) - part.us(fast.breakdown_us);
    if (difference > saved) saved = difference, most_saved = &part;
    if (-difference > lost) lost = -difference, most_lost = &part;
  }
  const double total = slow.time_us.value - fast.time_us.value;
  if (total <= 0) return fmt::format("{} and {} take the same time", fast.dispatcher, slow.dispatcher);
  if (!most_saved)
    return fmt::format(
        "{} saves {} over {}{}", fast.dispatcher, format_us(total), slow.dispatcher,
        fast.critical_stage == slow.critical_stage
            ? ""
            : fmt::format(", in other stages than the one that ends last (stage {} against {})",
                          fast.critical_stage, slow.critical_stage));
  std::string text =
      fmt::format("{} saves {} over {}, most of it in {} ({} against {})", fast.dispatcher, format_us(total),
                  slow.dispatcher, most_saved->name, format_us(most_saved->us(fast.breakdown_us)),
                  format_us(most_saved->us(slow.breakdown_us)));
  if (most_saved->categories.front() == Category::dispatch && !fast.tx_bytes.empty() &&
      !slow.tx_bytes.empty() && sends_less(fast, slow))
    text += fmt::format(": its busiest rank sends {} a layer where {}'s sends {}", busiest_bytes(fast),
                        slow.dispatcher, busiest_bytes(slow));
  if (most_saved->categories.back() == Category::straggler_wait || fast.overload.printed().max > 1.05)
    text += fmt::format("; the busiest rank computes {:.2f} times its balanced share",
                        fast.overload.printed().max);
  if (most_lost && lost > 0.1 * saved)
    text += fmt::format("; it loses {} in {}", format_us(lost), most_lost->name);
  return text;
}

// Returns the recommendation where several times are alike, or one is safe.
std::string safe_text(const Comparison& c) {
  const Decision& d = c.decision;
  const Answer& w = at(c, d.winner);
  const std::vector<int> others = others_of(c);
  std::string text;
  if (d.alike.size() > 1) {
    double farthest = 0;
    for (const int i : d.alike)
      farthest = std::max(farthest, std::abs(at(c, i).time_us.value / w.time_us.value - 1));
    text = fmt::format("{} are within {} of each other: run {} of them, {}", names_of(c, d.alike),
                       share_text(std::max(farthest, 0.001)), d.alike.size() > 2 ? "any" : "either",
                       time_text(c, w));
    if (const std::optional<Loss> loss = d.loss())
      text += fmt::format("; {} at most is lost by {} (90 %)", share_text(loss->at_most), w.dispatcher);
  } else if (d.verdict == Verdict::kClear) {
    text = fmt::format("Run {}: {}; it is the fastest with probability {}", w.dispatcher, time_text(c, w),
                       probability_text(*d.probability()));
  } else {
    text = fmt::format("Run {}: {}; {}", w.dispatcher, time_text(c, w), slower_text(*d.loss()));
  }
  return others.empty() ? text + "." : fmt::format("{}; {}.", text, longer_text(c, others.front()));
}

std::string open_text(const Comparison& c) {
  const Decision& d = c.decision;
  const Answer& w = at(c, d.winner);
  const std::optional<Loss> loss = d.loss();
  if (!loss) {
    const std::string text = d.alike.size() > 1
                                 ? fmt::format("{} are within {} of each other: {}", names_of(c, d.alike),
                                               share_text(Decision::kAlike), time_text(c, w))
                                 : fmt::format("{} has the shortest forecast: {}; {}", w.dispatcher,
                                               time_text(c, w), longer_text(c, d.runner_up));
    return fmt::format("{}. With draws (--draws {}) moesim says how sure that is.", text,
                       AnswerOptions{}.draws);
  }
  return fmt::format(
      "Open between {}: {} risks least at {}, but may be {} slower than the fastest (90 %), more than the "
      "tolerance of {}; {} slower is expected; {}.",
      names_of(c, d.among), w.dispatcher, time_text(c, w), share_text(loss->at_most), share_text(d.tolerance),
      share_text(loss->expected), longer_text(c, d.among[1]));
}

}  // namespace

std::string share_text(double share) {
  const double percent = 100 * share;
  if (percent < 0.05) return "0 %";
  return percent < 9.95 ? fmt::format("{:.1f} %", percent) : fmt::format("{:.0f} %", percent);
}

std::string probability_text(double p) {
  return p > 0.995 ? "more than 99 %" : p < 0.005 ? "less than 1 %" : fmt::format("{:.0f} %", 100 * p);
}

std::string barred_text(const Answer& a) {
  switch (a.bar) {
    case Bar::kNone:
      break;
    case Bar::kOtherFramework:
      return "the framework that runs this job has no such dispatcher";
    case Bar::kForcesRouting:
      return "it forces its own balanced routing, not the one that was asked for";
    case Bar::kReplicatesTokens:
      return "all ranks of its EP group process the same tokens: EP times the work per token";
    case Bar::kDropsRows:
      return fmt::format("it drops {} rows ({:.1f} %) that others compute", a.dropped_rows,
                         100 * a.dropped_share);
    case Bar::kTooLarge:
      return fmt::format("it does not fit the memory: {} missing", format_bytes(a.memory.missing_bytes));
    case Bar::kNoRows:
      return "no row of its dispatch kernel was measured on any machine of this kind";
  }
  return "";
}

std::string sentence(const Comparison& c) {
  const Answer* w = c.winner();
  switch (c.decision.verdict) {
    case Verdict::kNone:
      return "No dispatcher could be forecast.";
    case Verdict::kNoneFits:
      return fmt::format("Nothing fits the memory: {} needs {} more than there is.{}",
                         is_dense(*w) ? "the model" : w->dispatcher, format_bytes(w->memory.missing_bytes),
                         fitting_text(c));
    case Verdict::kOnlyOne:
      return fmt::format("{} takes {}.", is_dense(*w) ? "The model" : w->dispatcher, time_text(c, *w));
    case Verdict::kClear:
    case Verdict::kSafe:
      return safe_text(c);
    case Verdict::kOpen:
      break;
  }
  return open_text(c);
}

std::string because(const Comparison& c) {
  const Answer* w = c.winner();
  if (!w) return "No dispatcher could be forecast.";
  if (is_dense(*w)) return "A dense model: there is no dispatcher to choose.";
  if (c.decision.runner_up < 0)
    return fmt::format("{} is the only dispatcher that {}.", w->dispatcher,
                       c.answers.size() == 1 ? "was compared" : "can be chosen");
  const std::vector<int> others = others_of(c);
  const Answer& other = at(c, others.empty() ? c.decision.runner_up : others.front());
  const bool first = w->time_us.value <= other.time_us.value;
  std::string text = saving_text(first ? *w : other, first ? other : *w) + ".";
  if (c.decision.verdict == Verdict::kOpen)
    if (const Unmeasured* part = deciding_part(*w, other))
      // How it is priced instead stands in --explain.
      text += fmt::format(" Least known: {}.", part->part.substr(0, part->part.find(", priced ")));
  return text;
}

std::size_t answer_named(const Comparison& c, const std::string& dispatcher, std::string_view option) {
  std::vector<std::string> names;
  std::vector<std::size_t> exact, named;
  for (std::size_t i = 0; i < c.answers.size(); ++i) {
    const std::string& name = names.emplace_back(c.answers[i].dispatcher);
    if (name == dispatcher) exact.push_back(i);
    if (name.substr(0, name.find(':')) == dispatcher) named.push_back(i);
  }
  const std::vector<std::size_t>& meant = exact.empty() ? named : exact;
  if (meant.size() > 1)
    throw InputError(fmt::format("{}: found the dispatcher {}, which {} are, expected one with its options",
                                 option, in_quotes(dispatcher), meant.size()));
  if (meant.size() == 1) {
    const Answer& a = c.answers[meant.front()];
    if (!a.ok()) throw InputError(fmt::format("{}: {}: {}", option, dispatcher, a.error));
    return meant.front();
  }
  for (const auto& [excluded, rule] : c.excluded)
    if (excluded == dispatcher) throw InputError(fmt::format("{}: {}: {}", option, dispatcher, rule));
  throw InputError(fmt::format("{}: found the dispatcher {}, expected one of {}{}", option,
                               in_quotes(dispatcher), join(names, ", "), did_you_mean(dispatcher, names)));
}

std::optional<std::string> own_dispatcher(const Comparison& c) {
  if (c.answers.size() == 1) return c.answers.front().dispatcher;
  const std::string& own = c.scenario->job_dispatcher;
  const auto has = std::ranges::find(c.answers, own, &Answer::dispatcher);
  return has == c.answers.end() ? std::nullopt : std::optional(own);
}

}  // namespace moesim::models

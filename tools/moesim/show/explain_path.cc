#include "tools/moesim/show/explain_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "tools/moesim/show/comparison_detail.h"

namespace moesim::tools {

namespace {

using replay::StepKind;
using sim::Category;

constexpr std::size_t kMostSentences = 24;
constexpr std::size_t kMostNamed = 3;  // ranks, parts of the time
constexpr double kWorthNaming = 0.04;  // of a piece

// The content of one sentence: neighbouring steps of one pipeline stage.
struct Piece {
  int stage = -1;
  std::vector<std::pair<StepKind, int>> steps;  // kind, microbatch
  std::map<int, std::int64_t> by_rank;          // ps
  std::array<std::int64_t, sim::kCategories> by_category{};
  std::int64_t from = 0, to = 0;

  void add(const Piece& next) {
    for (const auto& step : next.steps)
      if (std::find(steps.begin(), steps.end(), step) == steps.end()) steps.push_back(step);
    for (const auto& [rank, ps] : next.by_rank) by_rank[rank] += ps;
    for (std::size_t c = 0; c < sim::kCategories; ++c) by_category[c] += next.by_category[c];
    to = next.to;
  }
};

std::string words(std::string_view key) {
  std::string text(key);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string ms(std::int64_t ps) { return fmt::format("{:.2f}", static_cast<double>(ps) * 1e-9); }

std::vector<Piece> pieces_of(const replay::Iteration& iteration) {
  constexpr int kNone = -1;
  std::vector<int> span_of(iteration.graph.task_count(), kNone);
  for (std::size_t s = 0; s < iteration.spans.size(); ++s) {
    const replay::StepSpan& span = iteration.spans[s];
    for (sim::TaskId task = span.first;; task = iteration.graph.next_on_stream(task)) {
      span_of[sim::index(task)] = static_cast<int>(s);
      if (task == span.last) break;
    }
  }
  std::vector<Piece> pieces;
  for (const sim::PathStep& step : iteration.timeline.critical_path(iteration.graph)) {
    if (step.to <= step.from) continue;
    Piece one;
    const int rank = static_cast<int>(iteration.graph.rank(step.task).value());
    one.stage = iteration.topology.of(rank).pp;
    one.from = step.from.ps();
    one.to = step.to.ps();
    one.by_rank[rank] = one.to - one.from;
    one.by_category[static_cast<std::size_t>(iteration.graph.label(step.task).category)] = one.to - one.from;
    const int span = span_of[sim::index(step.task)];
    if (span != kNone) {
      const replay::StepSpan& at = iteration.spans[static_cast<std::size_t>(span)];
      one.steps.emplace_back(at.kind, at.microbatch);
    }
    const bool same = !pieces.empty() && pieces.back().stage == one.stage &&
                      (one.steps.empty() || pieces.back().steps.empty() || pieces.back().steps == one.steps);
    if (same)
      pieces.back().add(one);
    else
      pieces.push_back(std::move(one));
  }
  return pieces;
}

// Merges the shortest pieces with a neighbour on the same stage, if any, until few enough are left.
void join_neighbours(std::vector<Piece>& pieces) {
  while (pieces.size() > kMostSentences) {
    std::size_t best = pieces.size();
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      if (pieces[i].stage != pieces[i + 1].stage) continue;
      const auto length = [&](std::size_t k) { return pieces[k + 1].to - pieces[k].from; };
      if (best == pieces.size() || length(i) < length(best)) best = i;
    }
    if (best == pieces.size()) return;
    pieces[best].add(pieces[best + 1]);
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::string parts_text(const std::array<std::int64_t, sim::kCategories>& by_category, std::int64_t whole) {
  std::vector<std::pair<std::int64_t, Category>> parts;
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    if (static_cast<double>(by_category[c]) > kWorthNaming * static_cast<double>(whole))
      parts.emplace_back(by_category[c], static_cast<Category>(c));
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (std::size_t i = 0; i < std::min(kMostNamed, parts.size()); ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", words(sim::name(parts[i].second)), ms(parts[i].first));
  return out;
}

// "a, b and c".
std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " and " : ", ", words[i]);
  return out;
}

// "forward of microbatch 3", "5 forward and 4 backward of microbatches 2 to 6".
std::string steps_text(const std::vector<std::pair<StepKind, int>>& steps) {
  if (steps.empty()) return "work outside of the schedule";
  std::vector<std::pair<StepKind, int>> count;  // in the order of their first step
  int low = steps.front().second, high = low;
  bool once = true;  // once per iteration, whatever the microbatch
  for (const auto& [kind, microbatch] : steps) {
    const StepKind wanted = kind;
    const auto found =
        std::find_if(count.begin(), count.end(), [&](const auto& one) { return one.first == wanted; });
    if (found == count.end())
      count.emplace_back(kind, 1);
    else
      ++found->second;
    low = std::min(low, microbatch);
    high = std::max(high, microbatch);
    once = once && (replay::is_gradient_sync(kind) || kind == StepKind::optimizer || kind == StepKind::other);
  }
  std::vector<std::string> names;
  names.reserve(count.size());
  for (const auto& [kind, n] : count)
    names.push_back(n == 1 ? words(replay::name(kind)) : fmt::format("{} {}", n, words(replay::name(kind))));
  if (once) return listed(names);
  return low == high ? fmt::format("{} of microbatch {}", listed(names), low)
                     : fmt::format("{} of microbatches {} to {}", listed(names), low, high);
}

// Returns "rank 5", "ranks 5, 4 and 7": the ranks with most of the path, longest first.
std::string ranks_text(const std::map<int, std::int64_t>& by_rank) {
  std::vector<std::pair<std::int64_t, int>> ranks;
  ranks.reserve(by_rank.size());
  for (const auto& [rank, ps] : by_rank) ranks.emplace_back(ps, rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const std::size_t n = std::min(kMostNamed, ranks.size());
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < n; ++i)
    out += fmt::format("{}{}",
                       i == 0                            ? ""
                       : i + 1 == n && n == ranks.size() ? " and "
                                                         : ", ",
                       ranks[i].second);
  if (ranks.size() > n) out += fmt::format(" and {} more", ranks.size() - n);
  return out;
}

}  // namespace

std::string critical_path_text(const replay::Iteration& iteration) {
  std::vector<Piece> pieces = pieces_of(iteration);
  if (pieces.empty()) return "";
  Piece whole;
  for (const Piece& piece : pieces) whole.add(piece);
  join_neighbours(pieces);
  std::string out =
      "the critical path: what everybody waited for, in ms from the start; anything else could be slower "
      "without cost\n";
  for (const Piece& piece : pieces) {
    std::string ranks = ranks_text(piece.by_rank);
    ranks.front() = 'R';
    const std::string parts = parts_text(piece.by_category, piece.to - piece.from);
    out += fmt::format("{:>9}  {} of stage {} {} {} for {}{}.\n", ms(piece.from), ranks, piece.stage,
                       piece.by_rank.size() == 1 ? "runs" : "run", steps_text(piece.steps),
                       ms(piece.to - piece.from), parts.empty() ? "" : ": " + parts);
  }
  out += fmt::format("{:>9}  The iteration ends. The path is {} and less of the rest; most of it is on {}.\n",
                     ms(whole.to), parts_text(whole.by_category, whole.to), ranks_text(whole.by_rank));
  return out;
}

std::string critical_path_text(const models::Answer& f) {
  struct Part {
    bool forward;
    Category category;
    double start_us, time_us, wait_us;
    std::vector<std::pair<double, std::string>> operations;
  };
  std::vector<Part> parts;
  for (const LayerOperation& row : operations_of(f)) {
    if (row.time_us + row.wait_us <= 0) continue;
    const Category category = row.op->category;
    if (parts.empty() || parts.back().category != category || parts.back().forward != row.forward)
      parts.push_back({row.forward, category, row.start_us, 0, 0, {}});
    parts.back().time_us += row.time_us;
    parts.back().wait_us += row.wait_us;
    parts.back().operations.emplace_back(row.time_us, std::string(row.op->name));
  }
  const bool step = !f.slots.empty();
  double whole_us = 0;
  for (const Part& part : parts) whole_us = std::max(whole_us, part.start_us + part.wait_us + part.time_us);
  std::string out =
      step ? fmt::format("{}: what rank {} of stage {} does in one MoE layer of the step\n", f.dispatcher,
                         f.critical_rank, f.critical_stage)
           : fmt::format("{}: what rank {}, which ends last, does\n", f.dispatcher, f.critical_rank);
  if (!f.hang.empty()) out += fmt::format("  {}\n", f.hang);
  for (Part& part : parts) {
    std::stable_sort(part.operations.begin(), part.operations.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string names;
    for (std::size_t i = 0; i < std::min(kMostNamed, part.operations.size()); ++i)
      names += fmt::format("{}{}", i == 0 ? "" : ", ", part.operations[i].second);
    if (part.operations.size() > kMostNamed)
      names += fmt::format(" and {} more", part.operations.size() - kMostNamed);
    out += fmt::format(
        "{:>10}  {} {}: {}, {:.1f} % ({}){}.\n", fmt::format("{:.1f} us", part.start_us),
        part.forward ? "forward," : "backward,", words(sim::name(part.category)), format_us(part.time_us),
        100 * part.time_us / whole_us, names,
        part.wait_us > 0 ? ", after waiting " + format_us(part.wait_us) + " for other ranks" : "");
  }
  return out;
}

}  // namespace moesim::tools

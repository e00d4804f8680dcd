#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "base/text.h"
#include "base/units.h"
#include "models/answers/sentences.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/explain_path.h"
#include "tools/moesim/verbs/replay_answer.h"

namespace moesim::tools {

using replay::RecordingForecast;

namespace {

constexpr std::size_t kMostShown = 3;  // ranks and layers that made others wait

std::string ms(double us) { return fmt::format("{:.2f}", us / 1e3); }

std::string words_of(const replay::TimeShare& share) {
  std::string what(name(share.cause));
  std::replace(what.begin(), what.end(), '_', ' ');
  return what;
}

// Where the iteration goes; without what is not visible.
std::string attribution_text(const RecordingForecast& answer) {
  constexpr double kVisible = 0.0005;
  Table table({{"of the iteration", Table::Align::kLeft}, {"ms"}, {"share"}});
  for (const auto& share : answer.attribution.shares) {
    const double part = share.us / answer.iteration.us();
    if (std::abs(part) >= kVisible)
      table.row({words_of(share), ms(share.us), fmt::format("{:.1f} %", 100 * part)});
  }
  return table.text();
}

// Which ranks, and with --explain which layers, others waited for.
std::string waiting_text(const RecordingForecast& answer, bool explain) {
  const auto most = [](const std::vector<replay::Waiting>& waits, const auto& one) {
    std::string line;
    for (std::size_t i = 0; i < std::min(kMostShown, waits.size()); ++i)
      line += fmt::format("{}{} ({:.0f} ms)", i == 0 ? "" : ", ", one(waits[i]), waits[i].us / 1e3);
    return line.empty() ? std::string("none") : line;
  };
  std::string text = fmt::format(
      "ranks that others waited for most: {}\n",
      most(answer.attribution.ranks, [](const replay::Waiting& w) { return fmt::format("{}", w.index); }));
  if (explain)
    text += fmt::format("layers in which ranks waited most: {}\n",
                        most(answer.attribution.layers, [](const replay::Waiting& w) {
                          return fmt::format("{} of stage {}", w.index, w.stage);
                        }));
  return text;
}

std::string throughput_text(const RecordingForecast& answer) {
  if (answer.tokens == 0) return "";
  const auto cost = cost_per_million_tokens(answer);
  std::string text =
      cost ? fmt::format("cost: {:.4g} {} per million tokens\n", *cost, answer.settings.prices.currency)
           : std::string("cost: no price; --prices '{\"gpu_hour\": 2.5}' gives it per million tokens\n");
  if (const auto& before = answer.before) {
    text += fmt::format("before: {} ms ({}), now {}", ms(before->time_us.value), before->what,
                        percent(models::ratio(*before, answer).value - 1, 1, true));
    if (before->tokens > 0)
      text += fmt::format(" in time and {} in tokens/s",
                          percent(tokens_per_s(answer) / tokens_per_s(*before) - 1, 1, true));
    text += "\n";
  }
  return text;
}

// Describes the memory of the fullest rank, and that under the recorded dispatcher.
std::string memory_text(const RecordingForecast& answer, bool explain) {
  const auto text_of = [&](const models::RankMemory& held) {
    const auto gb = [](double bytes) { return fmt::format("{:.3g} GB", bytes * 1e-9); };
    if (!explain) return gb(held.total());
    return fmt::format("{} (parameters {}, gradients {}, optimizer {}, kept activations {}, buffers {})",
                       gb(held.total()), gb(held.parameters), gb(held.gradients), gb(held.optimizer),
                       gb(held.activations), gb(held.transient + held.persistent));
  };
  std::string text = "memory of the fullest rank: " + text_of(answer.held->step.worst);
  if (answer.held_as_recorded)
    text += fmt::format("; {} as recorded: {}", answer.held_as_recorded->dispatcher,
                        text_of(answer.held_as_recorded->step.worst));
  return text + "\n";
}

constexpr std::size_t kMostRanks = 32, kFewRanks = 4;  // of a table for people, with and without --explain

// Returns all ranks, or those that compute most and least and an even choice of the others.
std::vector<std::size_t> ranks_for_people(std::span<const sim::RankSummary> ranks, std::size_t most) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (ranks.size() <= most) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranks[a].busy > ranks[b].busy; });
  std::set<std::size_t> chosen;
  for (std::size_t i = 0; i < most / 4; ++i) chosen.insert({order[i], order[order.size() - 1 - i]});
  for (std::size_t i = 0; i < most && chosen.size() < most; ++i) chosen.insert(i * ranks.size() / most);
  return {chosen.begin(), chosen.end()};
}

// The letters of the columns are those of the bars.
std::string ranks_text(const RecordingForecast& answer, bool explain) {
  constexpr std::size_t kBarColumns = 28;
  const auto ranks = answer.iteration.timeline.ranks();
  std::vector<Table::Column> columns{{"rank, times [ms]"}};
  for (const RankTime& one : kRankTimes) columns.push_back({fmt::format("{} {}", one.letter, one.head)});
  columns.push_back({"", Table::Align::kLeft, true});
  Table table(std::move(columns));
  const std::vector<std::size_t> shown = ranks_for_people(ranks, explain ? kMostRanks : kFewRanks);
  for (const std::size_t r : shown) {
    const sim::RankSummary& rank = ranks[r];
    std::vector<BarPart> parts;
    std::vector<std::string> row{std::to_string(r)};
    for (const RankTime& one : kRankTimes) {
      parts.push_back({one.letter, one.head, one.ink, (rank.*one.time).us()});
      row.push_back(ms(parts.back().value));
    }
    row.push_back(bar(parts, answer.iteration.us(), kBarColumns));
    table.row(std::move(row));
  }
  std::string text = table.text();
  if (shown.size() < ranks.size()) {
    text +=
        fmt::format("{} of {} ranks; {}\n", shown.size(), ranks.size(),
                    explain || ranks.size() > kMostRanks ? "--format csv lists all" : "--explain lists all");
    std::vector<double> wait;
    for (const auto& rank : ranks) wait.push_back(rank.straggler_wait.us());
    if (explain) text += fmt::format("straggler wait of all ranks: {}\n", sparkline(wait));
  }
  return text;
}

Table operation_table(const RecordingForecast& answer) {
  Table table({{"operation", Table::Align::kLeft}, {"count"}, {"mean ms"}});
  for (std::size_t k = 0; k < replay::kStepKinds; ++k) {
    const auto& mean = answer.summary.steps[k];
    if (mean.count > 0)
      table.row({std::string(replay::name(static_cast<replay::StepKind>(k))), std::to_string(mean.count),
                 fmt::format("{:.3f}", mean.mean_us / 1e3)});
  }
  return table;
}

Table effect_table(const RecordingForecast& answer) {
  Table table({{"effect", Table::Align::kLeft},
               {"value"},
               {"+-"},
               {"unit", Table::Align::kLeft},
               {"changes the iteration by"},
               {"source", Table::Align::kLeft}});
  for (std::size_t k = 0; k < replay::kEffects; ++k) {
    const auto& effect = answer.effects->list()[k];
    table.row({std::string(effect.name), fmt::format("{:g}", effect.value), fmt::format("{:g}", effect.sigma),
               std::string(effect.unit), fmt::format("{:+.2f} ms", answer.effect_gains_us[k] / 1e3),
               effect.source});
  }
  return table;
}

// "424.61 ms an iteration (90 % interval ...), 154345 tokens/s. Besides computing: routing skew 27 %, ..."
std::string answer_text(const RecordingForecast& answer) {
  std::string text = fmt::format("{} ms an iteration (90 % interval {} ms to {} ms)",
                                 ms(answer.time_us.value), ms(answer.time_us.low), ms(answer.time_us.high));
  if (answer.measured_us && replay::made_on(answer.recorded_on, answer.cluster))
    text += fmt::format(", measured {} ms ({})", ms(*answer.measured_us),
                        percent(answer.time_us.value / *answer.measured_us - 1.0, 2, true));
  else if (answer.measured_us)
    text += fmt::format(", {} ms where it was recorded", ms(*answer.measured_us));
  if (answer.tokens > 0) text += fmt::format(", {:.0f} tokens/s", tokens_per_s(answer));
  if (answer.held && !answer.held->step.fits)
    text += fmt::format(". It does not fit into memory: {} of {}", format_bytes(answer.held->step.max_bytes),
                        format_bytes(answer.held->step.limit_bytes));
  std::vector<replay::TimeShare> shares(answer.attribution.shares.begin(), answer.attribution.shares.end());
  std::erase_if(shares, [](const auto& share) { return share.cause == replay::CauseOfTime::computing; });
  std::ranges::stable_sort(shares, [](const auto& a, const auto& b) { return a.us > b.us; });
  constexpr double kWorthNaming = 0.05;
  std::vector<std::string> parts;
  for (const auto& share : shares)
    if (const double part = share.us / answer.iteration.us(); part > kWorthNaming && parts.size() < 2)
      parts.push_back(fmt::format("{} {:.0f} %", words_of(share), 100 * part));
  return parts.empty() ? text + "." : fmt::format("{}. Besides computing: {}.", text, join(parts, ", "));
}

// Describes the replayed job and its figures besides the time.
std::string remarks_text(const RecordingForecast& answer, const replay::Topology& recorded, bool explain) {
  const std::string network =
      answer.cluster.network.empty() || answer.cluster.ranks() <= answer.cluster.nvlink.domain
          ? ""
          : fmt::format(" (network {})", answer.cluster.network);
  std::string text =
      fmt::format("{} recording of {}, {} microbatches, on {}{}{}\n",
                  answer.realistic ? "realistic" : "scaling", recorded.str(), answer.microbatches,
                  answer.cluster.name, network, answer.changes.empty() ? "" : ", with " + answer.changes);
  if (answer.network.groups > 0) {
    const models::LinkLoad& busiest = answer.network.busiest;
    text += fmt::format("network: {} ms without contention", ms(answer.network.calibrated_us));
    if (!busiest.from.empty())
      text += fmt::format("; busiest link {} -> {}, {:.0f} %", busiest.from, busiest.to,
                          100 * busiest.utilisation);
    text += "\n";
  }
  if (explain && answer.overload) {
    const models::Overload& o = answer.overload->stages.back();
    text += fmt::format(
        "overload of the experts' ranks: avg {:.3f}, max {:.3f}, max_cum {:.3f} over {} layers and "
        "microbatches\n",
        o.avg, o.max, o.max_cum, answer.overload->entries);
  }
  if (explain && !answer.removed.empty()) text += answer.removed + "\n";
  if (answer.held) text += memory_text(answer, explain);
  return text + throughput_text(answer) + waiting_text(answer, explain);
}

}  // namespace

void print_replay(const RecordingForecast& answer, const replay::Topology& recorded, bool explain) {
  for (const std::string& note : answer.notes) print_text("warning: " + note + "\n", 2);
  print_answer(answer_text(answer));
  if (const auto both = replay::compared(std::span(&answer, 1)))
    print_text(models::sentence(*both) + "\n" + models::because(*both) + "\n");
  print("\n" + attribution_text(answer) + "\n" + ranks_text(answer, explain));
  print_text(remarks_text(answer, recorded, explain), 2);
  if (explain) print("\n" + operation_table(answer).text());
  if (explain) print("\n" + critical_path_text(answer.iteration));
  if (!answer.effect_gains_us.empty()) print("\n" + effect_table(answer).text());
}

}  // namespace moesim::tools

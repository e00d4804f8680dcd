#include "tools/moesim/sweeps/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/sweeps/sweep_csv.h"

namespace moesim::tools {

namespace {

std::size_t column_of(const std::vector<std::string>& columns, std::string_view name) {
  const auto at = std::find(columns.begin(), columns.end(), name);
  check(at != columns.end(), "a sweep has the column");
  return static_cast<std::size_t>(at - columns.begin());
}

double number_of(const std::string& cell) { return parse_number(cell).value_or(0); }

// Log scores of the scenarios that have one value of an axis, or a quarter of its values.
struct Group {
  std::string value;
  double sum = 0;
  std::size_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

}  // namespace

SweepSummary::SweepSummary(std::vector<std::string> columns, std::vector<std::string> axes)
    : columns_(std::move(columns)),
      axes_(std::move(axes)),
      priced_(std::find(columns_.begin(), columns_.end(), "cost_per_million_tokens") != columns_.end()),
      scenario_(column_of(columns_, "scenario")),
      time_(column_of(columns_, "time_us.value")),
      winner_(column_of(columns_, "winner")),
      fits_(column_of(columns_, "fits")),
      tokens_(column_of(columns_, "tokens_per_s_per_gpu")),
      cost_(priced_ ? column_of(columns_, "cost_per_million_tokens") : 0),
      dispatcher_(column_of(columns_, "dispatcher")),
      mfu_(column_of(columns_, "mfu")),
      memory_(column_of(columns_, "peak_memory_bytes.max")) {
  axis_columns_.reserve(axes_.size());
  for (const std::string& axis : axes_) axis_columns_.push_back(column_of(columns_, axis));
}

void SweepSummary::add(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (SweepRows::index_of(line)) take(row_cells(line, columns_));
  }
}

void SweepSummary::add_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw InputError(SourcePlace{path}, "cannot read");
  for (std::string line; std::getline(in, line);) add(line);
}

void SweepSummary::take(const std::vector<std::string>& cells) {
  const auto scenario = static_cast<std::uint64_t>(number_of(cells[scenario_]));
  const bool fresh = last_ != scenario;
  if (fresh) ++scenarios_, last_ = scenario;
  if (cells[time_].empty()) {
    if (fresh && cells[winner_].empty()) ++without_;
    return;
  }
  if (cells[winner_] != "true") return;
  Found one;
  one.scenario = scenario;
  one.fits = cells[fits_] == "true";
  if (!one.fits) ++too_big_;
  one.tokens = number_of(cells[tokens_]);
  one.cost = priced_ ? number_of(cells[cost_]) : 0;
  one.score = priced_ ? 1 / std::max(one.cost, 1e-300) : one.tokens;
  for (const std::size_t axis : axis_columns_) one.cells.push_back(cells[axis]);
  one.dispatcher = cells[dispatcher_];
  one.time_us = number_of(cells[time_]);
  one.mfu = number_of(cells[mfu_]);
  one.memory = number_of(cells[memory_]);
  keep_best(one);
  if (scenario % step_ != 0) return;
  found_.push_back(std::move(one));
  constexpr std::size_t kMost = 1 << 17;
  if (found_.size() < kMost) return;
  step_ *= 2;
  std::erase_if(found_, [&](const Found& other) { return other.scenario % step_ != 0; });
}

void SweepSummary::keep_best(const Found& one) {
  constexpr std::size_t kShown = 10;
  std::vector<Found>& best = one.fits ? best_ : best_too_big_;
  const auto at = std::upper_bound(best.begin(), best.end(), one,
                                   [](const Found& x, const Found& y) { return x.score > y.score; });
  best.insert(at, one);
  if (best.size() > kShown) best.pop_back();
}

std::string SweepSummary::sentence(const std::vector<Found>& best) const {
  if (best.empty()) return fmt::format("None of {} scenarios has a forecast.", scenarios_);
  const Found& first = best.front();
  std::vector<std::string> values;
  for (std::size_t a = 0; a < axes_.size(); ++a)
    if (axes_[a] != "dispatcher") values.push_back(fmt::format("{} = {}", axes_[a], first.cells[a]));
  return fmt::format("Best of {} scenarios{}: {} with {}: {:.0f} tokens/s/GPU{}.", scenarios_,
                     first.fits ? "" : ", none of which fits the memory", join(values, ", "),
                     first.dispatcher, first.tokens,
                     priced_ ? fmt::format(", {:.4g} a million tokens", first.cost) : "");
}

std::string SweepSummary::drivers() const {
  constexpr std::size_t kFew = 16;
  std::vector<std::pair<double, std::string>> lines;  // by how much it matters
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (axes_[a] == "dispatcher") continue;  // its column says who won
    std::map<std::string, Group> by_value;
    std::vector<std::pair<double, double>> numbers;  // value, log score
    for (const Found& one : found_) {
      if (one.score <= 0) continue;
      Group& group = by_value[one.cells[a]];
      group.value = one.cells[a];
      group.sum += std::log(one.score);
      ++group.count;
      if (const auto value = parse_number(one.cells[a])) numbers.emplace_back(*value, std::log(one.score));
    }
    std::vector<Group> groups;
    if (by_value.size() > kFew && numbers.size() == found_.size()) {
      std::sort(numbers.begin(), numbers.end());
      for (std::size_t q = 0; q < 4; ++q) {
        const std::size_t from = q * numbers.size() / 4, to = (q + 1) * numbers.size() / 4;
        Group& group = groups.emplace_back();
        group.value = fmt::format("{:.4g} to {:.4g}", numbers[from].first, numbers[to - 1].first);
        for (std::size_t i = from; i < to; ++i) group.sum += numbers[i].second, ++group.count;
      }
    } else {
      for (auto& [value, group] : by_value) groups.push_back(std::move(group));
    }
    if (groups.size() < 2) continue;
    const auto by_mean = [](const Group& x, const Group& y) { return x.mean() < y.mean(); };
    const auto [worst, best] = std::minmax_element(groups.begin(), groups.end(), by_mean);
    const double gain = std::exp(best->mean() - worst->mean());
    lines.emplace_back(gain, fmt::format("  {}: {:.2f} times from {} (worst) to {} (best)\n", axes_[a], gain,
                                         worst->value, best->value));
  }
  if (lines.empty()) return "";
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::string text = fmt::format("\nWhat matters most for {}, over the means of all other values:\n",
                                 priced_ ? "the cost of a token" : "tokens/s/GPU");
  for (const auto& [gain, line] : lines) text += line;
  return text;
}

std::string SweepSummary::text() const {
  const std::vector<Found>& best = best_.empty() ? best_too_big_ : best_;
  std::string text = sentence(best) + "\n";
  if (!best.empty()) {
    double longest = 0;
    for (const Found& one : best) longest = std::max(longest, one.time_us);
    const TimeUnit unit = TimeUnit::of(longest);
    std::vector<Table::Column> heads{{"scenario"}};
    for (const std::string& axis : axes_)
      if (axis != "dispatcher") heads.push_back({axis});
    heads.push_back({"dispatcher", Table::Align::kLeft});
    heads.push_back({unit.head("time")});
    heads.push_back({"tokens/s/GPU"});
    heads.push_back({priced_ ? "per 10^6 tokens" : "MFU"});
    heads.push_back({"memory [GB]"});
    Table table(heads);
    for (const Found& one : best) {
      std::vector<std::string> row{fmt::format("{}", one.scenario)};
      for (std::size_t a = 0; a < axes_.size(); ++a)
        if (axes_[a] != "dispatcher") row.push_back(one.cells[a]);
      row.push_back(one.dispatcher);
      row.push_back(unit.number(one.time_us));
      row.push_back(fmt::format("{:.0f}", one.tokens));
      row.push_back(priced_ ? fmt::format("{:.4g}", one.cost) : fmt::format("{:.1f} %", 100 * one.mfu));
      row.push_back(fmt::format("{:.1f}", one.memory * 1e-9));
      table.row(row);
    }
    text += "\n" + table.text();
  }
  text += drivers();
  if (!best_.empty() && too_big_ > 0)
    text += fmt::format("\n{} scenarios do not fit the memory and are not among the best.", too_big_);
  if (without_ > 0) text += fmt::format("\n{} scenarios have no forecast.", without_);
  if (text.back() != '\n') text += '\n';
  return text;
}

}  // namespace moesim::tools

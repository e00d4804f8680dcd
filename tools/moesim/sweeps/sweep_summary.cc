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

std::string styled(const std::string& cell, CellStyle style) {
  const auto number = parse_number(cell);
  if (!number) return cell;
  switch (style) {
    case CellStyle::kWhole:
      return fmt::format("{:.0f}", *number);
    case CellStyle::kThree:
      return fmt::format("{:.3g}", *number);
    case CellStyle::kFour:
      return fmt::format("{:.4g}", *number);
    case CellStyle::kPercent:
      return fmt::format("{:.1f} %", 100 * *number);
    case CellStyle::kGigabytes:
      return fmt::format("{:.1f}", *number * 1e-9);
    case CellStyle::kTime:
      return format_us(*number);
    case CellStyle::kText:
      break;
  }
  return cell;
}

// Folders that all paths of a column begin with tell nothing apart.
std::size_t common_folder(const std::vector<std::string>& paths) {
  std::size_t common = paths.front().size();
  for (const std::string& path : paths) {
    const auto differ = std::mismatch(path.begin(), path.end(), paths.front().begin(), paths.front().end());
    common = std::min(common, static_cast<std::size_t>(differ.first - path.begin()));
  }
  const std::size_t slash = paths.front().substr(0, common).rfind('/');
  return slash == std::string::npos ? 0 : slash + 1;
}

}  // namespace

SweepSummary::SweepSummary(std::vector<std::string> columns, std::vector<std::string> axes,
                           SummaryShape shape)
    : columns_(std::move(columns)),
      axes_(std::move(axes)),
      shape_(std::move(shape)),
      answered_(column_of(columns_, shape_.answered)),
      score_(column_of(columns_, shape_.score)) {
  const auto optional_column = [&](const std::string& name) {
    return name.empty() ? std::nullopt : std::optional(column_of(columns_, name));
  };
  winner_ = optional_column(shape_.winner);
  fits_ = optional_column(shape_.fits);
  with_ = optional_column(shape_.with);
  notes_ = optional_column(shape_.notes);
  // Its own column says who won.
  std::erase(axes_, shape_.with);
  for (const std::string& axis : axes_) axis_columns_.push_back(column_of(columns_, axis));
  for (const SummaryColumn& one : shape_.shown) shown_.push_back(column_of(columns_, one.column));
  for (const SummaryShape::Told& one : shape_.told) told_.push_back(column_of(columns_, one.column));
}

void SweepSummary::add(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (SweepTable::index_of(line)) take(row_cells(line, columns_));
  }
}

void SweepSummary::add_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw InputError(SourcePlace{path}, "cannot read");
  for (std::string line; std::getline(in, line);) add(line);
}

void SweepSummary::take(const std::vector<std::string>& cells) {
  const auto scenario = static_cast<std::uint64_t>(number_of(cells.front()));
  const bool fresh = last_ != scenario;
  if (fresh) ++scenarios_, last_ = scenario;
  if (cells[answered_].empty()) {
    if (fresh && (!winner_ || cells[*winner_].empty())) ++without_;
    return;
  }
  if (winner_ && cells[*winner_] != "true") return;
  constexpr std::size_t kMostNotes = 100;
  if (notes_ && !cells[*notes_].empty() && noted_.size() < kMostNotes) ++noted_[cells[*notes_]];
  Found one;
  one.scenario = scenario;
  one.fits = !fits_ || cells[*fits_] == "true";
  if (!one.fits) ++too_big_;
  if (const auto score = parse_number(cells[score_]))
    one.score = shape_.smaller ? 1 / std::max(*score, 1e-300) : *score;
  const auto take_all = [&](const std::vector<std::size_t>& from, std::vector<std::string>& to) {
    for (const std::size_t column : from) to.push_back(cells[column]);
  };
  take_all(axis_columns_, one.axes);
  take_all(shown_, one.shown);
  take_all(told_, one.told);
  if (with_) one.with = cells[*with_];
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
  if (best.empty()) return fmt::format("None of {} {} has a {}.", scenarios_, shape_.many, shape_.noun);
  const Found& first = best.front();
  std::vector<std::string> values, told;
  for (std::size_t a = 0; a < axes_.size(); ++a)
    values.push_back(fmt::format("{} = {}", axes_[a], first.axes[a]));
  for (std::size_t t = 0; t < told_.size(); ++t)
    if (!first.told[t].empty())
      told.push_back(
          fmt::format(fmt::runtime(shape_.told[t].words), styled(first.told[t], shape_.told[t].style)));
  return fmt::format("Best of {} {}{}: {}{}: {}.", scenarios_, shape_.many,
                     first.fits ? "" : ", " + shape_.none_fits, join(values, ", "),
                     with_ ? " with " + first.with : "", join(told, ", "));
}

std::string SweepSummary::drivers() const {
  constexpr std::size_t kFew = 16;
  std::vector<std::pair<double, std::string>> lines;  // by how much it matters
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    std::map<std::string, Group> by_value;
    std::vector<std::pair<double, double>> numbers;  // value, log score
    for (const Found& one : found_) {
      if (one.score <= 0) continue;
      Group& group = by_value[one.axes[a]];
      group.value = one.axes[a];
      group.sum += std::log(one.score);
      ++group.count;
      if (const auto value = parse_number(one.axes[a])) numbers.emplace_back(*value, std::log(one.score));
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
  std::string text =
      fmt::format("\nWhat matters most for {}, over the means of all other values:\n", shape_.score_words);
  for (const auto& [gain, line] : lines) text += line;
  return text;
}

std::string SweepSummary::best_table(const std::vector<Found>& best) const {
  std::vector<std::size_t> cut;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    std::vector<std::string> cells;
    for (const Found& one : best) cells.push_back(one.axes[a]);
    cut.push_back(common_folder(cells));
  }
  std::vector<Table::Column> heads{{"scenario"}};
  for (const std::string& axis : axes_) heads.push_back({axis});
  std::vector<TimeUnit> units;  // of the shown columns
  for (std::size_t s = 0; s < shown_.size(); ++s) {
    const SummaryColumn& column = shape_.shown[s];
    double longest = 0;
    for (const Found& one : best) longest = std::max(longest, number_of(one.shown[s]));
    units.push_back(TimeUnit::of(longest));
    heads.push_back({column.style == CellStyle::kTime ? units[s].head(column.head) : column.head,
                     column.style == CellStyle::kText ? Table::Align::kLeft : Table::Align::kRight});
  }
  Table table(heads);
  for (const Found& one : best) {
    std::vector<std::string> row{fmt::format("{}", one.scenario)};
    for (std::size_t a = 0; a < axes_.size(); ++a) row.push_back(one.axes[a].substr(cut[a]));
    for (std::size_t s = 0; s < shown_.size(); ++s)
      row.push_back(shape_.shown[s].style == CellStyle::kTime ? units[s].number(number_of(one.shown[s]))
                                                              : styled(one.shown[s], shape_.shown[s].style));
    table.row(row);
  }
  return table.text();
}

std::string SweepSummary::text() const {
  const std::vector<Found>& best = best_.empty() ? best_too_big_ : best_;
  std::string text = sentence(best) + "\n";
  if (!best.empty()) text += "\n" + best_table(best);
  text += drivers();
  if (!best_.empty() && too_big_ > 0)
    text += fmt::format("\n{} {} {} and are not among the best.", too_big_, shape_.many, shape_.not_best);
  if (without_ > 0) text += fmt::format("\n{} {} have no {}.", without_, shape_.many, shape_.noun);
  if (text.back() != '\n') text += '\n';
  constexpr std::size_t kShownNotes = 5;
  std::size_t shown = 0;
  for (const auto& [note, count] : noted_)
    if (shown++ < kShownNotes) text += fmt::format("\nof {} {}: {}\n", count, shape_.many, note);
  if (noted_.size() > kShownNotes)
    text += fmt::format("{} more notes are in the table\n", noted_.size() - kShownNotes);
  return text;
}

}  // namespace moesim::tools

#include "tools/moesim/study/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/question/paths.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

// Log scores of the scenarios with one value of an axis, or a quarter of its values.
struct Group {
  std::string value;
  double sum = 0;
  std::size_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

// Returns the length of the folder common to all paths of a column, which distinguishes nothing.
std::size_t common_folder(const std::vector<std::string>& paths) {
  std::size_t common = paths.front().size();
  for (const std::string& path : paths) {
    const auto differ = std::mismatch(path.begin(), path.end(), paths.front().begin(), paths.front().end());
    common = std::min(common, static_cast<std::size_t>(differ.first - path.begin()));
  }
  const std::size_t slash = paths.front().substr(0, common).rfind('/');
  return slash == std::string::npos ? 0 : slash + 1;
}

bool beats(const std::vector<double>& a, const std::vector<double>& b) {
  bool better = false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    better = better || a[i] < b[i];
  }
  return better || a == b;
}

// The rows of a front. It takes them one by one, so that a file of any length can be read.
class Front {
 public:
  void add(std::vector<double> point, Cells row) {
    for (const auto& [present, other] : rows_)
      if (beats(present, point)) return;
    std::erase_if(rows_, [&](const auto& one) { return beats(point, one.first); });
    rows_.emplace_back(std::move(point), std::move(row));
  }
  // In the order of the first coordinate; equal points in the order of the file.
  const std::vector<std::pair<std::vector<double>, Cells>>& sorted() {
    std::ranges::stable_sort(rows_, {}, &std::pair<std::vector<double>, Cells>::first);
    return rows_;
  }

 private:
  std::vector<std::pair<std::vector<double>, Cells>> rows_;
};

struct Objective {
  std::size_t column = 0;
  double sign = 1;
};

std::vector<Objective> objectives_of(const std::string& columns, const SweepTable& table) {
  std::vector<Objective> objectives;
  for (const std::string_view part : split(columns, ',')) {
    std::string_view name = trim(part);
    const double sign = name.starts_with('-') ? -1 : 1;
    if (sign < 0) name.remove_prefix(1);
    const auto found = table.find(name);
    if (!found) {
      std::vector<std::string> names;
      for (const SweepColumn& column : table.columns()) names.push_back(column.name);
      throw InputError(fmt::format("--pareto: found {}, expected columns of the table{}", in_quotes(name),
                                   did_you_mean(name, names)));
    }
    objectives.push_back({*found, sign});
  }
  return objectives;
}

bool says_something(const std::string& column, const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return false;
  return !column.starts_with("breakdown_us.") || number_of(cell).value_or(0) != 0;
}

ordered_json json_of(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return nullptr;
        else
          return value;
      },
      cell);
}

}  // namespace

SweepSummary::SweepSummary(const SweepTable& table, SummaryShape shape)
    : table_(table),
      shape_(std::move(shape)),
      answered_(table_.at(shape_.answered)),
      score_(table_.at(shape_.score)),
      winner_(table_.find(shape_.winner)),
      fits_(table_.find(shape_.fits)),
      with_(table_.find(shape_.with)),
      notes_(table_.find(shape_.notes)),
      error_(table_.at("error")) {
  // The winner has its own column.
  for (const std::string& axis : table_.axes())
    if (axis != shape_.with) axes_.push_back(table_.at(axis));
  for (const std::string& column : shape_.shown) shown_.push_back(table_.at(column));
}

void SweepSummary::add(const SweepRow& row) {
  const Cells& cells = row.cells;
  const auto empty = [&](std::size_t column) {
    return std::holds_alternative<std::monostate>(cells[column]);
  };
  const bool fresh = last_ != row.scenario;
  if (fresh) ++scenarios_, last_ = row.scenario;
  if (empty(answered_)) {
    if (fresh && (!winner_ || empty(*winner_)) && without_++ == 0)
      first_error_ = table_.text(error_, cells[error_]);
    return;
  }
  if (winner_ && cells[*winner_] != Cell(true)) return;
  constexpr std::size_t kMostNotes = 100;
  if (notes_ && !empty(*notes_) && noted_.size() < kMostNotes) ++noted_[table_.text(*notes_, cells[*notes_])];
  Found one{row.scenario, 0, !fits_ || cells[*fits_] != Cell(false), cells};
  if (!one.fits) ++too_big_;
  if (const auto score = number_of(cells[score_]))
    one.score = shape_.smaller ? 1 / std::max(*score, 1e-300) : *score;
  keep_best(one);
  if (row.scenario % step_ != 0) return;
  Sample& sample = samples_.emplace_back(Sample{row.scenario, one.score, one.fits, {}});
  for (const std::size_t axis : axes_) sample.axes.push_back(cells[axis]);
  constexpr std::size_t kMost = 1 << 17;
  if (samples_.size() < kMost) return;
  step_ *= 2;
  std::erase_if(samples_, [&](const Sample& other) { return other.scenario % step_ != 0; });
}

std::string SweepSummary::styled(std::size_t column, const Cell& cell) const {
  const auto number = number_of(cell);
  if (!number) return table_.text(column, cell);
  switch (table_.columns()[column].style) {
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
  return table_.text(column, cell);
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
  for (const std::size_t axis : axes_)
    values.push_back(
        fmt::format("{} = {}", table_.columns()[axis].name, table_.text(axis, first.cells[axis])));
  for (std::size_t c = 0; c < first.cells.size(); ++c)
    if (const std::string& words = table_.columns()[c].told;
        !words.empty() && !std::holds_alternative<std::monostate>(first.cells[c]))
      told.push_back(fmt::format(fmt::runtime(words), styled(c, first.cells[c])));
  return fmt::format("Best of {} {}{}: {}{}: {}.", scenarios_, shape_.many,
                     first.fits ? "" : ", " + shape_.none_fits, join(values, ", "),
                     with_ ? " with " + table_.text(*with_, first.cells[*with_]) : "", join(told, ", "));
}

// Returns the points that an axis is judged by, of those that best_table() shows the best of, with their log
// scores. Where points differ in this axis alone, these are compared: a value that fits only beside good
// values of other axes is no better for it.
std::vector<std::pair<const SweepSummary::Sample*, double>> SweepSummary::compared(std::size_t axis) const {
  std::map<std::string, std::vector<const Sample*>> by_others;
  bool paired = false;
  for (const Sample& one : samples_) {
    if (one.score <= 0 || one.fits == best_.empty()) continue;
    std::string others;
    for (std::size_t a = 0; a < axes_.size(); ++a)
      if (a != axis) others += table_.text(axes_[a], one.axes[a]) + '\n';
    std::vector<const Sample*>& alike = by_others[others];
    alike.push_back(&one);
    paired = paired || alike.size() > 1;
  }
  std::vector<std::pair<const Sample*, double>> all;
  for (const auto& [others, alike] : by_others) {
    if (paired && alike.size() < 2) continue;
    double mean = 0;
    for (const Sample* one : alike) mean += std::log(one->score) / static_cast<double>(alike.size());
    for (const Sample* one : alike) all.emplace_back(one, std::log(one->score) - (paired ? mean : 0));
  }
  return all;
}

std::string SweepSummary::drivers() const {
  constexpr std::size_t kFew = 16;
  std::vector<std::pair<double, std::string>> lines;  // by importance
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    std::map<std::string, Group> by_value;
    std::vector<std::pair<double, double>> numbers;  // value, log score
    const auto samples = compared(a);
    for (const auto& [one, score] : samples) {
      const std::string value = table_.text(axes_[a], one->axes[a]);
      Group& group = by_value[value];
      group.value = value;
      group.sum += score;
      ++group.count;
      if (const auto number = number_of(one->axes[a])) numbers.emplace_back(*number, score);
    }
    std::vector<Group> groups;
    if (by_value.size() > kFew && numbers.size() == samples.size()) {
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
    const std::string& name = table_.columns()[axes_[a]].name;
    lines.emplace_back(gain, gain < 1.005 ? fmt::format("  {}: no effect\n", name)
                                          : fmt::format("  {}: {:.2f} times from {} (worst) to {} (best)\n",
                                                        name, gain, worst->value, best->value));
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
  std::vector<Table::Column> heads{{"scenario"}};
  std::vector<std::size_t> cut;  // of the axes
  for (const std::size_t axis : axes_) {
    std::vector<std::string> cells;
    cells.reserve(best.size());
    for (const Found& one : best) cells.push_back(table_.text(axis, one.cells[axis]));
    cut.push_back(common_folder(cells));
    heads.push_back({table_.columns()[axis].name});
  }
  std::vector<TimeUnit> units;  // of the shown columns
  for (const std::size_t s : shown_) {
    const SweepColumn& column = table_.columns()[s];
    double longest = 0;
    for (const Found& one : best) longest = std::max(longest, number_of(one.cells[s]).value_or(0));
    units.push_back(TimeUnit::of(longest));
    // The table is the score's; other figures go where the terminal is narrow.
    const bool spare = s != score_ && column.style != CellStyle::kText && column.style != CellStyle::kTime;
    heads.push_back({column.style == CellStyle::kTime ? units.back().head(column.head) : column.head,
                     column.style == CellStyle::kText ? Table::Align::kLeft : Table::Align::kRight, spare});
  }
  Table table(heads);
  for (const Found& one : best) {
    std::vector<std::string> row{fmt::format("{}", one.scenario)};
    for (std::size_t a = 0; a < axes_.size(); ++a)
      row.push_back(table_.text(axes_[a], one.cells[axes_[a]]).substr(cut[a]));
    for (std::size_t s = 0; s < shown_.size(); ++s) {
      const Cell& cell = one.cells[shown_[s]];
      row.push_back(table_.columns()[shown_[s]].style == CellStyle::kTime
                        ? units[s].number(number_of(cell).value_or(0))
                        : styled(shown_[s], cell));
    }
    table.row(row);
  }
  return table.text();
}

std::string SweepSummary::text() const {
  const std::vector<Found>& best = best_.empty() ? best_too_big_ : best_;
  std::string text = inked(in_lines(sentence(best)), Ink::kBold) + "\n";
  if (!best.empty()) text += "\n" + best_table(best);
  text += drivers();
  std::string below = shape_.asked.empty() ? "" : "\n" + shape_.asked + "\n";
  if (!best_.empty() && too_big_ > 0)
    below += fmt::format("\nNot among the best {}: {} of {} {}.\n", shape_.not_best, too_big_, scenarios_,
                         shape_.many);
  if (without_ > 0)
    below += fmt::format("\nWithout a {}: {} of {} {}; the first: {}\n", shape_.noun, without_, scenarios_,
                         shape_.many, first_error_);
  constexpr std::size_t kShownNotes = 5;
  std::size_t shown = 0;
  for (const auto& [note, count] : noted_)
    if (shown++ < kShownNotes)
      below += fmt::format("\n{} of {} {}: {}\n", count, scenarios_, shape_.many, note);
  if (noted_.size() > kShownNotes)
    below += fmt::format("{} more notes are in the table\n", noted_.size() - kShownNotes);
  return text + in_lines(below, 2);
}

void check_pareto_columns(const std::string& columns, const SweepTable& table) {
  objectives_of(columns, table);
}

namespace {

// The rows that nothing beats.
struct Pareto {
  std::vector<ordered_json> rows;
  std::size_t too_big;
};

Columns<Pareto> columns_of(Of<Pareto>) {
  const ordered_json row{{"type", "object"},
                         {"required", {"scenario"}},
                         {"additionalProperties", {{"type", {"number", "string"}}}}};
  return {{"pareto", &Pareto::rows, {"columns that were swept over or named", {{"items", row}}}},
          {"left_out", {{"does_not_fit", &Pareto::too_big}}}};
}

}  // namespace

const ResultSchema kParetoSchema("sweep-pareto", "sweep --pareto COLUMNS", schema_of<Pareto>);

void print_pareto(const std::string& csv_file, const std::string& columns, const SweepTable& table,
                  const SummaryShape& shape, const CommonOptions& common) {
  const std::vector<Objective> objectives = objectives_of(columns, table);
  const auto fits = table.find(shape.fits), with = table.find(shape.with);
  Front front;
  std::size_t too_big = 0;
  table.read_file(csv_file, [&](SweepRow&& row) {
    if (fits && row.cells[*fits] == Cell(false)) {
      ++too_big;
      return;
    }
    std::vector<double> point;
    for (const auto& [column, sign] : objectives)
      if (const auto value = number_of(row.cells[column])) point.push_back(sign * *value);
    if (point.size() == objectives.size()) front.add(std::move(point), std::move(row.cells));
  });
  // The inputs, the dispatcher and the objectives.
  std::vector<std::size_t> shown(table.inputs());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (with) shown.push_back(*with);
  for (const auto& [column, sign] : objectives)
    if (std::find(shown.begin(), shown.end(), column) == shown.end()) shown.push_back(column);
  std::vector<Table::Column> heads;
  heads.reserve(shown.size());
  for (const std::size_t c : shown)
    heads.push_back({table.columns()[c].name, with == c ? Table::Align::kLeft : Table::Align::kRight});
  Table printed(heads);
  Pareto found{{}, too_big};
  for (const auto& [point, row] : front.sorted()) {
    std::vector<std::string> cells;
    ordered_json object;
    for (const std::size_t c : shown) {
      cells.push_back(table.text(c, row[c]));
      ordered_json& value = object[table.columns()[c].name];
      if (const auto number = number_of(row[c]))
        value = *number;
      else
        value = cells.back();
    }
    printed.row(cells);
    found.rows.push_back(std::move(object));
  }
  if (common.format == Format::kJson) {
    print_result("sweep", describe_inputs(common), json_of(found));
  } else if (common.format == Format::kCsv) {
    print(printed.csv());
  } else {
    print(printed.text());
    if (too_big > 0) print(fmt::format("left out {}: {} rows\n", shape.not_best, too_big));
  }
}

void SweepReport::add(SweepRow row) {
  if (row.scenario != last_) ++scenarios_, last_ = row.scenario;
  if (row.scenario % step_ != 0) return;
  bytes_ += row.bytes;
  rows_.push_back(std::move(row));
  if (bytes_ > most_bytes_) thin_out();
}

void SweepReport::thin_out() {
  step_ *= 2;
  std::erase_if(rows_, [&](const SweepRow& row) { return row.scenario % step_ != 0; });
  bytes_ = 0;
  for (const SweepRow& row : rows_) bytes_ += row.bytes;
}

void SweepReport::add_to(ordered_json& result) const {
  result["scenarios"] = scenarios_;
  if (step_ > 1) result["left_out"] = fmt::format("all but every {}th scenario", step_);
  result["columns"] = ordered_json::array();
  std::vector<std::size_t> used;
  for (std::size_t c = 0; c < table_.columns().size(); ++c) {
    const std::string& name = table_.columns()[c].name;
    // The page looks these up by name.
    if (name == "scenario" || name == "dispatcher" || name == "error" ||
        std::any_of(rows_.begin(), rows_.end(),
                    [&](const SweepRow& row) { return says_something(name, row.cells[c]); })) {
      used.push_back(c);
      result["columns"].push_back(name);
    }
  }
  // Units of the paths, whose values are in SI units.
  result["units"] = ordered_json::object();
  for (std::size_t c = 1; c < table_.columns().size() && table_.columns()[c].name != "dispatcher"; ++c) {
    const std::string& name = table_.columns()[c].name;
    const auto path = std::ranges::find(models::scenario_paths(), name, &models::ScenarioPath::path);
    if (path == models::scenario_paths().end()) continue;
    if (const auto [unit, one] = models::unit_of(*path); *unit != '\0')
      result["units"][name] = {{"name", unit}, {"one", one}};
  }
  result["rows"] = ordered_json::array();
  for (const SweepRow& row : rows_) {
    ordered_json cells = ordered_json::array();
    for (const std::size_t c : used) cells.push_back(json_of(row.cells[c]));
    result["rows"].push_back(std::move(cells));
  }
}

}  // namespace moesim::tools

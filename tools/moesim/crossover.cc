#include "tools/moesim/crossover.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "tools/moesim/output.h"
#include "tools/moesim/sweep_scenario.h"
#include "tools/moesim/whatif_report.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kProbes = 17;
constexpr std::size_t kMostBisected = 65536;  // values of a stepped range
constexpr double kPrecision = 1e-3;           // relative width of a bracket of a path that does not count
constexpr double kSure = 0.95;
constexpr std::size_t kMostCells = 100'000;

ScenarioDocument taking_part(const ScenarioDocument& base, const std::string& between) {
  ScenarioDocument document = base;
  if (!between.empty()) document.set(find_path("dispatcher"), between);
  return document;
}

// The share of the draws (or the nominal times) under which `name` is at least as fast as `other`.
double share_of(const Evaluation& e, const std::string& name, const std::string& other) {
  const Answer *a = nullptr, *b = nullptr;
  for (const Answer& one : e.answers) {
    if (one.dispatcher == name) a = &one;
    if (one.dispatcher == other) b = &one;
  }
  if (!a || !a->ok()) return 0;
  if (!b || !b->ok()) return 1;
  if (a->draws_us.empty()) return a->time_us.value <= b->time_us.value ? 1 : 0;
  double wins = 0;
  for (std::size_t d = 0; d < a->draws_us.size(); ++d)
    wins += a->draws_us[d] < b->draws_us[d] ? 1 : a->draws_us[d] == b->draws_us[d] ? 0.5 : 0;
  return wins / static_cast<double>(a->draws_us.size());
}

double log_ratio(const Evaluation& e, const std::string& from, const std::string& to) {
  double a = 0, b = 0;
  for (const Answer& one : e.answers) {
    if (one.dispatcher == from && one.ok()) a = one.time_us.value;
    if (one.dispatcher == to && one.ok()) b = one.time_us.value;
  }
  return a > 0 && b > 0 ? std::log(b / a) : 0;
}

// Answers along the range, each made once.
class Line {
 public:
  Line(ScenarioDocument base, const SweepRange& range, int draws)
      : range_(range), maker_(std::move(base), {range.path}), draws_(draws) {}

  bool counts() const { return !range_.range || range_.stepped; }
  const std::map<double, Evaluation>& answers() const { return answers_; }
  const std::map<double, std::string>& illegal() const { return illegal_; }

  // nullptr where there is no forecast.
  const Evaluation* at(double value) {
    if (const auto found = answers_.find(value); found != answers_.end()) return &found->second;
    if (illegal_.contains(value)) return nullptr;
    try {
      Evaluation e = evaluate(maker_.make({value_of(range_.path, value)}), {draws_, false});
      if (!e.fastest()) return nullptr;
      return &answers_.emplace(value, std::move(e)).first->second;
    } catch (const InputError& error) {
      illegal_.emplace(value, error.what());
      return nullptr;
    }
  }

  // A value between two that has a forecast, near their middle; nullopt when they are neighbours.
  std::optional<double> between(double low, double high) {
    if (counts()) {
      std::vector<double> inner;
      for (const PathValue& value : range_.values)
        if (value.number > low && value.number < high) inner.push_back(value.number);
      // From the middle outwards.
      const std::size_t middle = inner.size() / 2;
      for (std::size_t step = 0; step <= inner.size(); ++step) {
        if (middle + step < inner.size() && at(inner[middle + step])) return inner[middle + step];
        if (step > 0 && step <= middle && at(inner[middle - step])) return inner[middle - step];
      }
      return std::nullopt;
    }
    const double scale =
        std::max({std::abs(low), std::abs(high), 1e-12 * std::abs(range_.high - range_.low)});
    if (high - low <= kPrecision * scale) return std::nullopt;
    const double middle = range_.logarithmic ? std::sqrt(low * high) : low + (high - low) / 2;
    return at(middle) ? std::optional(middle) : std::nullopt;
  }

 private:
  const SweepRange& range_;
  ScenarioMaker maker_;
  int draws_;
  std::map<double, Evaluation> answers_;
  std::map<double, std::string> illegal_;
};

// Narrows [low, high] while `left` tells on which side a value lies.
std::pair<double, double> bisect(Line& line, double low, double high,
                                 const std::function<bool(const Evaluation&)>& left) {
  while (const auto middle = line.between(low, high)) (left(*line.at(*middle)) ? low : high) = *middle;
  return {low, high};
}

// How far from the crossing `name` wins surely: the value where it begins, walking from `start` over the
// probes up to `limit`.
std::pair<double, bool> sure_from(Line& line, const std::vector<double>& probes, double start, double limit,
                                  const std::string& name, const std::string& other) {
  const bool down = limit < start;
  std::vector<double> way;
  for (const double probe : probes)
    if (down ? probe <= start && probe >= limit : probe >= start && probe <= limit) way.push_back(probe);
  if (down) std::reverse(way.begin(), way.end());
  double previous = start;
  for (const double probe : way) {
    if (share_of(*line.at(probe), name, other) >= kSure) {
      if (probe == previous) return {probe, false};
      const double low = std::min(probe, previous), high = std::max(probe, previous);
      const auto [below, above] = bisect(
          line, low, high, [&](const Evaluation& e) { return (share_of(e, name, other) >= kSure) == down; });
      return {down ? below : above, false};
    }
    previous = probe;
  }
  return {limit, true};
}

}  // namespace

CrossoverResult find_crossovers(const ScenarioDocument& base, const SweepRange& range,
                                const std::string& between, int draws) {
  if (range.values.size() > kMostBisected)
    throw InputError(fmt::format("{}: found {} values, expected at most {}; give a larger step",
                                 range.path.path, range.values.size(), kMostBisected));
  Line line(taking_part(base, between), range, draws);
  if (line.counts()) {
    const std::size_t n = range.values.size();
    // Values without a forecast are skipped: all of a short range, and neighbours of a probe in a long one.
    for (std::size_t i = 0; i < n; ++i)
      if (n <= 2 * kProbes) line.at(range.values[i].number);
    if (n > 2 * kProbes)
      for (std::size_t p = 0; p < kProbes; ++p) {
        const std::size_t from = p * (n - 1) / (kProbes - 1),
                          to = p + 1 < kProbes ? (p + 1) * (n - 1) / (kProbes - 1) : n;
        for (std::size_t i = from; i < to && !line.at(range.values[i].number); ++i) {
        }
      }
  } else {
    for (const PathValue& value : range.spread(kProbes)) line.at(value.number);
  }
  if (line.answers().empty())
    throw InputError(line.illegal().empty() ? "crossover: found no value, expected a range"
                                            : line.illegal().begin()->second);
  std::vector<double> probes;
  for (const auto& [value, e] : line.answers()) probes.push_back(value);

  CrossoverResult result;
  for (std::size_t i = 0; i + 1 < probes.size(); ++i) {
    double low = probes[i];
    // A third dispatcher may win in between: then there are several changes.
    while (line.at(low)->fastest()->dispatcher != line.at(probes[i + 1])->fastest()->dispatcher) {
      Crossover c;
      c.from = line.at(low)->fastest()->dispatcher;
      const auto [below, above] = bisect(
          line, low, probes[i + 1], [&](const Evaluation& e) { return e.fastest()->dispatcher == c.from; });
      c.to = line.at(above)->fastest()->dispatcher;
      c.below = below;
      c.above = above;
      // Where the logarithms of the times, linear in between, are equal.
      const double before = log_ratio(*line.at(below), c.from, c.to),
                   after = log_ratio(*line.at(above), c.from, c.to);
      c.value = before > after ? below + (above - below) * before / (before - after) : below;
      result.crossings.push_back(c);
      low = above;
    }
  }
  for (std::size_t i = 0; i < result.crossings.size(); ++i) {
    Crossover& c = result.crossings[i];
    const double first = i > 0 ? result.crossings[i - 1].above : probes.front();
    const double last = i + 1 < result.crossings.size() ? result.crossings[i + 1].below : probes.back();
    std::vector<double> known;
    for (const auto& [value, e] : line.answers()) known.push_back(value);
    std::tie(c.low, c.low_open) = sure_from(line, known, c.below, first, c.from, c.to);
    std::tie(c.high, c.high_open) = sure_from(line, known, c.above, last, c.to, c.from);
  }
  for (const auto& [value, e] : line.answers()) {
    CrossoverResult::Point point{value, e.fastest()->dispatcher, e.probability, {}};
    for (const Answer& a : e.answers)
      if (a.ok()) point.time_us.emplace_back(a.dispatcher, a.time_us);
    result.points.push_back(std::move(point));
  }
  for (const auto& [value, why] : line.illegal()) result.illegal.emplace_back(value, why);
  return result;
}

namespace {

ordered_json crossover_json(const Crossover& c) {
  return {{"from", c.from},
          {"to", c.to},
          {"below", c.below},
          {"above", c.above},
          {"at", {{"value", c.value}, {"low", c.low}, {"high", c.high}}},
          {"low_open", c.low_open},
          {"high_open", c.high_open}};
}

Table point_table(const CrossoverResult& r, const SweepRange& range) {
  std::vector<std::string> names;
  for (const auto& point : r.points)
    for (const auto& [name, time] : point.time_us)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<Table::Column> columns{{range.path.path}};
  for (const std::string& name : names) columns.push_back({name + " [us]"});
  columns.push_back({"fastest", Table::Align::kLeft});
  columns.push_back({"probability"});
  Table table(columns);
  for (const auto& point : r.points) {
    std::vector<std::string> cells{shown(range.path, point.value)};
    for (const std::string& name : names) {
      const auto found = std::find_if(point.time_us.begin(), point.time_us.end(),
                                      [&](const auto& one) { return one.first == name; });
      cells.push_back(found == point.time_us.end() ? "-" : microseconds(found->second.value));
    }
    cells.push_back(point.fastest);
    cells.push_back(fmt::format("{:.2f}", point.probability));
    table.row(cells);
  }
  return table;
}

std::string sentence(const Crossover& c, const SweepRange& range) {
  const bool counts = !range.range || range.stepped;
  const std::string where = counts
                                ? fmt::format("from {} = {} on", range.path.path, shown(range.path, c.above))
                                : fmt::format("above {} = {}", range.path.path, shown(range.path, c.value));
  std::string text = fmt::format("{} is the fastest {}, {} below.", c.to, where, c.from);
  const std::string low = c.low_open ? fmt::format("nowhere from {} on", shown(range.path, c.low))
                                     : fmt::format("up to {}", shown(range.path, c.low));
  const std::string high = c.high_open ? fmt::format("nowhere up to {}", shown(range.path, c.high))
                                       : fmt::format("from {} on", shown(range.path, c.high));
  return text + fmt::format(" Sure (probability 0.95): {} {}, {} {}.", c.from, low, c.to, high);
}

}  // namespace

int run_crossover(const ScenarioDocument& base, const std::string& text, const std::string& between,
                  int draws, const CommonOptions& common) {
  const SweepRange range = SweepRange::parse_assignment(text, "--crossover");
  if (range.path.kind == PathKind::kText || range.path.kind == PathKind::kFlag)
    throw InputError(fmt::format("--crossover: found {}, expected a path that is a number", range.path.path));
  const CrossoverResult r = find_crossovers(base, range, between, draws);
  if (common.format == Format::kJson) {
    ordered_json result = envelope("whatif", whatif_inputs(base, common), {});
    result["path"] = range.path.path;
    result["crossovers"] = ordered_json::array();
    for (const Crossover& c : r.crossings) result["crossovers"].push_back(crossover_json(c));
    result["points"] = ordered_json::array();
    for (const auto& point : r.points) {
      ordered_json times = ordered_json::object();
      for (const auto& [name, time] : point.time_us) times[name] = estimate_json(time);
      result["points"].push_back({{"value", point.value},
                                  {"fastest", point.fastest},
                                  {"probability", point.probability},
                                  {"time_us", std::move(times)}});
    }
    result["without_forecast"] = ordered_json::array();
    for (const auto& [value, why] : r.illegal)
      result["without_forecast"].push_back({{"value", value}, {"error", why}});
    print_json(result);
    return 0;
  }
  if (common.format == Format::kCsv) {
    print(point_table(r, range).csv());
    return 0;
  }
  print(point_table(r, range).text() + "\n");
  for (const Crossover& c : r.crossings) print(sentence(c, range) + "\n");
  if (r.crossings.empty())
    print(fmt::format("No crossover: {} is the fastest from {} to {}.\n", r.points.front().fastest,
                      shown(range.path, r.points.front().value), shown(range.path, r.points.back().value)));
  if (!r.illegal.empty())
    print(fmt::format("{} values have no forecast; the first, {}: {}\n", r.illegal.size(),
                      shown(range.path, r.illegal.front().first), r.illegal.front().second));
  return 0;
}

int run_map(const ScenarioDocument& base, const std::vector<std::string>& texts, const std::string& between,
            int draws, const CommonOptions& common) {
  if (texts.size() != 2) throw InputError(fmt::format("--map: found {} ranges, expected two", texts.size()));
  const SweepRange across = SweepRange::parse_assignment(texts[0], "--map"),
                   down = SweepRange::parse_assignment(texts[1], "--map");
  constexpr std::size_t kDefault = 9;
  const std::vector<PathValue> columns = across.spread(kDefault), rows = down.spread(kDefault);
  if (columns.size() * rows.size() > kMostCells)
    throw InputError(fmt::format("--map: found {} x {} scenarios, expected at most {}", columns.size(),
                                 rows.size(), kMostCells));
  ScenarioMaker maker(taking_part(base, between), {across.path, down.path});
  struct Cell {
    std::string fastest, error;
    double probability = 0, speedup = 1;
  };
  std::vector<std::vector<Cell>> cells;
  std::size_t without = 0;
  std::string first_error;
  for (const PathValue& y : rows) {
    cells.emplace_back();
    for (const PathValue& x : columns) {
      Cell& cell = cells.back().emplace_back();
      try {
        const Evaluation e = evaluate(maker.make({x, y}), {draws, false});
        const Answer& best = *e.fastest();
        cell.fastest = best.dispatcher;
        cell.probability = e.probability;
        double second = 0;
        for (const Answer& a : e.answers)
          if (&a != &best && a.ok() && a.not_ranked.empty() && (second == 0 || a.time_us.value < second))
            second = a.time_us.value;
        if (second > 0) cell.speedup = second / best.time_us.value;
      } catch (const InputError& error) {
        cell.error = error.what();
        ++without;
        if (first_error.empty()) first_error = cell.error;
      }
    }
  }
  if (without == rows.size() * columns.size()) throw InputError(first_error);
  if (common.format != Format::kTable) {
    Table table({{across.path.path},
                 {down.path.path},
                 {"fastest", Table::Align::kLeft},
                 {"probability"},
                 {"speedup"},
                 {"error", Table::Align::kLeft}});
    ordered_json list = ordered_json::array();
    for (std::size_t y = 0; y < rows.size(); ++y)
      for (std::size_t x = 0; x < columns.size(); ++x) {
        const Cell& c = cells[y][x];
        const bool ok = c.error.empty();
        table.row({columns[x].text, rows[y].text, c.fastest, ok ? fmt::format("{:.4f}", c.probability) : "",
                   ok ? fmt::format("{:.6f}", c.speedup) : "", c.error});
        ordered_json j{{across.path.path, columns[x].json}, {down.path.path, rows[y].json}};
        if (ok)
          j["fastest"] = c.fastest, j["probability"] = c.probability, j["speedup"] = c.speedup;
        else
          j["error"] = c.error;
        list.push_back(std::move(j));
      }
    if (common.format == Format::kCsv) {
      print(table.csv());
      return 0;
    }
    ordered_json result = envelope("whatif", whatif_inputs(base, common), {});
    result["map"] = std::move(list);
    print_json(result);
    return 0;
  }
  std::vector<Table::Column> heads{{down.path.path + " \\ " + across.path.path}};
  std::vector<std::size_t> used;  // columns with any forecast
  for (std::size_t x = 0; x < columns.size(); ++x)
    if (std::any_of(cells.begin(), cells.end(), [&](const auto& row) { return row[x].error.empty(); })) {
      used.push_back(x);
      heads.push_back({columns[x].text, Table::Align::kLeft});
    }
  Table table(heads);
  for (std::size_t y = 0; y < rows.size(); ++y) {
    if (std::all_of(cells[y].begin(), cells[y].end(), [](const Cell& c) { return !c.error.empty(); }))
      continue;
    std::vector<std::string> line{rows[y].text};
    for (const std::size_t x : used) {
      const Cell& c = cells[y][x];
      line.push_back(!c.error.empty() ? "-" : c.fastest + (c.probability < kSure ? "?" : ""));
    }
    table.row(line);
  }
  print(table.text());
  print("\n?: the fastest with a probability below 0.95\n");
  if (without > 0)
    print(fmt::format(
        "{} of {} scenarios have no forecast (rows and columns without any are left out); the first: {}\n",
        without, rows.size() * columns.size(), first_error));
  return 0;
}

}  // namespace moesim::tools

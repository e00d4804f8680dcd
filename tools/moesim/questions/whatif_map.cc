#include "tools/moesim/questions/whatif_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/answers/answer.h"
#include "models/study/study.h"
#include "tools/moesim/questions/crossover.h"
#include "tools/moesim/questions/whatif_change.h"
#include "tools/moesim/questions/whatif_map_svg.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kDefaultValues = 9;
constexpr std::size_t kMostCells = 100'000;
constexpr std::size_t kMostWarnings = 8;  // a map has one for every message size

MapCell cell_of(const Comparison& e) {
  MapCell cell;
  const Answer& best = *e.shortest();
  cell.fastest = best.dispatcher;
  cell.probability = e.decision.probability_of(e.decision.shortest);
  cell.fits = e.decision.verdict != models::Decision::Verdict::kNoneFits;
  double second = 0;
  for (const Answer& a : e.answers) {
    if (!a.ok()) continue;
    cell.time_us.emplace_back(a.dispatcher, a.time_us.value);
    if (&a != &best && a.ranked() && (second == 0 || a.time_us.value < second)) second = a.time_us.value;
  }
  cell.warnings = e.warnings;
  if (second > 0) cell.speedup = second / best.time_us.value;
  return cell;
}

ordered_json axis_json(const ScenarioPath& path, const std::vector<PathValue>& values) {
  ordered_json list = ordered_json::array();
  ordered_json texts = ordered_json::array();
  for (const PathValue& value : values) {
    list.push_back(ordered_json(value.json));
    texts.push_back(value.json.is_number() ? shown(path, value.json.get<double>()) : value.text);
  }
  return {{"path", path.path}, {"values", std::move(list)}, {"shown", std::move(texts)}};
}

ordered_json map_json(const WinnerMap& map) {
  ordered_json list = ordered_json::array();
  for (std::size_t y = 0; y < map.rows.size(); ++y)
    for (std::size_t x = 0; x < map.columns.size(); ++x) {
      const MapCell& c = map.at(y, x);
      ordered_json j;
      j[map.across.path] = map.columns[x].json;
      j[map.down.path] = map.rows[y].json;
      if (c.ok()) {
        j["fastest"] = c.fastest;
        j["probability"] = or_null(c.probability);
        j["speedup"] = c.speedup;
        j["fits"] = c.fits;
        for (const auto& [name, us] : c.time_us) j["time_us"][name] = us;
      } else {
        j["error"] = c.error;
      }
      list.push_back(std::move(j));
    }
  return list;
}

// Returns one line per cell; a column of times for every dispatcher.
Table long_table(const WinnerMap& map) {
  std::vector<std::string> names;
  for (const MapCell& c : map.cells)
    for (const auto& [name, us] : c.time_us)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<Table::Column> columns{{map.across.path}, {map.down.path}, {"fastest"},
                                     {"probability"},   {"speedup"},     {"fits"}};
  for (const std::string& name : names) columns.push_back({"time_us." + name});
  columns.push_back({"error"});
  Table table(columns);
  for (std::size_t y = 0; y < map.rows.size(); ++y)
    for (std::size_t x = 0; x < map.columns.size(); ++x) {
      const MapCell& c = map.at(y, x);
      std::vector<std::string> row{map.columns[x].text,
                                   map.rows[y].text,
                                   c.fastest,
                                   c.probability ? fmt::format("{:.4f}", *c.probability) : "",
                                   c.ok() ? fmt::format("{:.6f}", c.speedup) : "",
                                   c.ok() ? (c.fits ? "true" : "false") : ""};
      for (const std::string& name : names) {
        const auto found = std::find_if(c.time_us.begin(), c.time_us.end(),
                                        [&](const auto& one) { return one.first == name; });
        row.push_back(found == c.time_us.end() ? "" : fmt::format("{:.6f}", found->second));
      }
      row.push_back(c.error);
      table.row(row);
    }
  return table;
}

// "flex-deepep is the fastest in 24 of 48 scenarios, ...": the most frequent first.
std::string answer_of(const WinnerMap& map) {
  std::map<std::string, std::size_t> counts;
  for (const MapCell& c : map.cells)
    if (c.ok()) ++counts[c.fastest];
  std::vector<std::pair<std::string, std::size_t>> order(counts.begin(), counts.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  parts.reserve(order.size());
  for (const auto& [name, count] : order)
    parts.push_back(parts.empty() ? fmt::format("{} is the fastest in {} of {} scenarios", name, count,
                                                map.cells.size() - map.without_forecast())
                                  : fmt::format("{} in {}", name, count));
  return join(parts, ", ") + ".";
}

// Returns a letter for each dispatcher of the map: its first one that is free.
std::map<std::string, char> letters_of(const WinnerMap& map) {
  std::map<std::string, char> letters;
  std::string used;
  for (const MapCell& c : map.cells) {
    if (!c.ok() || letters.contains(c.fastest)) continue;
    std::string wanted = c.fastest + "abcdefghijklmnopqrstuvwxyz";
    std::erase_if(wanted, [](char one) { return one < 'a' || one > 'z'; });
    const std::size_t free = wanted.find_first_not_of(used);
    const char letter = free == std::string::npos ? '*' : wanted[free];
    used += letter;
    letters[c.fastest] = letter;
  }
  return letters;
}

// Returns the map itself, without rows and columns that have no forecast, in letters where the names are too
// wide; at most 100 columns.
std::string square(const WinnerMap& map) {
  Terminal narrow = standard_output();
  narrow.columns = sentence_columns(narrow);
  std::vector<std::size_t> used;
  for (std::size_t x = 0; x < map.columns.size(); ++x)
    for (std::size_t y = 0; y < map.rows.size(); ++y)
      if (map.at(y, x).ok()) {
        used.push_back(x);
        break;
      }
  const std::map<std::string, char> letters = letters_of(map);
  const auto drawn = [&](bool short_names) {
    std::vector<Table::Column> heads{{map.down.path + " \\ " + map.across.path}};
    for (const std::size_t x : used)
      heads.push_back({label_of(map.across, map.columns[x]), Table::Align::kLeft});
    Table table(heads);
    for (std::size_t y = 0; y < map.rows.size(); ++y) {
      std::vector<std::string> line{label_of(map.down, map.rows[y])};
      bool any = false;
      for (const std::size_t x : used) {
        const MapCell& c = map.at(y, x);
        any = any || c.ok();
        line.push_back(!c.ok()
                           ? "-"
                           : (short_names ? std::string(1, letters.at(c.fastest)) : c.fastest) +
                                 (c.probability < models::Decision::kSure ? "?" : "") + (c.fits ? "" : "!"));
      }
      if (any) table.row(line);
    }
    return table;
  };
  const Table names = drawn(false);
  if (names.fits(narrow)) return names.text(narrow);
  std::string text = drawn(true).text(narrow) + "\n";
  for (const auto& [name, letter] : letters) text += fmt::format("{}: {}\n", letter, name);
  return text;
}

}  // namespace

std::size_t WinnerMap::without_forecast() const {
  return static_cast<std::size_t>(
      std::count_if(cells.begin(), cells.end(), [](const MapCell& c) { return !c.ok(); }));
}

std::size_t WinnerMap::beyond_memory() const {
  return static_cast<std::size_t>(
      std::count_if(cells.begin(), cells.end(), [](const MapCell& c) { return !c.fits; }));
}

const std::string& WinnerMap::first_error() const {
  return std::find_if(cells.begin(), cells.end(), [](const MapCell& c) { return !c.ok(); })->error;
}

WinnerMap winner_map(const Base& base, const std::vector<std::string>& texts, const std::string& between,
                     int draws, int threads, const Progress& progress) {
  if (texts.size() != 2) throw InputError(fmt::format("--map: found {} ranges, expected two", texts.size()));
  const models::StudyAxis across = models::StudyAxis::parse_assignment(texts[0], "--map"),
                          down = models::StudyAxis::parse_assignment(texts[1], "--map");
  if (across.path.path == down.path.path)
    throw InputError(fmt::format("--map: found {} twice, expected two paths", down.path.path));
  WinnerMap map{across.path, down.path, across.spread(kDefaultValues), down.spread(kDefaultValues), {}, {}};
  if (map.columns.size() * map.rows.size() > kMostCells)
    throw InputError(fmt::format("--map: found {} x {} scenarios, expected at most {}", map.columns.size(),
                                 map.rows.size(), kMostCells));
  const Base asked = taking_part(base, between);
  const auto paths = std::make_shared<const std::vector<ScenarioPath>>(std::vector{across.path, down.path});
  const Asker allowed(asked, *paths);  // refuses paths that exclude each other
  using Cells = models::Study<MapCell>;
  models::StudyOptions options{.threads = threads};
  if (progress)
    options.progress = [&](std::int64_t done) {
      progress(done, static_cast<std::int64_t>(map.columns.size() * map.rows.size()));
    };
  Cells study(
      [&]() -> Cells::Asker {
        return [&, asker = std::make_shared<Asker>(asked, *paths)](const models::Point& point) {
          return cell_of(asker->ask(point.values, {.draws = draws, .breakdown = false}));
        };
      },
      std::move(options));
  std::vector<models::Point> points;
  for (const PathValue& row : map.rows)
    for (const PathValue& column : map.columns) points.push_back({paths, {column, row}});
  std::set<std::string> seen;
  for (const Cells::Row* row : study.rows(points)) {
    MapCell& cell = map.cells.emplace_back(row->answer);
    cell.error = row->error;
    for (const std::string& one : cell.warnings)
      if (seen.insert(one).second && map.warnings.size() < kMostWarnings) map.warnings.push_back(one);
  }
  if (map.without_forecast() == map.cells.size()) throw InputError(map.first_error());
  if (seen.size() > kMostWarnings)
    map.warnings.push_back(fmt::format("and {} more of other cells", seen.size() - kMostWarnings));
  return map;
}

int run_map(const Base& base, const std::vector<std::string>& ranges, const std::string& between, int draws,
            const std::string& picture, const CommonOptions& common) {
  if (!picture.empty() && !picture.ends_with(".svg"))
    throw InputError(
        fmt::format("--picture: found {}, expected a file that ends in .svg", in_quotes(picture)));
  const WinnerMap map = [&] {
    ProgressLine line(common);
    return winner_map(base, ranges, between, draws, common.threads, line.teller());
  }();
  if (!picture.empty()) write_file(picture, map_svg(map, title_of(base, map)));
  if (wants_result(common)) {
    ordered_json result = whatif_result(base, map.warnings, common);
    result["axes"] = {axis_json(map.across, map.columns), axis_json(map.down, map.rows)};
    result["map"] = map_json(map);
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(long_table(map).csv());
    return 0;
  }
  print_answer(answer_of(map));
  print("\n" + square(map));
  print(fmt::format("?: the fastest with a probability below {}\n", models::Decision::kSure));
  if (const std::size_t beyond = map.beyond_memory(); beyond > 0)
    print(fmt::format("!: nothing fits the memory ({} of {} scenarios)\n", beyond, map.cells.size()));
  if (const std::size_t without = map.without_forecast(); without > 0)
    print_text(fmt::format(
        "{} of {} scenarios have no forecast (rows and columns without any are left out); the first: {}\n",
        without, map.cells.size(), map.first_error()));
  print_asked(base, std::vector{map.across, map.down});
  std::vector<std::string> warnings = many_to_act_on(map.warnings, base);
  const bool counted = map.warnings.size() > kMostWarnings;  // the last one counts the others
  if (counted && warnings.size() == 1) warnings.clear();
  warn_below(common, warnings);
  return 0;
}

}  // namespace moesim::tools

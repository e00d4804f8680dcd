#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "tools/moesim/questions/whatif.h"
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

struct Axis {
  const ScenarioPath& path;
  const std::vector<PathValue>& values;
};

Columns<Axis> columns_of(Of<Axis>) {
  return {{"path", [](const Axis& a) { return a.path.path; }},
          {"values",
           [](const Axis& a) {
             std::vector<ordered_json> all;
             for (const PathValue& value : a.values) all.emplace_back(value.json);
             return all;
           }},
          {"shown",
           [](const Axis& a) {
             std::vector<std::string> all;
             for (const PathValue& value : a.values)
               all.push_back(value.json.is_number() ? shown(a.path, value.json.get<double>()) : value.text);
             return all;
           },
           "the values with their units"}};
}

// A cell's values stand by their paths.
Columns<WinnerMap> map_columns() {
  const Columns<PointRow> figures = point_figures(false);
  ordered_json cell = figures.schema();
  cell.erase("additionalProperties");
  return {{"axes",
           [](const WinnerMap& map) {
             return std::vector<Axis>{{map.across, map.columns}, {map.down, map.rows}};
           }},
          {"map",
           [figures](const WinnerMap& map) {
             std::vector<ordered_json> all;
             for (std::size_t y = 0; y < map.rows.size(); ++y)
               for (std::size_t x = 0; x < map.columns.size(); ++x)
                 all.emplace_back(ordered_json{{map.across.path, map.columns[x].json},
                                               {map.down.path, map.rows[y].json}})
                     .update(figures.json(map.at(y, x)));
             return all;
           },
           {"a cell: the two values by their paths, and its winner or its error", {{"items", cell}}}}};
}

// "flex-deepep is the fastest in 24 of 48 scenarios, ...": the most frequent first.
std::string answer_of(const WinnerMap& map, std::size_t without) {
  std::map<std::string, std::size_t> counts;
  for (const PointRow& c : map.cells)
    if (c.ok()) ++counts[c.fastest];
  std::vector<std::pair<std::string, std::size_t>> order(counts.begin(), counts.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  parts.reserve(order.size());
  for (const auto& [name, count] : order)
    parts.push_back(parts.empty() ? fmt::format("{} is the fastest in {} of {} scenarios", name, count,
                                                map.cells.size() - without)
                                  : fmt::format("{} in {}", name, count));
  return join(parts, ", ") + ".";
}

// Returns a letter for each dispatcher of the map: its first one that is free.
std::map<std::string, char> letters_of(const WinnerMap& map) {
  std::map<std::string, char> letters;
  std::string used;
  for (const PointRow& c : map.cells) {
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
        const PointRow& c = map.at(y, x);
        any = any || c.ok();
        line.push_back(!c.ok() ? "-"
                               : (short_names ? std::string(1, letters.at(c.fastest)) : c.fastest) +
                                     (c.sure() ? "" : "?") + (c.fits ? "" : "!"));
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

// "mixtral-8x7b on dgx-h100x4, one MoE layer", without what an axis of the map varies.
std::string title_of(const Base& base, const WinnerMap& map) {
  const models::Scenario& s = base.resolved.scenario;
  const auto varies = [&](std::string_view path) { return map.across.path == path || map.down.path == path; };
  std::string title = varies("model") ? "" : s.model.name;
  if (s.cluster && !varies("cluster")) title += (title.empty() ? "" : " on ") + s.cluster->name;
  if (!title.empty()) title += ", ";
  return title + (s.is_step() ? "one training step" : "one MoE layer");
}

WinnerMap winner_map(const Base& base, const std::vector<std::string>& texts, const std::string& between,
                     int draws, const CommonOptions& common) {
  if (texts.size() != 2) throw InputError(fmt::format("--map: found {} ranges, expected two", texts.size()));
  models::StudyAxis across = models::StudyAxis::parse_assignment(texts[0], "--map"),
                    down = models::StudyAxis::parse_assignment(texts[1], "--map");
  if (across.path.path == down.path.path)
    throw InputError(fmt::format("--map: found {} twice, expected two paths", down.path.path));
  for (models::StudyAxis* axis : {&across, &down}) axis->values = axis->spread(kDefaultValues);
  WinnerMap map{across.path, down.path, across.values, down.values, {}};
  if (map.columns.size() * map.rows.size() > kMostCells)
    throw InputError(fmt::format("--map: found {} x {} scenarios, expected at most {}", map.columns.size(),
                                 map.rows.size(), kMostCells));
  const Base asked = taking_part(base, between);
  models::PointOptions axes;
  axes.axes = {down, across};
  const std::vector<models::Point> points = models::Points(axes).all();
  const models::Paths& paths = points.front().paths;
  const Asker allowed(asked, *paths);  // refuses paths that exclude each other
  ProgressLine line(common);
  using Cells = models::Study<PointRow>;
  Cells study(
      [&]() -> Cells::Asker {
        return [&, asker = std::make_shared<Asker>(asked, *paths)](const models::Point& point) {
          return PointRow::of(asker->ask(point.values, {.draws = draws, .breakdown = false}));
        };
      },
      {.threads = common.threads, .progress = line.teller()});
  for (const Cells::Row* row : study.rows(points)) {
    map.cells.push_back(row->answer);
    map.cells.back().error = row->error;
  }
  return map;
}

// Returns the warnings of all cells, each once: the first few, and how many more there are.
std::vector<std::string> warnings_of(const WinnerMap& map) {
  std::vector<std::string> some;
  std::set<std::string> seen;
  for (const PointRow& cell : map.cells)
    for (const std::string& one : cell.warnings)
      if (seen.insert(one).second && some.size() < kMostWarnings) some.push_back(one);
  if (seen.size() > some.size())
    some.push_back(fmt::format("and {} more of other cells", seen.size() - some.size()));
  return some;
}

}  // namespace

ordered_json schema_of_map() { return map_columns().schema(); }
const ResultSchema kSchema("whatif", "whatif --map", with_model<schema_of_map>);

std::string label_of(const ScenarioPath& path, const PathValue& value) {
  return !models::is_number(path.type) ? value.text : shown(path, value.number);
}

int run_map(const Base& base, const std::vector<std::string>& ranges, const std::string& between, int draws,
            const std::string& picture, const CommonOptions& common) {
  if (!picture.empty() && !picture.ends_with(".svg"))
    throw InputError(
        fmt::format("--picture: found {}, expected a file that ends in .svg", in_quotes(picture)));
  const WinnerMap map = winner_map(base, ranges, between, draws, common);
  const auto first_error = std::ranges::find_if_not(map.cells, &PointRow::ok);
  const auto without =
      static_cast<std::size_t>(std::ranges::count_if(map.cells, [](const PointRow& c) { return !c.ok(); }));
  if (without == map.cells.size()) throw InputError(first_error->error);
  if (!picture.empty()) write_file(picture, map_svg(map, title_of(base, map)));
  const std::vector<std::string> warnings = warnings_of(map);
  const ordered_json figures = map_columns().json(map);
  return show_whatif(base, warnings, figures, figures["map"], common, [&] {
    print_answer(answer_of(map, without));
    print("\n" + square(map));
    print(fmt::format("?: the fastest with a probability below {}\n", models::Decision::kSure));
    if (const auto beyond = std::ranges::count(map.cells, false, &PointRow::fits); beyond > 0)
      print(fmt::format("!: nothing fits the memory ({} of {} scenarios)\n", beyond, map.cells.size()));
    if (without > 0)
      print_text(fmt::format(
          "{} of {} scenarios have no forecast (rows and columns without any are left out); the first: {}\n",
          without, map.cells.size(), first_error->error));
    print_asked(base, warnings, common, std::vector{map.across, map.down});
  });
}

}  // namespace moesim::tools

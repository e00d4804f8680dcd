#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "base/units.h"
#include "models/answers/answer.h"
#include "models/study/study.h"
#include "tools/moesim/questions/whatif.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kProbes = 17;  // values with intervals
// Stepped ranges up to these sizes are tried completely, without draws, so that no two changes between two
// probes are missed.
constexpr std::size_t kScannedLayer = 512, kScannedStep = 34;
constexpr std::size_t kMostBisected = 65536;  // values of a stepped range
constexpr double kPrecision = 1e-3;           // relative width of a bracket for non-integer paths
constexpr double kSure = models::Decision::kSure;

// Returns the share of the draws (or the nominal comparison) in which `name` is at least as fast as `other`.
double share_of(const Comparison& e, const std::string& name, const std::string& other) {
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

double log_ratio(const Comparison& e, const std::string& from, const std::string& to) {
  double a = 0, b = 0;
  for (const Answer& one : e.answers) {
    if (one.dispatcher == from && one.ok()) a = one.time_us.value;
    if (one.dispatcher == to && one.ok()) b = one.time_us.value;
  }
  return a > 0 && b > 0 ? std::log(b / a) : 0;
}

using Answers = models::Study<Comparison>;

// Answers along the range.
class Line {
 public:
  // `expected`: minimum number of answers.
  Line(const Base& base, const models::StudyAxis& range, int draws, const Progress& progress,
       std::size_t expected)
      : range_(range),
        progress_(progress),
        expected_(static_cast<std::int64_t>(expected)),
        paths_(std::make_shared<const std::vector<ScenarioPath>>(1, range.path)),
        asker_(base, *paths_),
        plain_(asking(0), {.progress = [this](auto...) { tell(); }}),
        drawn_(asking(draws), {.progress = [this](auto...) { tell(); }}),
        draws_(draws) {}

  bool counts() const { return !range_.range || range_.stepped; }
  // The values asked so far.
  const std::map<double, const Answers::Row*>& asked() const { return asked_; }

  // Returns an answer without draws, which suffices to find the fastest; nullptr without a forecast.
  const Comparison* at(double value) {
    const Answers::Row*& row = asked_[value];
    if (!row) row = &plain_.at({paths_, {value_of(range_.path, value)}});
    return row->ok() ? &row->answer : nullptr;
  }
  // Returns an answer with draws, for a value with a forecast.
  const Comparison& drawn(double value) {
    const Comparison* found =
        draws_ > 0 ? &drawn_.at({paths_, {value_of(range_.path, value)}}).answer : at(value);
    check(found != nullptr, "only a value with a forecast is asked");
    return *found;
  }

  // Returns a value between two with a forecast, near their middle; nullopt when they are neighbours.
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
  std::function<Answers::Asker()> asking(int draws) {
    return [this, draws] {
      return [this, draws](const models::Point& point) {
        return asker_.ask(point.values, {.draws = draws, .breakdown = false});
      };
    };
  }
  void tell() {
    ++count_;
    if (progress_) progress_(count_, std::max(expected_, count_));
  }

  const models::StudyAxis& range_;
  const Progress& progress_;
  std::int64_t expected_, count_ = 0;
  models::Paths paths_;
  Asker asker_;
  Answers plain_, drawn_;
  int draws_;
  std::map<double, const Answers::Row*> asked_;
};

// Narrows [low, high] while `left` decides on which side a value lies.
std::pair<double, double> bisect(Line& line, double low, double high,
                                 const std::function<bool(double)>& left) {
  while (const auto middle = line.between(low, high)) (left(*middle) ? low : high) = *middle;
  return {low, high};
}

// Returns the value nearest to the crossing from which on `name` surely wins, walking from `start` over the
// probes up to `limit`, and whether there is none.
std::pair<double, bool> sure_from(Line& line, const std::vector<double>& probes, double start, double limit,
                                  const std::string& name, const std::string& other) {
  const bool down = limit < start;
  std::vector<double> way{start};
  for (const double probe : probes)
    if (probe > std::min(start, limit) && probe < std::max(start, limit)) way.push_back(probe);
  if (limit != start) way.push_back(limit);
  std::sort(way.begin() + 1, way.end(), [&](double a, double b) { return down ? a > b : a < b; });
  const auto sure = [&](double value) { return share_of(line.drawn(value), name, other) >= kSure; };
  double previous = start;
  for (const double probe : way) {
    if (sure(probe)) {
      if (probe == previous) return {probe, false};
      const auto [below, above] = bisect(line, std::min(probe, previous), std::max(probe, previous),
                                         [&](double value) { return sure(value) == down; });
      return {down ? below : above, false};
    }
    previous = probe;
  }
  return {limit, true};
}

// Skips values without a forecast: in a long range, takes a neighbour above.
void scan(Line& line, const models::StudyAxis& range, std::size_t all) {
  if (!line.counts()) {
    for (const PathValue& value : range.spread(2 * kProbes - 1)) line.at(value.number);
    return;
  }
  const std::size_t n = range.values.size();
  for (std::size_t i = 0; i < n && n <= all; ++i) line.at(range.values[i].number);
  for (std::size_t p = 0; p < kProbes && n > all; ++p) {
    const std::size_t to = p + 1 < kProbes ? (p + 1) * (n - 1) / (kProbes - 1) : n;
    for (std::size_t i = p * (n - 1) / (kProbes - 1); i < to && !line.at(range.values[i].number); ++i) {
    }
  }
}

std::vector<double> evenly(const std::vector<double>& all, std::size_t count) {
  if (all.size() <= count) return all;
  std::vector<double> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return some;
}

}  // namespace

CrossoverResult find_crossovers(const Base& base, const models::StudyAxis& range, const std::string& between,
                                int draws, const Progress& progress) {
  if (range.values.size() > kMostBisected)
    throw InputError(fmt::format("{}: found {} values, expected at most {}; give a larger step",
                                 range.path.path, range.values.size(), kMostBisected));
  const bool layer = !base.question.said.is_step();
  const std::size_t all = layer ? kScannedLayer : kScannedStep;
  const std::size_t scan_size = !range.range || range.stepped
                                    ? (range.values.size() <= all ? range.values.size() : kProbes)
                                    : 2 * kProbes - 1;
  Line line(taking_part(base, between), range, draws, progress,
            scan_size + (draws > 0 ? std::min(kProbes, scan_size) : 0));
  scan(line, range, all);
  std::vector<double> scanned;
  for (const auto& [value, row] : line.asked())
    if (row->ok()) scanned.push_back(value);
  if (scanned.empty())
    throw InputError(line.asked().empty() ? "crossover: found no value, expected a range"
                                          : line.asked().begin()->second->error);
  const auto fastest = [&](double value) -> const std::string& {
    return line.at(value)->winner()->dispatcher;
  };

  CrossoverResult result;
  for (std::size_t i = 0; i + 1 < scanned.size(); ++i) {
    double low = scanned[i];
    // A third dispatcher may win in between: then there are several changes.
    while (fastest(low) != fastest(scanned[i + 1])) {
      Crossover c;
      c.from = fastest(low);
      std::tie(c.below, c.above) =
          bisect(line, low, scanned[i + 1], [&](double value) { return fastest(value) == c.from; });
      c.to = fastest(c.above);
      // Where the logarithms of the times, linear in between, are equal.
      const double before = log_ratio(*line.at(c.below), c.from, c.to),
                   after = log_ratio(*line.at(c.above), c.from, c.to);
      c.value = before > after ? c.below + (c.above - c.below) * before / (before - after) : c.below;
      result.crossings.push_back(c);
      low = c.above;
    }
  }
  const std::vector<double> probes = evenly(scanned, kProbes);
  std::set<double> shown(probes.begin(), probes.end());
  for (std::size_t i = 0; i < result.crossings.size(); ++i) {
    Crossover& c = result.crossings[i];
    const double first = i > 0 ? result.crossings[i - 1].above : scanned.front();
    const double last = i + 1 < result.crossings.size() ? result.crossings[i + 1].below : scanned.back();
    std::tie(c.low, c.low_open) = sure_from(line, probes, c.below, first, c.from, c.to);
    std::tie(c.high, c.high_open) = sure_from(line, probes, c.above, last, c.to, c.from);
    shown.insert({c.low, c.below, c.above, c.high});
    for (const double value : {c.below, c.above}) add_new(result.warnings, line.drawn(value).warnings);
  }
  if (result.crossings.empty())
    for (const double value : {scanned.front(), scanned.back()})
      add_new(result.warnings, line.drawn(value).warnings);
  for (const double value : shown) {
    result.values.push_back(value);
    result.points.push_back(PointRow::of(line.drawn(value)));
  }
  for (const auto& [value, row] : line.asked())
    if (!row->ok()) result.illegal.emplace_back(value, row->error);
  return result;
}

namespace {

// Returns whether intervals were drawn: without them nothing is sure.
bool drawn(const CrossoverResult& r) {
  return std::ranges::any_of(r.points, [](const PointRow& point) { return point.probability.has_value(); });
}

// Returns from where on the winner is sure around a crossing.
std::string sure_text(const Crossover& c, const models::StudyAxis& range) {
  const auto nowhere = [&](double from, double to) {
    return from == to ? std::string("nowhere")
                      : fmt::format("nowhere from {} to {}", shown(range.path, from), shown(range.path, to));
  };
  const std::string low =
      c.low_open ? nowhere(c.low, c.below) : fmt::format("up to {}", shown(range.path, c.low));
  const std::string high =
      c.high_open ? nowhere(c.above, c.high) : fmt::format("from {} on", shown(range.path, c.high));
  return fmt::format("Sure (probability {}): {} {}, {} {}.", kSure, c.from, low, c.to, high);
}

// In one unit, which stands once, so that more dispatchers have room.
Table point_table(const CrossoverResult& r, const models::StudyAxis& range) {
  double largest = 0;
  for (const PointRow& point : r.points)
    for (const auto& [name, time] : point.time_us) largest = std::max(largest, time.value);
  const TimeUnit unit = TimeUnit::of(largest);
  const std::vector<std::string> names = dispatchers_of(r.points);
  std::vector<Table::Column> columns{{unit.head(range.path.path + ", times")}};
  for (const std::string& name : names) columns.push_back({name});
  columns.push_back({"fastest", Table::Align::kLeft});
  if (drawn(r)) columns.push_back({"P"});
  const bool all_fit = std::ranges::all_of(r.points, &PointRow::fits);
  if (!all_fit) columns.push_back({"fits", Table::Align::kLeft});
  Table table(columns);
  for (std::size_t i = 0; i < r.points.size(); ++i) {
    const PointRow& point = r.points[i];
    std::vector<std::string> cells{shown(range.path, r.values[i])};
    for (const std::string& name : names) {
      const auto found = point.time_us.find(name);
      cells.push_back(found == point.time_us.end() ? "-" : unit.number(found->second.value));
    }
    cells.push_back(point.fastest);
    if (drawn(r)) cells.push_back(point.probability ? fmt::format("{:.2f}", *point.probability) : "-");
    if (!all_fit) cells.emplace_back(point.fits ? "yes" : "no");
    table.row(cells);
  }
  return table;
}

// Returns the ranges of the fastest: "alltoall up to topk = 6, allgather from 7 on".
std::string sentence(const CrossoverResult& r, const models::StudyAxis& range) {
  const bool counts = !range.range || range.stepped;
  const auto value = [&](double v) { return shown(range.path, v); };
  const std::string path = range.path.path;
  const auto& all = r.crossings;
  if (all.empty())
    return fmt::format("No crossover: {} is the fastest from {} = {} to {}.", r.points.front().fastest, path,
                       value(r.values.front()), value(r.values.back()));
  std::string text = fmt::format("{} is the fastest up to {} = {}", all.front().from, path,
                                 value(counts ? all.front().below : all.front().value));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double from = counts ? all[i].above : all[i].value;
    if (i + 1 == all.size())
      text += fmt::format(", {} from {} on.", all[i].to, value(from));
    else if (const double to = counts ? all[i + 1].below : all[i + 1].value; counts && from == to)
      text += fmt::format(", {} at {}", all[i].to, value(from));
    else
      text += fmt::format(", {} from {} to {}", all[i].to, value(from), value(to));
  }
  return text;
}

Columns<CrossoverResult> found_columns(const models::StudyAxis& range, bool drawn) {
  using C = Crossover;
  using R = CrossoverResult;
  using Illegal = decltype(R::illegal)::value_type;
  struct RangePoint {
    double value;
    const PointRow& row;
  };
  const Columns<C> crossing{{"from", &C::from},
                            {"to", &C::to},
                            {"below", &C::below},
                            {"above", &C::above},
                            {"at",
                             [](const C& c) {
                               return models::Estimate{c.value, c.low, c.high};
                             }},
                            {"low_open", &C::low_open, "nowhere sure below"},
                            {"high_open", &C::high_open, "nowhere sure above"},
                            {"sure", [=](const C& c) { return where(drawn, sure_text(c, range)); },
                             "up to where and from where on each is surely the fastest, in a sentence; null "
                             "without draws"}};
  Columns<RangePoint> point{{"value", &RangePoint::value}};
  point.add(
      point_figures(true), [](const RangePoint& p) -> const auto& { return p.row; });
  Columns<R> all{{"path", [&](const R&) { return range.path.path; }},
                 {"unit",
                  {{"name", [&](const R&) { return unit_of(range.path).first; }},
                   {"one", [&](const R&) { return unit_of(range.path).second; }}},
                  "in which pages draw the path's numbers"},
                 {"answer", [&](const R& r) { return sentence(r, range); }, "who is the fastest where"}};
  const auto points = [](const R& r) {
    std::vector<RangePoint> all;
    for (std::size_t i = 0; i < r.points.size(); ++i) all.push_back({r.values[i], r.points[i]});
    return all;
  };
  return all.list("crossovers", crossing, &R::crossings)
      .list("points", point, points)
      .list("without_forecast", Columns<Illegal>{{"value", &Illegal::first}, {"error", &Illegal::second}},
            &R::illegal, "values of the range");
}

ordered_json figures() { return found_columns({}, false).schema(); }
const ResultSchema kSchema("whatif", "whatif --crossover", with_model<figures>);

}  // namespace

int run_crossover(const Base& base, const std::string& text, const std::string& between, int draws,
                  const CommonOptions& common) {
  const models::StudyAxis range = models::StudyAxis::parse_assignment(text, "--crossover");
  if (!models::is_number(range.path.type))
    throw InputError(fmt::format("--crossover: found {}, expected a path that is a number", range.path.path));
  const CrossoverResult r = [&] {
    ProgressLine line(common);
    return find_crossovers(base, range, between, draws, line.teller());
  }();
  const ordered_json figures = found_columns(range, drawn(r)).json(r);
  return show_whatif(base, r.warnings, figures, figures["points"], common, [&] {
    print_answer(sentence(r, range));
    if (drawn(r))
      for (const Crossover& c : r.crossings) print_text(sure_text(c, range) + "\n");
    print("\n" + point_table(r, range).text());
    if (drawn(r)) print("P: probability that it is the fastest\n");
    if (!r.illegal.empty())
      print_text(fmt::format("values without a forecast: {}; the first, {}: {}\n", r.illegal.size(),
                             shown(range.path, r.illegal.front().first), r.illegal.front().second));
    print_asked(base, r.warnings, common);
  });
}

}  // namespace moesim::tools

#include "tools/moesim/questions/around.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/study/study.h"
#include "models/workload/scenario.h"
#include "tools/moesim/show/columns.h"

namespace moesim::tools {

namespace {

using models::Scenario;

struct Axis {
  ScenarioPath path;
  std::string what;
  double now = 0;
  std::vector<double> values;  // ascending, with the present one
};

// Multiples of a number, so many octaves up and down.
std::vector<double> around(double now, int octaves, int steps_an_octave) {
  std::vector<double> values;
  for (int i = -octaves * steps_an_octave; i <= octaves * steps_an_octave; ++i)
    values.push_back(now * std::exp2(static_cast<double>(i) / steps_an_octave));
  return values;
}

std::vector<Axis> axes_of(const Scenario& s) {
  // A step takes long enough that fewer values are tried.
  const bool step = s.is_step();
  const int octaves = step ? 1 : 2;
  std::vector<Axis> axes;
  const auto add = [&](std::string_view name, std::string_view what, int steps_an_octave) {
    Axis axis{find_path(name), std::string(what), 0, {}};
    axis.now = axis.path.number(s);
    if (!(axis.now > 0)) return;
    for (const double value : around(axis.now, octaves, steps_an_octave))
      // One and a half experts are none.
      if (axis.path.type != models::FieldType::kInteger || (value >= 1 && value == std::floor(value)))
        axis.values.push_back(value);
    axes.push_back(std::move(axis));
  };
  for (const models::HardwareNumber& number : models::hardware_numbers()) {
    const bool rate =
        number.unit == models::HardwareUnit::kBandwidth || number.unit == models::HardwareUnit::kFlops;
    const bool used = number.path != "nic.bandwidth" || s.cluster->ranks() > s.cluster->nvlink.domain;
    if (rate && used) add("cluster." + std::string(number.path), number.what, step ? 1 : 2);
  }
  for (const auto& [path, what] : {std::pair{"parallel.ep", "EP"},
                                   {"parallel.tp", "TP"},
                                   {"parallel.micro_batch", "sequences per microbatch"},
                                   {"parallel.seq", "tokens per sequence"},
                                   {"topk", "experts per token"}})
    add(path, what, 1);
  using Kind = models::RoutingSpec::Kind;
  if (s.routing.kind == Kind::kBalanced || s.routing.kind == Kind::kZipf) {
    Axis skew{find_path("routing.zipf"), "skew of the routing (Zipf)", 0, {0, 0.4, 0.8}};
    if (!step) skew.values.insert(skew.values.end(), {1.2, 1.6});
    if (s.routing.kind == Kind::kZipf) skew.now = skew.path.number(s);
    if (std::ranges::find(skew.values, skew.now) == skew.values.end()) skew.values.push_back(skew.now);
    std::ranges::sort(skew.values);
    axes.push_back(std::move(skew));
  }
  return axes;
}

// One direction from the present value of an axis.
struct Side {
  const Axis* axis;
  std::ptrdiff_t step;  // -1: down
  std::ptrdiff_t at;    // index of the value that was tried last
  double tried;         // the last value with a forecast
  std::string turned;   // the dispatcher that is the fastest there; empty: the present one

  // Moves to the next value; false where there is none to try.
  bool next() {
    at += step;
    return turned.empty() && at >= 0 && at < std::ssize(axis->values);
  }
  double value() const { return axis->values[static_cast<std::size_t>(at)]; }
  std::optional<Around::Turned> turn() const {
    return where(!turned.empty(), Around::Turned{shown(axis->path, tried), turned});
  }
};

using Fastest = models::Study<std::string>;

// Answers with the fastest dispatcher. As in searches, one routing stands for all layers.
Fastest::Asker asker_of(const Base& base) {
  const auto askers = std::make_shared<std::map<models::Paths, Asker>>();
  return [askers, &base](const models::Point& point) {
    auto found = askers->find(point.paths);
    if (found == askers->end()) found = askers->emplace(point.paths, Asker(base, *point.paths)).first;
    Scenario scenario = found->second.resolve(point.values).scenario;
    scenario.routing.shared = true;
    models::AnswerOptions options;
    options.draws = 0;
    options.breakdown = false;
    options.each = true;
    return ask(std::move(scenario), options).winner()->dispatcher;
  };
}

}  // namespace

std::vector<Around> map_around(const Base& base, int threads) {
  Scenario scenario = base.resolved.scenario;
  scenario.resolve();
  // About five seconds of them.
  const std::int64_t most = scenario.is_step() ? 24 : 80;
  Fastest study([&] { return asker_of(base); }, {.threads = threads, .most = most});
  const Fastest::Row& present = study.at({std::make_shared<const std::vector<ScenarioPath>>(), {}});
  const std::vector<Axis> axes = axes_of(scenario);
  std::vector<Side> sides;
  for (const Axis& axis : axes)
    for (const std::ptrdiff_t step : {-1, 1})
      sides.push_back(
          {&axis, step, std::ranges::find(axis.values, axis.now) - axis.values.begin(), axis.now, ""});
  // Outwards on all sides at once, until another dispatcher wins.
  for (std::vector<Side*> open; present.ok(); open.clear()) {
    std::vector<models::Point> points;
    for (Side& side : sides)
      if (side.next()) {
        open.push_back(&side);
        points.push_back(models::Point::of(side.axis->path, value_of(side.axis->path, side.value())));
      }
    if (open.empty()) break;
    const std::vector<Fastest::Row*> rows = study.rows(points);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]->ok()) continue;
      open[i]->tried = open[i]->value();
      if (rows[i]->answer != present.answer) open[i]->turned = rows[i]->answer;
    }
  }
  std::vector<Around> all;
  for (std::size_t i = 0; i < sides.size(); i += 2) {
    const Side &down = sides[i], &up = sides[i + 1];
    const Axis& axis = *down.axis;
    if (down.tried == up.tried) continue;
    all.push_back({axis.path.path, axis.what, shown(axis.path, axis.now), shown(axis.path, down.tried),
                   shown(axis.path, up.tried), down.turn(), up.turn()});
  }
  return all;
}

}  // namespace moesim::tools

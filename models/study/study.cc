#include "models/study/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/csv.h"
#include "base/file_io.h"
#include "base/random.h"
#include "base/text.h"

namespace moesim::models {

namespace {

constexpr std::uint64_t kMostSamples = 10'000'000;
constexpr std::uint64_t kStream = 0x7377656570;  // separates draws of samples from others with the same seed

// Returns the decimals of a number as written, so that 3 x 0.1 is written 0.3.
int decimals_of(std::string_view number) {
  const std::size_t point = number.find('.');
  if (point == std::string_view::npos || number.find_first_of("eE") != std::string_view::npos) return -1;
  std::size_t end = point + 1;
  while (end < number.size() && number[end] >= '0' && number[end] <= '9') ++end;
  return static_cast<int>(end - point - 1);
}

double rounded(double value, int decimals) {
  if (decimals < 0 || decimals > 12) return value;
  // Through text: the nearest double to the decimal number.
  return *parse_number(fmt::format("{:.{}f}", value, decimals));
}

std::string unit_in(std::string_view text) {
  const std::size_t letter = text.find_first_not_of("0123456789.+-eE ");
  return letter == std::string_view::npos ? "" : std::string(text.substr(letter));
}

// Splits a list at commas outside of JSON.
std::vector<std::string_view> list_items(std::string_view text) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] == ',' && depth == 0) {
      items.push_back(text.substr(from, i - from));
      from = i + 1;
    }
  }
  items.push_back(text.substr(from));
  return items;
}

}  // namespace

StudyAxis StudyAxis::parse(const ScenarioPath& path, std::string_view text) {
  StudyAxis r;
  r.path = path;
  text = trim(text);
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos || !is_number(path.type)) {
    for (const std::string_view item : list_items(text)) {
      if (trim(item).empty())
        throw InputError(fmt::format("{}: found an empty value in {}, expected values such as 8,16,32",
                                     path.path, in_quotes(text)));
      r.values.push_back(parse_value(path, item));
      if (r.values.size() > kMostValues)
        throw InputError(fmt::format("{}: found more than {} values", path.path, kMostValues));
    }
    return r;
  }
  r.range = true;
  std::string low(trim(text.substr(0, dots)));
  std::string_view rest = text.substr(dots + 2);
  const std::size_t colon = rest.find(':');
  std::string high(trim(rest.substr(0, colon)));
  std::string step(colon == std::string_view::npos ? "" : std::string(trim(rest.substr(colon + 1))));
  // A unit applies to all parts without one: 25..400GBps:25.
  const std::string unit = unit_in(high);
  if (!unit.empty() && unit_in(low).empty()) low += unit;
  const bool multiplied = step.starts_with('x');
  const bool logarithm = step == "log";
  if (!unit.empty() && !step.empty() && !multiplied && !logarithm && unit_in(step).empty()) step += unit;
  r.low = parse_value(path, low).number;
  r.high = parse_value(path, high).number;
  r.logarithmic = multiplied || logarithm;
  if (!(r.low <= r.high))
    throw InputError(
        fmt::format("{}: found the empty range {}, expected low..high", path.path, in_quotes(text)));
  if (r.logarithmic && r.low <= 0)
    throw InputError(fmt::format("{}: found a range from {} with steps that multiply, expected one above 0",
                                 path.path, low));
  if (logarithm || (step.empty() && path.type != FieldType::kInteger)) return r;
  r.stepped = true;
  if (multiplied) {
    const auto factor = parse_number(std::string_view(step).substr(1));
    if (!factor || !(*factor > 1))
      throw InputError(fmt::format("{}: found the step {}, expected a factor above 1 such as x2", path.path,
                                   in_quotes(step)));
    const double count = std::log(r.high / r.low) / std::log(*factor) + 1;
    if (count > static_cast<double>(kMostValues))
      throw InputError(
          fmt::format("{}: found about {:.3g} values, expected at most {}", path.path, count, kMostValues));
    double value = r.low, previous = 0;
    while (value <= r.high * (1 + 1e-12)) {
      const double one = path.type == FieldType::kInteger ? std::round(value) : value;
      if (one != previous) r.values.push_back(value_of(path, one));
      previous = one;
      value *= *factor;
    }
    return r;
  }
  const double each = step.empty() ? 1 : parse_value(path, step).number;
  if (!(each > 0))
    throw InputError(fmt::format("{}: found the step {}, expected one above 0", path.path, in_quotes(step)));
  const double count = std::floor((r.high - r.low) / each * (1 + 1e-12) + 1e-9) + 1;
  if (count > static_cast<double>(kMostValues))
    throw InputError(
        fmt::format("{}: found {:.6g} values, expected at most {}", path.path, count, kMostValues));
  // Units scale by powers of ten, so decimals are meaningful only without one.
  const bool plain = unit.empty() && unit_in(step).empty();
  const int decimals = plain ? std::max(decimals_of(low), decimals_of(step)) : -1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    r.values.push_back(value_of(path, rounded(r.low + static_cast<double>(i) * each, decimals)));
  return r;
}

StudyAxis StudyAxis::parse_assignment(const std::string& text, std::string_view option,
                                      const std::function<ScenarioPath(std::string_view)>& axis) {
  const auto [path, values] = split_assignment(text, option);
  return parse(axis(path), values);
}

PathValue StudyAxis::at(double share) const {
  if (!range || stepped) {
    const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size()));
    return values[std::min(index, values.size() - 1)];
  }
  double value = logarithmic ? low * std::pow(high / low, share) : low + (high - low) * share;
  value = std::clamp(value, low, high);
  // Limits the digits: results stay readable and the same everywhere.
  return value_of(path, path.type == FieldType::kInteger ? std::round(value)
                                                         : *parse_number(fmt::format("{:.9g}", value)));
}

std::vector<PathValue> StudyAxis::spread(std::size_t count) const {
  if (!range || stepped) return values;
  std::vector<PathValue> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(at(count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0));
  return all;
}

Points::Points(const PointOptions& options) : samples_(options.samples), seed_(options.seed) {
  const auto grow = [&](std::uint64_t factor) {
    if (__builtin_mul_overflow(size_, factor, &size_) || size_ > kMostScenarios) {
      double count = 1;
      for (const auto& grid : grids_) count *= static_cast<double>(grid.size());
      if (!list_.empty()) count *= static_cast<double>(list_.front().size());
      if (samples_ > 0) count *= static_cast<double>(samples_);
      throw InputError(fmt::format("sweep: found a grid of {:.3g} scenarios, expected at most {:.0e}", count,
                                   static_cast<double>(kMostScenarios)));
    }
  };
  for (const StudyAxis& own : options.axes) {
    paths_.push_back(own.path);
    grids_.push_back(own.values);
  }
  for (const std::string& text : options.grids) {
    StudyAxis range = StudyAxis::parse_assignment(text, "--grid", options.axis);
    if (range.values.empty())
      throw InputError(fmt::format("--grid {}: found a range without a step, expected {}:STEP",
                                   range.path.path, in_quotes(text)));
    paths_.push_back(range.path);
    grids_.push_back(std::move(range.values));
  }
  add_lists(options);
  add_samples(options);
  for (const auto& grid : grids_) grow(grid.size());
  if (!list_.empty()) grow(list_.front().size());
  if (samples_ > 0) grow(samples_);
  if (paths_.empty())
    throw InputError("sweep: found nothing to sweep over, expected --grid, --list or --sample with --range");
  for (std::size_t i = 0; i < paths_.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (paths_[i].path == paths_[j].path)
        throw InputError(fmt::format("sweep: found the path {} twice, expected each once", paths_[i].path));
}

void Points::add_lists(const PointOptions& options) {
  const std::vector<std::string>& lists = options.lists;
  if (lists.size() == 1 && lists.front().find('=') == std::string::npos) {
    const std::string text = read_file(lists.front(), std::uint64_t{1} << 30);
    std::vector<ScenarioPath> paths;
    long number = 0;
    for (std::string_view line : split(text, '\n')) {
      ++number;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (trim(line).empty()) continue;
      const SourcePlace place{lists.front(), number};
      const std::vector<std::string> cells = csv_cells(line, place);
      try {
        if (paths.empty()) {
          for (const std::string& cell : cells) paths.push_back(options.axis(trim(cell)));
          list_.resize(paths.size());
          continue;
        }
        if (cells.size() != paths.size())
          throw InputError(fmt::format("found {} cells, expected {}", cells.size(), paths.size()));
        for (std::size_t i = 0; i < cells.size(); ++i) list_[i].push_back(parse_value(paths[i], cells[i]));
      } catch (const InputError& error) {
        throw InputError(place, error.what());
      }
      if (list_.front().size() > kMostSamples)
        throw InputError(place, fmt::format("found more than {} rows", kMostSamples));
    }
    if (list_.empty() || list_.front().empty())
      throw InputError(SourcePlace{lists.front()}, "no rows", "a header of paths and rows of values");
    paths_.insert(paths_.end(), paths.begin(), paths.end());
    return;
  }
  for (const std::string& text : lists) {
    StudyAxis range = StudyAxis::parse_assignment(text, "--list", options.axis);
    if (range.values.empty())
      throw InputError(
          fmt::format("--list {}: found a range without a step, expected values", range.path.path));
    if (!list_.empty() && range.values.size() != list_.front().size())
      throw InputError(fmt::format("--list {}: found {} values, expected {} as for {}", range.path.path,
                                   range.values.size(), list_.front().size(), paths_[grids_.size()].path));
    paths_.push_back(range.path);
    list_.push_back(std::move(range.values));
  }
}

void Points::add_samples(const PointOptions& options) {
  if (samples_ == 0 && options.ranges.empty()) return;
  if (samples_ == 0) throw InputError("--range: found no --sample, expected how many scenarios to draw");
  if (options.ranges.empty())
    throw InputError("--sample: found no --range, expected path=low..high for each path to draw");
  if (samples_ > kMostSamples)
    throw InputError(fmt::format("--sample: found {}, expected at most {}", samples_, kMostSamples));
  for (const std::string& text : options.ranges) {
    ranges_.push_back(StudyAxis::parse_assignment(text, "--range", options.axis));
    paths_.push_back(ranges_.back().path);
  }
  if (options.sampling != Sampling::kLatinHypercube) return;
  for (std::size_t axis = 0; axis < ranges_.size(); ++axis) {
    std::vector<std::uint32_t> order(samples_);
    std::iota(order.begin(), order.end(), 0u);
    Random random = Random::for_item(seed_ ^ kStream, axis);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    strata_.push_back(std::move(order));
  }
}

double Points::share(std::uint64_t sample, std::size_t axis) const {
  Random random = Random::for_item(seed_ ^ (kStream + 1), sample * ranges_.size() + axis);
  const double within = random.uniform();
  if (strata_.empty()) return within;
  return (strata_[axis][sample] + within) / static_cast<double>(samples_);
}

void Points::point(std::uint64_t index, std::vector<PathValue>& values) const {
  values.resize(paths_.size());
  const std::size_t first_range = grids_.size() + list_.size();
  if (samples_ > 0) {
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      values[first_range + i] = ranges_[i].at(share(index % samples_, i));
    index /= samples_;
  }
  if (!list_.empty()) {
    const std::size_t rows = list_.front().size();
    for (std::size_t i = 0; i < list_.size(); ++i) values[grids_.size() + i] = list_[i][index % rows];
    index /= rows;
  }
  for (std::size_t i = grids_.size(); i-- > 0;) {
    values[i] = grids_[i][index % grids_[i].size()];
    index /= grids_[i].size();
  }
}

std::vector<Point> Points::all() const {
  std::vector<Point> points(size_, {std::make_shared<const std::vector<ScenarioPath>>(paths_), {}});
  for (std::uint64_t i = 0; i < size_; ++i) point(i, points[i].values);
  return points;
}

void Points::for_each_value(const std::function<void(const ScenarioPath&, const PathValue&)>& visit) const {
  std::size_t path = 0;
  for (const auto* axes : {&grids_, &list_})
    for (const std::vector<PathValue>& values : *axes) {
      for (const PathValue& value : values) visit(paths_[path], value);
      ++path;
    }
  for (const StudyAxis& range : ranges_) {
    for (const PathValue& value : range.values) visit(paths_[path], value);
    ++path;
  }
}

Point Point::of(const ScenarioPath& path, PathValue value) {
  return {std::make_shared<const std::vector<ScenarioPath>>(1, path), {std::move(value)}};
}

std::string Point::text() const {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i > 0 ? " " : "") + (*paths)[i].path + '=' + values[i].text;
  return text;
}

}  // namespace moesim::models

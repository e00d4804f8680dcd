#include "tools/moesim/study/sweep_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/csv.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/random.h"
#include "base/text.h"

namespace moesim::tools {

namespace {

constexpr std::uint64_t kMostSamples = 10'000'000;
constexpr std::uint64_t kStream = 0x7377656570;  // separates draws of samples from others with the same seed

}  // namespace

SweepPoints::SweepPoints(const SweepOptions& options) : samples_(options.samples), seed_(options.seed) {
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
  for (const SweepRange& own : options.axes) {
    paths_.push_back(own.path);
    grids_.push_back(own.values);
  }
  for (const std::string& text : options.grids) {
    SweepRange range = SweepRange::parse_assignment(text, "--grid", options.axis);
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

void SweepPoints::add_lists(const SweepOptions& options) {
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
    SweepRange range = SweepRange::parse_assignment(text, "--list", options.axis);
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

void SweepPoints::add_samples(const SweepOptions& options) {
  if (samples_ == 0 && options.ranges.empty()) return;
  if (samples_ == 0) throw InputError("--range: found no --sample, expected how many scenarios to draw");
  if (options.ranges.empty())
    throw InputError("--sample: found no --range, expected path=low..high for each path to draw");
  if (samples_ > kMostSamples)
    throw InputError(fmt::format("--sample: found {}, expected at most {}", samples_, kMostSamples));
  for (const std::string& text : options.ranges) {
    ranges_.push_back(SweepRange::parse_assignment(text, "--range", options.axis));
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

double SweepPoints::share(std::uint64_t sample, std::size_t axis) const {
  Random random = Random::for_item(seed_ ^ (kStream + 1), sample * ranges_.size() + axis);
  const double within = random.uniform();
  if (strata_.empty()) return within;
  return (strata_[axis][sample] + within) / static_cast<double>(samples_);
}

void SweepPoints::point(std::uint64_t index, std::vector<PathValue>& values) const {
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

void SweepPoints::for_each_value(
    const std::function<void(const ScenarioPath&, const PathValue&)>& visit) const {
  std::size_t path = 0;
  for (const auto* axes : {&grids_, &list_})
    for (const std::vector<PathValue>& values : *axes) {
      for (const PathValue& value : values) visit(paths_[path], value);
      ++path;
    }
  for (const SweepRange& range : ranges_) {
    for (const PathValue& value : range.values) visit(paths_[path], value);
    ++path;
  }
}

}  // namespace moesim::tools

// The points of a sweep: the product of grids, of a list, and of samples. A point's number alone determines
// its values, so that any thread or machine can compute it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/questions/sweep_range.h"

namespace moesim::tools {

inline constexpr std::uint64_t kMostScenarios = 1'000'000'000;

enum class Sampling : std::uint8_t { kLatinHypercube, kRandom };

struct SweepOptions {
  std::function<ScenarioPath(std::string_view)> axis = find_path;  // finds the path of an axis
  std::vector<SweepRange> axes;                                    // before the grids
  std::vector<std::string> grids;                                  // "path=values", each an axis
  // "path=values", combined element by element; or one CSV file with paths as header
  std::vector<std::string> lists;
  std::vector<std::string> ranges;  // "path=low..high[:log]" or values to sample from
  std::uint64_t samples = 0;
  Sampling sampling = Sampling::kLatinHypercube;
  std::uint64_t seed = 1;
};

class SweepPoints {
 public:
  // Throws InputError for unknown paths, values of the wrong unit, a path given twice, lists of different
  // lengths, nothing to sweep over, and more than kMostScenarios.
  explicit SweepPoints(const SweepOptions& options);

  std::uint64_t size() const { return size_; }
  const std::vector<ScenarioPath>& paths() const { return paths_; }  // the columns
  // Returns the values of point `index`, one per path. The last axis changes fastest.
  void point(std::uint64_t index, std::vector<PathValue>& values) const;
  // Visits every value of every axis.
  void for_each_value(const std::function<void(const ScenarioPath&, const PathValue&)>& visit) const;

 private:
  void add_lists(const SweepOptions& options);
  void add_samples(const SweepOptions& options);
  double share(std::uint64_t sample, std::size_t axis) const;

  std::vector<ScenarioPath> paths_;
  std::vector<std::vector<PathValue>> grids_;
  std::vector<std::vector<PathValue>> list_;  // [path][row]
  std::vector<SweepRange> ranges_;
  std::vector<std::vector<std::uint32_t>> strata_;  // [range][sample]: of the Latin hypercube
  std::uint64_t samples_ = 0, seed_ = 1, size_ = 1;
};

}  // namespace moesim::tools

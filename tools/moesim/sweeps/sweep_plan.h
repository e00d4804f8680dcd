// Which scenarios a sweep is made of: the product of grids, of a list, and of samples. Every point has a
// number, and its values follow from the number alone, so that any thread or machine can make any of them.
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
  std::function<ScenarioPath(std::string_view)> axis = find_path;  // what a path may be
  std::vector<SweepRange> axes;                                    // before the grids
  std::vector<std::string> grids;                                  // "path=values", each an axis
  std::vector<std::string> lists;   // "path=values", taken side by side; or one CSV file with paths as header
  std::vector<std::string> ranges;  // "path=low..high[:log]" or values to sample from
  std::uint64_t samples = 0;
  Sampling sampling = Sampling::kLatinHypercube;
  std::uint64_t seed = 1;
};

class SweepPlan {
 public:
  // Throws InputError for unknown paths, values of the wrong unit, a path given twice, lists of different
  // lengths, nothing to sweep over, and more than kMostScenarios.
  explicit SweepPlan(const SweepOptions& options);

  std::uint64_t size() const { return size_; }
  const std::vector<ScenarioPath>& paths() const { return paths_; }  // the columns
  // Values of point `index`, one per path. The last axis changes fastest.
  void point(std::uint64_t index, std::vector<PathValue>& values) const;
  // Every value that an axis may take, axis by axis.
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

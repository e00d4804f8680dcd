// A question asked at many points. Grids, lists, samples, bisections and maps choose the points: values of a path
// as a user writes them ("8,16,32", "1..16", "0..0.6:0.1", "2..64:x2", "25GBps..400GBps"). An asker, which need
// not be one of scenarios, answers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/study.h"
#include "models/question/paths.h"

namespace moesim::models {

inline constexpr std::uint64_t kMostValues = 1'000'000;  // per path

// An axis as written. A range without a step has no values between its ends unless the path is an integer.
struct StudyAxis {
  ScenarioPath path;
  bool range = false;        // false: a list
  bool stepped = false;      // of a range: it has a step, or the path is an integer
  bool logarithmic = false;  // of a range: steps multiply, and samples are uniform in the logarithm
  double low = 0, high = 0;
  std::vector<PathValue> values;  // for lists and stepped ranges

  // Throws InputError for invalid text, for an empty range, and for more than kMostValues values.
  static StudyAxis parse(const ScenarioPath& path, std::string_view text);
  // Parses "path=values"; messages name `option`; `axis` finds the path.
  static StudyAxis parse_assignment(const std::string& text, std::string_view option,
                                    const std::function<ScenarioPath(std::string_view)>& axis = find_path);

  // Returns the value at `share` in [0, 1) of the range or list, in the logarithm where that was asked for.
  PathValue at(double share) const;
  // Returns `count` evenly spaced values of a range without steps; otherwise all values.
  std::vector<PathValue> spread(std::size_t count) const;
};

inline constexpr std::uint64_t kMostScenarios = 1'000'000'000;

enum class Sampling : std::uint8_t { kLatinHypercube, kRandom };

struct PointOptions {
  std::function<ScenarioPath(std::string_view)> axis = find_path;  // finds the path of an axis
  std::vector<StudyAxis> axes;                                     // before the grids
  std::vector<std::string> grids;                                  // "path=values", each an axis
  // "path=values", combined element by element; or one CSV file with paths as header
  std::vector<std::string> lists;
  std::vector<std::string> ranges;  // "path=low..high[:log]" or values to sample from
  std::uint64_t samples = 0;
  Sampling sampling = Sampling::kLatinHypercube;
  std::uint64_t seed = 1;
};

using Paths = std::shared_ptr<const std::vector<ScenarioPath>>;

// A value for each path.
struct Point {
  Paths paths;
  std::vector<PathValue> values;

  static Point of(const ScenarioPath& path, PathValue value);
  std::string text() const;  // "parallel.ep=8 topk=2"
};

// The product of grids, of a list, and of samples. A point's number alone determines its values, so that any
// thread or machine can compute it.
class Points {
 public:
  // Throws InputError for unknown paths, values of the wrong unit, a path given twice, lists of different
  // lengths, nothing to sweep over, and more than kMostScenarios.
  explicit Points(const PointOptions& options);

  std::uint64_t size() const { return size_; }
  const std::vector<ScenarioPath>& paths() const { return paths_; }  // the columns
  // Returns the values of point `index`, one per path. The last axis changes fastest.
  void point(std::uint64_t index, std::vector<PathValue>& values) const;
  std::vector<Point> all() const;
  // Visits every value of every axis.
  void for_each_value(const std::function<void(const ScenarioPath&, const PathValue&)>& visit) const;

 private:
  void add_lists(const PointOptions& options);
  void add_samples(const PointOptions& options);
  double share(std::uint64_t sample, std::size_t axis) const;

  std::vector<ScenarioPath> paths_;
  std::vector<std::vector<PathValue>> grids_;
  std::vector<std::vector<PathValue>> list_;  // [path][row]
  std::vector<StudyAxis> ranges_;
  std::vector<std::vector<std::uint32_t>> strata_;  // [range][sample]: of the Latin hypercube
  std::uint64_t samples_ = 0, seed_ = 1, size_ = 1;
};

// A study of scenarios: its points are values of their paths.
template <class Answer>
using Study = moesim::Study<Answer, Point>;
using moesim::StudyOptions;

}  // namespace moesim::models

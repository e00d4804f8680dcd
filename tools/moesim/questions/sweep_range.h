// Values that a path takes: "8,16,32", "1..16", "0..0.6:0.1", "2..64:x2", "25GBps..400GBps".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/questions/ask.h"

namespace moesim::tools {

inline constexpr std::uint64_t kMostValues = 1'000'000;  // of one path

// An axis as written. A range without a step has no values of its own between its ends unless the path
// counts.
struct SweepRange {
  ScenarioPath path;
  bool range = false;        // else a list
  bool stepped = false;      // of a range: with a step, or of a path that counts
  bool logarithmic = false;  // of a range: steps multiply, samples are spread over the logarithm
  double low = 0, high = 0;
  std::vector<PathValue> values;  // of lists and stepped ranges

  // Throws InputError for what is neither, for an empty range, and for more than kMostValues values.
  static SweepRange parse(const ScenarioPath& path, std::string_view text);
  // "path=values" with `option` named in messages; `axis` finds the path.
  static SweepRange parse_assignment(const std::string& text, std::string_view option,
                                     const std::function<ScenarioPath(std::string_view)>& axis = find_path);

  // The value at `share` in [0, 1) of the range or list, by the logarithm where that was asked for.
  PathValue at(double share) const;
  // `count` values evenly over a range that is not stepped; else all of them.
  std::vector<PathValue> spread(std::size_t count) const;
};

}  // namespace moesim::tools

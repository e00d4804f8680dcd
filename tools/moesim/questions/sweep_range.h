// Values of a path: "8,16,32", "1..16", "0..0.6:0.1", "2..64:x2", "25GBps..400GBps".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/questions/ask.h"

namespace moesim::tools {

inline constexpr std::uint64_t kMostValues = 1'000'000;  // per path

// An axis as written. A range without a step has no values between its ends unless the path is an integer.
struct SweepRange {
  ScenarioPath path;
  bool range = false;        // false: a list
  bool stepped = false;      // of a range: it has a step, or the path is an integer
  bool logarithmic = false;  // of a range: steps multiply, and samples are uniform in the logarithm
  double low = 0, high = 0;
  std::vector<PathValue> values;  // for lists and stepped ranges

  // Throws InputError for invalid text, for an empty range, and for more than kMostValues values.
  static SweepRange parse(const ScenarioPath& path, std::string_view text);
  // Parses "path=values"; messages name `option`; `axis` finds the path.
  static SweepRange parse_assignment(const std::string& text, std::string_view option,
                                     const std::function<ScenarioPath(std::string_view)>& axis = find_path);

  // Returns the value at `share` in [0, 1) of the range or list, in the logarithm where that was asked for.
  PathValue at(double share) const;
  // Returns `count` evenly spaced values of a range without steps; otherwise all values.
  std::vector<PathValue> spread(std::size_t count) const;
};

}  // namespace moesim::tools

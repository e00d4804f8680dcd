#include "calibration/fit/domain.h"

#include <algorithm>

namespace moesim::calibration {

void widen(models::ParameterSet& set, const char* quantity, double value) {
  for (auto& range : set.domain)
    if (range.quantity == quantity) {
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
      return;
    }
  set.domain.push_back({quantity, value, value});
}

}  // namespace moesim::calibration

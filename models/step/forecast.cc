#include "models/step/forecast.h"

#include <algorithm>
#include <numeric>

namespace moesim::models {

double dropped_share(const Program& program) {
  const auto rows = static_cast<double>(
      std::accumulate(program.balanced_rows.begin(), program.balanced_rows.end(), std::int64_t{0}));
  return rows > 0 ? std::min(1.0, static_cast<double>(program.dropped_rows) / rows) : 0;
}

}  // namespace moesim::models

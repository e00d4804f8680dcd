#include "tools/moesim/questions/next_measurement.h"

#include <string>
#include <utility>

#include "calibration/fit/next_rows.h"

namespace moesim::tools {

void name_measurement(models::Comparison& comparison) {
  if (std::string next = calibration::first_measurement(comparison); !next.empty())
    comparison.decision.measure_next = std::move(next);
}

}  // namespace moesim::tools

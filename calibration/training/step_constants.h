// The numbers that published training steps set, each with the publications it was read from, so that a
// publication can be forecast without what it taught (moesim validate --leave-out source).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/training/training_rows.h"
#include "models/workload/scenario.h"

namespace moesim::calibration {

struct StepConstant {
  std::string name;                            // "power of Blackwell"
  std::vector<std::string_view> publications;  // whose rows set it
  double shipped = 1;
  double neutral = 1;  // stands where no row says anything
  std::function<bool(const TrainingRow&)> touches;
  std::function<void(models::Scenario&, double)> set;

  bool set_by(std::string_view publication) const;
};

const std::vector<StepConstant>& step_constants();

// A constant as it is without one publication.
struct Refit {
  std::string publication, constant;
  double shipped = 0, value = 0;
  std::size_t rows = 0;  // of other publications that it was fitted to; 0: its neutral value
};

// Gives the rows of every publication the constants that the rows of all others fit: of each constant that
// the publication set, the value with the least mean |log(forecast / measured)| of the other publications'
// rows, or its neutral value where these are fewer than three.
std::vector<Refit> leave_out_sources(std::vector<TrainingRow>& rows,
                                     const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace moesim::calibration

// Constants fitted to published training steps, each with its publications, so that a publication can be
// forecast without its own influence (moesim validate --leave-out source).
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
  std::vector<std::string_view> publications;  // publications whose rows determine it
  double shipped = 1;
  double neutral = 1;  // value without any row
  std::function<bool(const TrainingRow&)> touches;
  std::function<void(models::Scenario&, double)> set;

  bool set_by(std::string_view publication) const;
};

const std::vector<StepConstant>& step_constants();

// A constant refitted without one publication.
struct Refit {
  std::string publication, constant;
  double shipped = 0, value = 0;
  std::size_t rows = 0;  // rows of other publications in the fit; 0: its neutral value
};

// Sets for the rows of every publication the constants that the rows of all others fit: for each constant
// that the publication determines, the value with the least mean |log(forecast / measured)| over the other
// publications' rows, or its neutral value where these are fewer than three.
std::vector<Refit> leave_out_sources(std::vector<TrainingRow>& rows,
                                     const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace moesim::calibration

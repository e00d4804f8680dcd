// Whether measured rows of communication are normal: against published rows of the same call, shipped as
// their quantiles (calibration/rows/published_quantiles.json), and against the forecast's interval.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "calibration/check/check.h"
#include "models/workload/scenario.h"

namespace moesim::calibration {

// The published rows of a cell (CheckedRow::cell, step_cell()) by their speed against the forecast of each, so that rows of
// other sizes and ranks count, too.
struct PublishedRows {
  static constexpr std::array<double, 7> kShares{0, 0.05, 0.25, 0.5, 0.75, 0.95, 1};
  int rows = 0;
  std::array<double, 7> speed{};  // the slowest, the quantiles, the fastest
  std::vector<std::string> sources;

  // Returns the share of the rows that are slower than a speed.
  double slower_than(double speed) const;
};

// The cell of steps of a model on a GPU.
std::string step_cell(const models::Scenario& scenario);
// Published steps of the model on the GPU, or on any, that are enough to judge by; nullptr where there are fewer.
const PublishedRows* published_steps(const models::Scenario& scenario);

// Returns nullptr where too few rows of the cell were published.
const PublishedRows* published_rows(const std::string& cell);

// Returns the share of times above `time` in the log-normal distribution that has this 90 % interval.
double share_slower(const models::Estimate& forecast, double time);

inline constexpr double kSlack = 0.1;       // by which a normal run may be slower than what is published
inline constexpr double kOneSource = 0.25;  // likewise where one publication has all steps
inline constexpr double kUntuned = 0.3;     // likewise of a kernel: what is published is the best of a tuning
inline constexpr int kEnoughRows = 10;  // published rows that decide alone where two publications have them
inline constexpr double kSlowestShare = 0.05;  // of the published rows

// Whether a row is normal. Not normal is only what is too slow: than 95 % of at least ten published rows, and
// by more than 10 % than their median; where fewer were published or by one source, by more than 10 % than all
// of them and than the upper end of the forecast's interval.
struct JudgedRow {
  CheckedRow row;
  const PublishedRows* published = nullptr;
  bool normal = true;
  double slower = 0;  // share of the published rows, or of the forecast's distribution, that are slower

  double speed() const { return row.forecast.value / row.measured; }
  double ratio() const;  // time over what is usual: the published median, or the forecast
  // Returns the usual bandwidth of this call: 5 to 95 % of the published rows, or the forecast's interval.
  models::Estimate usual_bandwidth() const;
};

JudgedRow judge(const CheckedRow& row);

}  // namespace moesim::calibration

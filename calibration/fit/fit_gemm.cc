#include "calibration/fit/fit_gemm.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "calibration/fit/least_squares.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/gemm.h"

namespace moesim::calibration {
namespace {

using models::Clocks;
using models::GemmModel;
using models::GemmShape;
using models::ParameterSet;
using models::Profile;

constexpr FittedParameter kDense[] = {
    {"peak_share", 0.85, 1e-3, 1.0}, {"small_tile", 0.9, 0.5, 1.0},     {"prologue", 1e-6, 5e-8, 2e-5},
    {"floor", 2.5e-6, 5e-7, 2e-5},   {"memory_share", 0.85, 1e-2, 1.0}, {"overlap_power", 4, 1, 20},
    {"tail", 0.7, 0.02, 1.0},        {"reduction", 1e-6, 1e-8, 2e-5},   {"input_pass", 0.05, 1e-3, 20},
    {"host", 1e-6, 1e-7, 3e-4},      {"ragged_pass", 0.05, 1e-3, 5},
};

GemmShape shape_of(const GemmRow& row) {
  return {static_cast<std::int64_t>(row.m), static_cast<std::int64_t>(row.n),
          static_cast<std::int64_t>(row.k)};
}

FitResult fit_values(Profile profile, const std::vector<GemmRow>& rows, const std::string& key,
                     ParameterSet& set) {
  std::vector<double> start;
  FitOptions options;
  options.huber = 0.05;
  double fastest = rows.front().seconds;
  for (const GemmRow& row : rows) fastest = std::min(fastest, row.seconds);
  for (const FittedParameter& parameter : kDense) {
    // The host bound starts just below the fastest row, where its gradient is not flat.
    start.push_back(parameter.name == std::string_view("host") ? 0.95 * fastest : parameter.start);
    options.low.push_back(parameter.low);
    options.high.push_back(parameter.high);
  }
  const auto residuals = [&](const std::vector<double>& values) {
    set.values = values;
    profile.set(key, set);
    return gemm_residuals(profile, rows);
  };
  FitResult fit = fit_log(start, residuals, options);
  set.values = fit.values;
  set.covariance = fit.covariance;
  return fit;
}

}  // namespace

std::vector<double> gemm_residuals(const Profile& profile, const std::vector<GemmRow>& rows) {
  const GemmModel burst(profile, Clocks::kBurst);
  const GemmModel sustained(profile, Clocks::kSustained);
  std::vector<double> result;
  result.reserve(rows.size());
  for (const GemmRow& row : rows) {
    const GemmModel& model = row.sustained ? sustained : burst;
    result.push_back(std::log(model.seconds(shape_of(row), dtype_of(row.dtype)) / row.seconds));
  }
  return result;
}

ParameterSet fit_dense_gemm(const Profile& profile, const std::vector<GemmRow>& rows, bool leave_out) {
  const std::string key = "gemm/" + std::string(models::name_of(dtype_of(rows.front().dtype)));
  ParameterSet set;
  set.law = "tiles";
  for (const FittedParameter& parameter : kDense) set.names.emplace_back(parameter.name);
  const FitResult fit = fit_values(profile, rows, key, set);
  Profile own = profile;
  own.set(key, set);
  set.residual = std::min(fit.rms, covering_sigma(gemm_residuals(own, rows)));
  set.rows = static_cast<int>(rows.size());
  std::set<std::pair<double, double>> shapes;
  for (const GemmRow& row : rows) shapes.emplace(row.n, row.k);
  std::vector<double> left_out;
  if (leave_out && shapes.size() > 2) {
    for (const auto& shape : shapes) {
      std::vector<GemmRow> rest, held;
      for (const GemmRow& row : rows) (std::pair(row.n, row.k) == shape ? held : rest).push_back(row);
      ParameterSet trial = set;
      fit_values(profile, rest, key, trial);
      Profile fitted = profile;
      fitted.set(key, trial);
      for (const double r : gemm_residuals(fitted, held)) left_out.push_back(r);
    }
    const double outside = covering_sigma(left_out);
    set.systematic = std::sqrt(std::max(outside * outside - set.residual * set.residual, 0.0));
  }
  const auto range = [&](const char* quantity, double GemmRow::*member) {
    double low = rows.front().*member, high = low;
    for (const GemmRow& row : rows) {
      low = std::min(low, row.*member);
      high = std::max(high, row.*member);
    }
    set.domain.push_back({quantity, low, high});
  };
  range("m", &GemmRow::m);
  range("n", &GemmRow::n);
  range("k", &GemmRow::k);
  set.source = rows.front().origin.source;
  return set;
}

}  // namespace moesim::calibration

#include "calibration/fit/fit_kernels.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "calibration/fit/least_squares.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/expert_ffn.h"
#include "models/costs/gemm.h"

namespace moesim::calibration {

using models::Clocks;
using models::ExpertFfnModel;
using models::FfnShape;
using models::GemmModel;
using models::GemmShape;
using models::ParameterSet;
using models::Profile;

ParameterSet fit_kernel(const Profile& profile, const std::vector<Measurements::KernelRow>& rows) {
  const double bandwidth = profile.device().hbm_bandwidth * profile.device().hbm_efficiency;
  ParameterSet set;
  set.law = "memory-bound";
  double fastest = rows.front().seconds / rows.front().launches;
  for (const auto& row : rows) fastest = std::min(fastest, row.seconds / row.launches);
  const FittedParameter parameters[] = {{"floor", std::clamp(fastest, 1e-8, 1e-2), 1e-8, 1e-2},
                                        {"share", 0.7, 1e-3, 2.0}};
  fit_law(set, parameters, [&](const ParameterSet& trial) {
    const double floor = trial.values[0], share = trial.values[1];
    return values_of(rows, [&](const auto& row) {
      return std::log((row.launches * floor + row.bytes / (bandwidth * share)) / row.seconds);
    });
  });
  set.rows = static_cast<int>(rows.size());
  set.source = rows.front().origin.source;
  for (const auto& row : rows) widen(set, "bytes", row.bytes);
  return set;
}

namespace {

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

// Fits names, values, covariance and residual of the law.
void fit_values(Profile profile, const std::vector<GemmRow>& rows, const std::string& key,
                ParameterSet& set) {
  std::vector<FittedParameter> parameters(std::begin(kDense), std::end(kDense));
  double fastest = rows.front().seconds;
  for (const GemmRow& row : rows) fastest = std::min(fastest, row.seconds);
  // The host bound starts just below the fastest row, where its gradient is not flat.
  for (FittedParameter& parameter : parameters)
    if (parameter.name == std::string_view("host")) parameter.start = 0.95 * fastest;
  FitOptions options;
  options.huber = 0.05;
  fit_law(
      set, parameters,
      [&](const ParameterSet& trial) {
        profile.set(key, trial);
        return gemm_residuals(profile, rows);
      },
      options);
}

}  // namespace

std::vector<double> gemm_residuals(const Profile& profile, const std::vector<GemmRow>& rows) {
  const GemmModel burst(profile, Clocks::kBurst);
  const GemmModel sustained(profile, Clocks::kSustained);
  return values_of(rows, [&](const GemmRow& row) {
    const GemmModel& model = row.sustained ? sustained : burst;
    return std::log(model.seconds(shape_of(row), dtype_of(row.dtype)) / row.seconds);
  });
}

ParameterSet fit_dense_gemm(const Profile& profile, const std::vector<GemmRow>& rows, bool leave_out) {
  const std::string key = "gemm/" + std::string(models::name_of(dtype_of(rows.front().dtype)));
  ParameterSet set;
  set.law = "tiles";
  fit_values(profile, rows, key, set);
  Profile own = profile;
  own.set(key, set);
  set.residual = std::min(set.residual, covering_sigma(gemm_residuals(own, rows)));
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
  for (const GemmRow& row : rows) {
    widen(set, "m", row.m);
    widen(set, "n", row.n);
    widen(set, "k", row.k);
  }
  set.source = rows.front().origin.source;
  return set;
}

namespace {

constexpr FittedParameter kParameters[] = {
    {"peak_share", 0.8, 0.05, 1.0}, {"small_tile", 0.9, 0.4, 1.0},    {"prologue", 1e-6, 5e-8, 2e-5},
    {"floor", 3e-6, 5e-7, 1e-4},    {"memory_share", 0.85, 0.2, 1.0}, {"overlap_power", 4, 1, 20},
    {"tail", 0.7, 0.02, 1.0},       {"reduction", 1e-6, 1e-8, 1e-4},  {"overhead", 15e-6, 1e-6, 3e-4},
    {"row_pass", 1, 0.05, 20},      {"token_pass", 0.5, 0.02, 20},    {"slot_pass", 0.05, 1e-3, 20},
    {"remote_share", 0.1, 1e-3, 1},
};

struct FfnSample {
  FfnShape shape;
  std::vector<std::vector<std::int64_t>> rows;
  double seconds;
};

std::vector<FfnSample> ffn_samples(const std::vector<FfnRow>& rows) {
  std::vector<FfnSample> result;
  result.reserve(rows.size());
  for (const FfnRow& row : rows) {
    auto draws = expert_rows(row);
    result.push_back({ffn_shape(row, draws), std::move(draws), row.seconds});
  }
  return result;
}

std::vector<double> residuals(const Profile& profile, const std::vector<FfnSample>& rows,
                              const std::string& key, models::DType dtype) {
  const ExpertFfnModel model(profile, key, dtype);
  return values_of(rows, [&](const FfnSample& row) {
    double mean = 0;
    for (const auto& draw : row.rows) mean += model.seconds(row.shape, draw);
    return std::log(mean / static_cast<double>(row.rows.size()) / row.seconds);
  });
}

Profile with(Profile profile, const std::string& key, const ParameterSet& set) {
  profile.set(key, set);
  return profile;
}

// Fits names, values, covariance and residual of the law, from its values if it has some.
void fit_values(Profile profile, const std::vector<FfnSample>& rows, const std::string& key,
                models::DType dtype, ParameterSet& set) {
  std::vector<FittedParameter> parameters(std::begin(kParameters), std::end(kParameters));
  for (std::size_t i = 0; i < set.values.size(); ++i) parameters[i].start = set.values[i];
  FitOptions options;
  options.iterations = 40;
  fit_law(
      set, parameters,
      [&](const ParameterSet& trial) {
        profile.set(key, trial);
        return residuals(profile, rows, key, dtype);
      },
      options);
}

}  // namespace

std::vector<double> ffn_residuals(const Profile& profile, const std::vector<FfnRow>& rows,
                                  const std::string& key) {
  if (rows.empty()) return {};
  return residuals(profile, ffn_samples(rows), key, models::dtype_named(rows.front().dtype));
}

ParameterSet fit_ffn(const Profile& profile, const std::vector<FfnRow>& rows, const std::string& key,
                     bool leave_out) {
  const models::DType dtype = models::dtype_named(rows.front().dtype);
  const std::vector<FfnSample> samples = ffn_samples(rows);
  ParameterSet set;
  set.law = "expert-ffn";
  fit_values(profile, samples, key, dtype, set);
  set.residual =
      std::min(set.residual, covering_sigma(residuals(with(profile, key, set), samples, key, dtype)));
  set.rows = static_cast<int>(rows.size());
  set.source = rows.front().origin.source;

  const auto shape = [](const FfnRow& row) { return std::tuple(row.hidden, row.inter, row.experts); };
  std::set<std::tuple<int, int, int>> shapes;
  for (const FfnRow& row : rows) shapes.insert(shape(row));
  if (leave_out && shapes.size() > 1) {
    std::vector<double> left_out;
    for (const auto& out : shapes) {
      std::vector<FfnSample> rest, held;
      for (std::size_t i = 0; i < rows.size(); ++i)
        (shape(rows[i]) == out ? held : rest).push_back(samples[i]);
      ParameterSet trial = set;
      fit_values(profile, rest, key, dtype, trial);
      const auto errors = residuals(with(profile, key, trial), held, key, dtype);
      left_out.insert(left_out.end(), errors.begin(), errors.end());
    }
    const double outside = covering_sigma(left_out);
    set.systematic = std::sqrt(std::max(outside * outside - set.residual * set.residual, 0.0));
  }
  for (const FfnRow& row : rows) widen(set, "tokens", static_cast<double>(row.tokens));
  return set;
}

}  // namespace moesim::calibration

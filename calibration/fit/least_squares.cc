#include "calibration/fit/least_squares.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>

#include "base/check.h"
#include "base/statistics.h"
#include "models/costs/network_law.h"
#include "models/hardware/laws_file.h"

namespace moesim::calibration {

namespace {

double huber_loss(double r, double limit) {
  const double a = std::abs(r);
  return a <= limit ? 0.5 * r * r : limit * (a - 0.5 * limit);
}

double total_loss(const std::vector<double>& r, double limit) {
  double sum = 0;
  for (const double x : r) sum += huber_loss(x, limit);
  return sum;
}

std::vector<double> clamped_exp(const Eigen::VectorXd& logs, const FitOptions& options) {
  std::vector<double> values(static_cast<std::size_t>(logs.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::exp(logs[static_cast<Eigen::Index>(i)]);
    if (!options.low.empty()) values[i] = std::clamp(values[i], options.low[i], options.high[i]);
  }
  return values;
}

using models::ParameterSet;

constexpr double kFreedom = 4;       // of the t distribution of rows
constexpr double kLogOffset = 0.02;  // log standard deviation of the offset shared by all rows of a log
constexpr double kScatterRows = 6;   // weight of the prior scatter in rows
constexpr double kStep = 0.02;       // laws have steps (tiles, knots): the difference quotient spans 2 %
constexpr int kIterations = 40;
// kSettled: stop below this gain. kLeastFree: floor of 1 - leverage in the leave-one-out residual
// r / (1 - leverage).
constexpr double kSettled = 1e-6, kLeastFree = 1e-4;
// Multiples of the spread between machines of one kind that a machine may have.
constexpr double kSpreads[] = {0.1, 0.25, 0.5, 1, 2};
// Rows whose median is further off than this factor may be of a machine of another kind (NVLink off, another
// library), of which one in twenty is (estimates, not measured).
const double kFarOff = std::log(3.0), kOtherKind = -std::log(20.0);
// And of the spread of corrections: a library whose protocols the law has, or lacks.
constexpr double kJumps[] = {1, 3};

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The law in independent coordinates of unit variance under the prior: log value = log start + L z.
class Coordinates {
 public:
  Coordinates(const ParameterSet& start, const LawUpdate& update) : start_(start), update_(update) {
    const std::size_t n = start.values.size();
    check(update.covariance.size() == n * n, "a covariance of all parameters");
    std::vector<double> lower;
    check(models::lower_factor(update.covariance, n, lower), "a covariance is positive");
    const auto size = static_cast<Eigen::Index>(n);
    factor_ = Eigen::Map<const RowMajor>(lower.data(), size, size);
    for (std::size_t i = 0; i < n; ++i)
      if (start.values[i] <= 0) factor_.row(static_cast<Eigen::Index>(i)).setZero();
  }

  ParameterSet law(const Eigen::VectorXd& z) const {
    ParameterSet set = start_;
    const Eigen::VectorXd shift = factor_ * z;
    for (std::size_t i = 0; i < set.values.size(); ++i) {
      set.values[i] *= std::exp(std::clamp(shift[static_cast<Eigen::Index>(i)], -5.0, 5.0));
      if (!update_.low.empty()) set.values[i] = std::clamp(set.values[i], update_.low[i], update_.high[i]);
    }
    return set;
  }

  const Eigen::MatrixXd& factor() const { return factor_; }

 private:
  const ParameterSet& start_;
  const LawUpdate& update_;
  Eigen::MatrixXd factor_;
};

Eigen::VectorXd vector_of(const std::vector<double>& values) {
  return Eigen::Map<const Eigen::VectorXd>(values.data(), static_cast<Eigen::Index>(values.size()));
}

// Returns a covariance row by row, free of the rounding that makes it asymmetric.
std::vector<double> symmetric(const Eigen::MatrixXd& covariance) {
  std::vector<double> rows;
  for (Eigen::Index i = 0; i < covariance.rows(); ++i)
    for (Eigen::Index j = 0; j < covariance.cols(); ++j)
      rows.push_back(0.5 * (covariance(i, j) + covariance(j, i)));
  return rows;
}

// Returns minus the log density of a t distribution, without constants of the rows.
double row_loss(double r, double scatter) {
  return 0.5 * (kFreedom + 1) * std::log1p(r * r / (kFreedom * scatter * scatter)) + std::log(scatter);
}
double row_weight(double r, double scatter) {
  return (kFreedom + 1) / (kFreedom + r * r / (scatter * scatter));
}

class Updater {
 public:
  Updater(const ParameterSet& before, const LawUpdate& update, const LawResiduals& residuals)
      : update_(update), residuals_(residuals), at_(before, update) {
    n_ = static_cast<Eigen::Index>(before.values.size());
    rows_ = static_cast<Eigen::Index>(update.log_of_row.size());
    logs_ = rows_ == 0 ? 0 : 1 + *std::max_element(update.log_of_row.begin(), update.log_of_row.end());
    z_ = Eigen::VectorXd::Zero(n_ + logs_);
  }

  UpdatedLaw run() {
    r_ = residual(z_);
    double squares = r_.size() > 0 ? r_.squaredNorm() / static_cast<double>(r_.size()) : 0;
    // From least squares to the t distribution: otherwise a uniformly slower machine would look like
    // outliers.
    scatter_ = std::max(update_.scatter, std::sqrt(squares));
    double damping = 1e-3;
    for (int i = 0; i < kIterations; ++i) {
      linearise();
      const bool moved = step(damping);
      const double wanted = found_scatter();
      const double next = std::max(wanted, 0.7 * scatter_);
      const bool settled = std::abs(next / scatter_ - 1) < 1e-3;
      scatter_ = next;
      if (!moved && settled) break;
    }
    linearise();
    return result();
  }

 private:
  double offset(const Eigen::VectorXd& z, Eigen::Index row) const {
    return kLogOffset * z[n_ + update_.log_of_row[static_cast<std::size_t>(row)]];
  }

  Eigen::VectorXd residual(const Eigen::VectorXd& z) const {
    Eigen::VectorXd r = vector_of(residuals_(at_.law(z.head(n_))));
    check(r.size() == rows_, "a residual for every row");
    for (Eigen::Index i = 0; i < rows_; ++i) r[i] += offset(z, i);
    return r;
  }

  double loss(const Eigen::VectorXd& z, const Eigen::VectorXd& r) const {
    double sum = 0.5 * z.squaredNorm();
    for (Eigen::Index i = 0; i < rows_; ++i) sum += row_loss(r[i], scatter_);
    return sum;
  }

  // Computes the Jacobian of the rows, weights and the information about z.
  void linearise() {
    // The quotient is taken per parameter, which keeps its span whatever the covariance.
    const ParameterSet law = at_.law(z_.head(n_));
    Eigen::MatrixXd by_parameter(rows_, n_);
    for (Eigen::Index j = 0; j < n_; ++j) {
      if (at_.factor().row(j).isZero(0)) {
        by_parameter.col(j).setZero();
        continue;
      }
      ParameterSet up = law, down = law;
      up.values[static_cast<std::size_t>(j)] *= std::exp(kStep);
      down.values[static_cast<std::size_t>(j)] *= std::exp(-kStep);
      by_parameter.col(j) = (vector_of(residuals_(up)) - vector_of(residuals_(down))) / (2 * kStep);
    }
    jacobian_ = Eigen::MatrixXd::Zero(rows_, n_ + logs_);
    jacobian_.leftCols(n_) = by_parameter * at_.factor();
    for (Eigen::Index i = 0; i < rows_; ++i)
      jacobian_(i, n_ + update_.log_of_row[static_cast<std::size_t>(i)]) = kLogOffset;
    weight_.resize(rows_);
    for (Eigen::Index i = 0; i < rows_; ++i) weight_[i] = row_weight(r_[i], scatter_);
    information_ = Eigen::MatrixXd::Identity(n_ + logs_, n_ + logs_);
    information_ += jacobian_.transpose() * weight_.asDiagonal() * jacobian_ / (scatter_ * scatter_);
  }

  bool step(double& damping) {
    const Eigen::VectorXd gradient =
        z_ + jacobian_.transpose() * weight_.cwiseProduct(r_) / (scatter_ * scatter_);
    const double now = loss(z_, r_);
    for (int attempt = 0; attempt < 10; ++attempt) {
      Eigen::MatrixXd damped = information_;
      damped.diagonal() *= 1 + damping;
      const Eigen::VectorXd next = z_ - damped.ldlt().solve(gradient);
      const Eigen::VectorXd r = residual(next);
      const double then = loss(next, r);
      if (then < now) {
        z_ = next;
        r_ = r;
        damping = std::max(damping / 5, 1e-9);
        return now - then > kSettled;
      }
      damping = std::max(damping * 5, 1e-4);
    }
    return false;
  }

  // Estimates the scatter from the rows and the prior, weighted as kScatterRows rows.
  double found_scatter() const {
    double squares = kScatterRows * update_.scatter * update_.scatter;
    double rows = kScatterRows;
    for (Eigen::Index i = 0; i < rows_; ++i) {
      squares += row_weight(r_[i], scatter_) * r_[i] * r_[i];
      rows += 1;
    }
    return std::sqrt(squares / rows);
  }

  double scatter_loss(double scatter) const {
    // Zero at the known scatter, so that laws of different scatter compare.
    const double known = update_.scatter / scatter;
    return kScatterRows * (0.5 * (known * known - 1) - std::log(known));
  }

  // Returns the log probability of the rows, marginalised over the law.
  double evidence() const {
    return -loss(z_, r_) - scatter_loss(scatter_) - information_.ldlt().vectorD().array().log().sum() / 2;
  }

  UpdatedLaw result() const {
    UpdatedLaw done;
    done.evidence = evidence();
    done.values = at_.law(z_.head(n_)).values;
    const Eigen::MatrixXd inverse =
        information_.ldlt().solve(Eigen::MatrixXd::Identity(n_ + logs_, n_ + logs_));
    const Eigen::MatrixXd covariance =
        at_.factor() * inverse.topLeftCorner(n_, n_) * at_.factor().transpose();
    done.covariance = symmetric(covariance);
    done.scatter = scatter_;
    for (Eigen::Index i = 0; i < rows_; ++i) {
      done.weight.push_back(std::min(1.0, weight_[i]));
      // Leave-one-out residual of a linear fit, from the leverage of the row.
      const double leverage =
          weight_[i] / (scatter_ * scatter_) * jacobian_.row(i) * inverse * jacobian_.row(i).transpose();
      done.left_out.push_back(r_[i] / std::max(1 - leverage, kLeastFree));
    }
    return done;
  }

  const LawUpdate& update_;
  const LawResiduals& residuals_;
  Coordinates at_;
  Eigen::Index n_ = 0, rows_ = 0;
  int logs_ = 0;
  Eigen::VectorXd z_, r_, weight_;
  Eigen::MatrixXd jacobian_, information_;
  double scatter_ = 0;
};

// Returns the mean of laws under several spreads, weighted by the probability of the rows.
UpdatedLaw mean_of(const std::vector<UpdatedLaw>& laws, double most) {
  const std::size_t rows = laws.front().weight.size();
  std::vector<double> share;
  double total = 0;
  for (const UpdatedLaw& law : laws) {
    share.push_back(std::exp(law.evidence - most));
    total += share.back();
  }
  UpdatedLaw mean;
  mean.weight.assign(rows, 0);
  mean.left_out.assign(rows, 0);
  std::vector<WeighedLaw> weighed;
  double squares = 0;
  for (std::size_t k = 0; k < laws.size(); ++k) {
    const double s = share[k] / total;
    weighed.push_back({s, laws[k].values, laws[k].covariance});
    for (std::size_t i = 0; i < rows; ++i) {
      mean.weight[i] += s * laws[k].weight[i];
      mean.left_out[i] += s * laws[k].left_out[i];
    }
    mean.scatter += s * laws[k].scatter;
    squares += s * laws[k].jumps * laws[k].jumps;
  }
  mean.jumps = std::sqrt(squares);
  mean.values = laws.front().values;
  mean.covariance = mean_of_logs(weighed, mean.values);
  mean.evidence = most + std::log(total / static_cast<double>(laws.size()));
  return mean;
}

// Returns whether a file with the correlations of this covariance, three digits each, can be read back.
bool readable(const Eigen::MatrixXd& correlation) {
  const auto n = static_cast<std::size_t>(correlation.rows());
  std::vector<double> rounded(n * n), lower;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      rounded[i * n + j] =
          std::round(correlation(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) * 1e3) / 1e3;
  return models::lower_factor(rounded, n, lower);
}

}  // namespace

FitResult fit_log(std::vector<double> start,
                  const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
                  const FitOptions& options) {
  const auto n = static_cast<Eigen::Index>(start.size());
  Eigen::VectorXd x(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    check(start[static_cast<std::size_t>(i)] > 0, "fitted parameters are positive");
    x[i] = std::log(start[static_cast<std::size_t>(i)]);
  }
  std::vector<double> r = residuals(clamped_exp(x, options));
  const auto rows = static_cast<Eigen::Index>(r.size());
  double loss = total_loss(r, options.huber);
  double damping = 1e-2;
  Eigen::MatrixXd jacobian(rows, n);
  Eigen::MatrixXd normal(n, n);
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    for (Eigen::Index j = 0; j < n; ++j) {
      Eigen::VectorXd up = x, down = x;
      up[j] += kStep;
      down[j] -= kStep;
      const std::vector<double> above = residuals(clamped_exp(up, options)),
                                below = residuals(clamped_exp(down, options));
      jacobian.col(j) = (vector_of(above) - vector_of(below)) / (2 * kStep);
    }
    Eigen::VectorXd gradient = Eigen::VectorXd::Zero(n);
    normal.setZero();
    for (Eigen::Index i = 0; i < rows; ++i) {
      const double value = r[static_cast<std::size_t>(i)];
      const double weight = std::abs(value) <= options.huber ? 1 : options.huber / std::abs(value);
      gradient += weight * value * jacobian.row(i).transpose();
      normal += weight * jacobian.row(i).transpose() * jacobian.row(i);
    }
    bool improved = false;
    for (int attempt = 0; attempt < 12 && !improved; ++attempt) {
      Eigen::MatrixXd damped = normal;
      for (Eigen::Index j = 0; j < n; ++j) damped(j, j) += damping * std::max(normal(j, j), 1e-9);
      Eigen::VectorXd step = damped.ldlt().solve(-gradient);
      for (Eigen::Index j = 0; j < n; ++j) step[j] = std::clamp(step[j], -0.5, 0.5);
      const Eigen::VectorXd candidate = x + step;
      const auto trial = residuals(clamped_exp(candidate, options));
      const double trial_loss = total_loss(trial, options.huber);
      if (trial_loss < loss) {
        improved = true;
        const double gain = (loss - trial_loss) / std::max(loss, 1e-300);
        const auto inside = clamped_exp(candidate, options);
        for (Eigen::Index j = 0; j < n; ++j) x[j] = std::log(inside[static_cast<std::size_t>(j)]);
        r = trial;
        loss = trial_loss;
        damping = std::max(damping / 5, 1e-8);
        if (gain < 1e-6) iteration = options.iterations;
      } else {
        damping *= 4;
      }
    }
    if (!improved) break;
  }

  FitResult result;
  result.values = clamped_exp(x, options);
  double squares = 0;
  for (const double value : r) {
    const double limited = std::min(std::abs(value), 5 * options.huber);
    squares += limited * limited;
  }
  // Few rows for many parameters say little about their scatter: at most two thirds count as used up.
  const double freedom = std::max(static_cast<double>(rows - n), static_cast<double>(rows) / 3);
  result.rms = rows > 0 ? std::sqrt(squares / freedom) : 0;
  // A weak prior of standard deviation 1 on every logarithm keeps undetermined directions finite.
  const double variance = std::max(result.rms * result.rms, 1e-8);
  Eigen::MatrixXd information = normal / variance;
  information += Eigen::MatrixXd::Identity(n, n);
  const Eigen::MatrixXd covariance = information.ldlt().solve(Eigen::MatrixXd::Identity(n, n));
  result.covariance = symmetric(covariance);
  return result;
}

void fit_law(ParameterSet& set, std::span<const FittedParameter> parameters, const LawResiduals& residuals,
             FitOptions options) {
  constexpr double kNoise =
      0.05;  // log standard deviation of a row around a good law: repeats of a benchmark
  set.names.clear();
  std::vector<double> start;
  for (const FittedParameter& p : parameters) {
    set.names.emplace_back(p.name);
    start.push_back(p.start);
    options.low.push_back(p.low);
    options.high.push_back(p.high);
  }
  ParameterSet trial = set;
  const FitResult fit = fit_log(
      start,
      [&](const std::vector<double>& values) {
        trial.values = values;
        std::vector<double> result = residuals(trial);
        for (std::size_t i = 0; i < values.size(); ++i)
          if (const FittedParameter& p = parameters[i]; p.sigma > 0)
            result.push_back(kNoise * std::log(values[i] / p.start) / p.sigma);
        return result;
      },
      options);
  set.values = fit.values;
  set.covariance = fit.covariance;
  set.residual = fit.rms;
}

double covering_sigma(const std::vector<double>& residuals) {
  if (residuals.empty()) return 0;
  constexpr double kCovered = 0.9;
  std::vector<double> magnitudes;
  magnitudes.reserve(residuals.size());
  for (const double r : residuals) magnitudes.push_back(std::abs(r));
  std::ranges::sort(magnitudes);
  const auto at = static_cast<std::size_t>(std::ceil(kCovered * static_cast<double>(magnitudes.size())));
  return magnitudes[std::min(at, magnitudes.size() - 1)] / kZ90;
}

UpdatedLaw update_law(const ParameterSet& before, const LawUpdate& update, const LawResiduals& residuals) {
  // Machines differ little or much: the rows decide the probability of each.
  std::vector<UpdatedLaw> laws;
  double most = -1e300;
  const std::size_t n = before.names.size();
  const auto correction = models::Corrections::calls_of(before, before.source);
  const bool corrected = before.get(models::Corrections::kSigma, 0) > 0;
  const auto try_from = [&](const ParameterSet& start, double log_prior) {
    for (const double scale : kSpreads)
      for (const double jumps : kJumps) {
        if (scale < update.least_spread || scale > update.most_spread || (!corrected && jumps != kJumps[0]))
          continue;
        LawUpdate scaled = update;
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j < n; ++j)
            scaled.covariance[i * n + j] *= (correction[i] ? jumps : scale) * (correction[j] ? jumps : scale);
        laws.push_back(Updater(start, scaled, residuals).run());
        laws.back().jumps = jumps;
        laws.back().evidence += log_prior;
        most = std::max(most, laws.back().evidence);
      }
  };
  try_from(before, 0);
  const double level = median(residuals(before));
  if (!update.longer.empty() && std::abs(level) > kFarOff) {
    ParameterSet moved = before;
    for (std::size_t i = 0; i < n; ++i) {
      moved.values[i] *= std::exp(-level * update.longer[i]);
      if (!update.low.empty()) moved.values[i] = std::clamp(moved.values[i], update.low[i], update.high[i]);
    }
    try_from(moved, kOtherKind);
  }
  return mean_of(laws, most);
}

std::vector<double> mean_of_logs(const std::vector<WeighedLaw>& laws, std::vector<double>& values) {
  const std::size_t n = values.size();
  const auto log_of = [](double value) { return std::log(std::max(value, 1e-300)); };
  std::vector<double> logs(n, 0), covariance(n * n, 0);
  for (const WeighedLaw& law : laws)
    for (std::size_t i = 0; i < n; ++i) logs[i] += law.weight * log_of(law.values[i]);
  for (const WeighedLaw& law : laws)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        const double own = law.covariance.empty() ? 0 : law.covariance[i * n + j];
        const bool both = values[i] > 0 && values[j] > 0;
        covariance[i * n + j] +=
            law.weight *
            (own + (both ? (log_of(law.values[i]) - logs[i]) * (log_of(law.values[j]) - logs[j]) : 0));
      }
  for (std::size_t i = 0; i < n; ++i)
    if (values[i] > 0) values[i] = std::exp(logs[i]);
  return covariance;
}

std::vector<std::vector<double>> sensitivities(
    const ParameterSet& law, const std::function<std::vector<double>(const ParameterSet&)>& log_times) {
  std::vector<std::vector<double>> result;
  for (std::size_t j = 0; j < law.values.size(); ++j) {
    ParameterSet up = law, down = law;
    up.values[j] *= std::exp(kStep);
    down.values[j] *= std::exp(-kStep);
    const std::vector<double> high = log_times(up), low = log_times(down);
    if (result.empty()) result.assign(high.size(), std::vector<double>(law.values.size(), 0));
    for (std::size_t i = 0; i < high.size(); ++i) result[i][j] = (high[i] - low[i]) / (2 * kStep);
  }
  return result;
}

// Returns a covariance whose correlations are valid after rounding to three digits as in files. Where rows
// tie parameters together the matrix is nearly singular, and rounding makes it invalid; then takes the
// nearest matrix whose eigenvalues stay away from zero (N. Higham, "Computing the nearest correlation
// matrix", IMA J. Numer. Anal. 22, 2002: alternating projections with Dykstra's correction). Standard
// deviations stay.
std::vector<double> writable(std::vector<double> covariance, std::size_t n) {
  const auto at = [](std::size_t i) { return static_cast<Eigen::Index>(i); };
  Eigen::MatrixXd correlation = Eigen::MatrixXd::Identity(at(n), at(n));
  std::vector<double> sigma(n);
  for (std::size_t i = 0; i < n; ++i) sigma[i] = std::sqrt(std::max(covariance[i * n + i], 0.0));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (i != j && sigma[i] > 0 && sigma[j] > 0)
        correlation(at(i), at(j)) = std::clamp(covariance[i * n + j] / (sigma[i] * sigma[j]), -1.0, 1.0);
  if (readable(correlation)) return covariance;
  constexpr int kProjections = 50;
  Eigen::MatrixXd result = correlation;
  // From the effect of rounding on the eigenvalues up to no correlation at all.
  for (double least = 1e-3; least < 1 && !readable(result); least *= 2) {
    result = correlation;
    Eigen::MatrixXd correction = Eigen::MatrixXd::Zero(at(n), at(n));
    for (int i = 0; i < kProjections; ++i) {
      const Eigen::MatrixXd shifted = result - correction;
      const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> parts((shifted + shifted.transpose()) / 2);
      const Eigen::MatrixXd positive = parts.eigenvectors() *
                                       parts.eigenvalues().cwiseMax(least).asDiagonal() *
                                       parts.eigenvectors().transpose();
      correction = positive - shifted;
      result = positive;
      result.diagonal().setOnes();
    }
    result = result.cwiseMax(-1.0).cwiseMin(1.0);
  }
  if (!readable(result)) result.setIdentity();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (i != j) covariance[i * n + j] = result(at(i), at(j)) * sigma[i] * sigma[j];
  return covariance;
}

void add_known(ParameterSet& set, std::string_view name, double value) {
  const std::size_t n = set.names.size();
  set.names.emplace_back(name);
  set.values.push_back(value);
  if (set.covariance.empty()) return;
  std::vector<double> covariance((n + 1) * (n + 1), 0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) covariance[i * (n + 1) + j] = set.covariance[i * n + j];
  set.covariance = std::move(covariance);
}

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

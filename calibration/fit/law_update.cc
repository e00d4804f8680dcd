#include "calibration/fit/law_update.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <Eigen/Dense>

#include "base/check.h"
#include "base/text.h"
#include "models/costs/measured_calls.h"
#include "models/costs/size_curve.h"
#include "models/hardware/laws_file.h"

namespace moesim::calibration {

namespace {

using models::ParameterSet;

constexpr double kFreedom = 4;       // of the t distribution of rows
constexpr double kLogOffset = 0.02;  // log standard deviation of the offset shared by all rows of a log
constexpr double kScatterRows = 6;   // weight of the prior scatter in rows
constexpr double kStep = 0.02;       // laws have steps (tiles, knots): the difference quotient spans 2 %
constexpr int kIterations = 40;
// Gain of a step that ends the search, and least 1 - leverage of a row: the residual of a row left out is
// r / (1 - leverage), where a correction of the row's own leaves little of both.
constexpr double kSettled = 1e-6, kLeastFree = 1e-4;
// Multiples of the spread between machines of one kind that a machine may have.
constexpr double kSpreads[] = {0.1, 0.25, 0.5, 1, 2};
// And of the spread of corrections: a library whose protocols the law has, or lacks.
constexpr double kJumps[] = {1, 3};

// The law in independent coordinates of unit variance under the prior: log value = log start + L z.
class Coordinates {
 public:
  Coordinates(const ParameterSet& start, const LawUpdate& update) : start_(start), update_(update) {
    const std::size_t n = start.values.size();
    check(update.covariance.size() == n * n, "a covariance of all parameters");
    std::vector<double> lower;
    check(models::lower_factor(update.covariance, n, lower), "a covariance is positive");
    factor_.resize(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n));
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        factor_(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
            start.values[i] > 0 ? lower[i * n + j] : 0;
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
    for (Eigen::Index i = 0; i < n_; ++i)
      for (Eigen::Index j = 0; j < n_; ++j)
        done.covariance.push_back(0.5 * (covariance(i, j) + covariance(j, i)));
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
  const std::size_t n = laws.front().values.size(), rows = laws.front().weight.size();
  std::vector<double> share;
  double total = 0;
  for (const UpdatedLaw& law : laws) {
    share.push_back(std::exp(law.evidence - most));
    total += share.back();
  }
  UpdatedLaw mean;
  std::vector<double> logs(n, 0);
  mean.covariance.assign(n * n, 0);
  mean.weight.assign(rows, 0);
  mean.left_out.assign(rows, 0);
  double squares = 0;
  for (std::size_t k = 0; k < laws.size(); ++k) {
    const double s = share[k] / total;
    for (std::size_t i = 0; i < n; ++i) logs[i] += s * std::log(std::max(laws[k].values[i], 1e-300));
    for (std::size_t i = 0; i < rows; ++i) {
      mean.weight[i] += s * laws[k].weight[i];
      mean.left_out[i] += s * laws[k].left_out[i];
    }
    mean.scatter += s * laws[k].scatter;
    squares += s * laws[k].jumps * laws[k].jumps;
  }
  mean.jumps = std::sqrt(squares);
  for (std::size_t k = 0; k < laws.size(); ++k) {
    const double s = share[k] / total;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        const double a = std::log(std::max(laws[k].values[i], 1e-300)) - logs[i],
                     b = std::log(std::max(laws[k].values[j], 1e-300)) - logs[j];
        mean.covariance[i * n + j] += s * (laws[k].covariance[i * n + j] + a * b);
      }
  }
  for (std::size_t i = 0; i < n; ++i)
    mean.values.push_back(laws.front().values[i] > 0 ? std::exp(logs[i]) : 0);
  mean.evidence = most + std::log(total / static_cast<double>(laws.size()));
  return mean;
}

}  // namespace

UpdatedLaw update_law(const ParameterSet& before, const LawUpdate& update, const LawResiduals& residuals) {
  // Machines differ little or much: the rows decide the probability of each.
  std::vector<UpdatedLaw> laws;
  double most = -1e300;
  const std::size_t n = before.names.size();
  const auto correction = models::Corrections::calls_of(before, before.source);
  const bool corrected = before.get(models::Corrections::kSigma, 0) > 0;
  for (const double scale : kSpreads)
    for (const double jumps : kJumps) {
      if (scale < update.least_spread || scale > update.most_spread || (!corrected && jumps != kJumps[0]))
        continue;
      LawUpdate scaled = update;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j)
          scaled.covariance[i * n + j] *= (correction[i] ? jumps : scale) * (correction[j] ? jumps : scale);
      laws.push_back(Updater(before, scaled, residuals).run());
      laws.back().jumps = jumps;
      most = std::max(most, laws.back().evidence);
    }
  return mean_of(laws, most);
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

namespace {

using models::ParameterSet;

// Log standard deviations between machines of one kind, from published tables with the same call on several
// of them (docs/calibration.md).
constexpr double kStart = 0.4;        // common to all latencies of a law
constexpr double kRate = 0.2;         // common to all rates of a law
constexpr double kOwnStart = 0.4;     // a latency by itself
constexpr double kOwnRate = 0.2;      // a share of a limit by itself
constexpr double kOwnShape = 0.3;     // other parameters: sizes where protocols change, exponents
constexpr double kCurve = 0.12;       // of the time at one size of a curve, besides the common part
constexpr double kOctaves = 2.0;      // correlation length along a curve, in size
constexpr double kRankOctaves = 2.0;  // and in rank counts
constexpr double kMostOpen = 0.4;     // limit on a fit's uncertainty on another machine
constexpr double kMostLever = 6;      // limit on the amplification of a knot that is a small part of its time

enum class Kind { kSeconds, kRate, kShape };

Kind kind_of(std::string_view name) {
  for (const std::string_view seconds :
       {"latency", "ramp_per", "per_token", "prologue", "floor", "reduction", "overhead", "host"})
    if (name.starts_with(seconds)) return Kind::kSeconds;
  return name.ends_with("share") && name != "remote_share" ? Kind::kRate : Kind::kShape;
}

// Knot of a size curve: "excess/<ranks>/<bytes>".
struct Knot {
  bool is = false;
  double ranks = 0, bytes = 0, lever = 1;
};

std::vector<Knot> knots_of(const ParameterSet& law) {
  std::vector<Knot> knots(law.names.size());
  const double latency = law.get("latency", 0), per_rank = law.get("latency_per_rank", 0);
  for (std::size_t i = 0; i < knots.size(); ++i) {
    const auto parts = split(law.names[i], '/');
    if (parts.size() != 3 || parts[0] != "excess") continue;
    Knot& knot = knots[i];
    knot.is = true;
    knot.ranks = parse_number(parts[1]).value_or(2);
    knot.bytes = parse_number(parts[2]).value_or(1);
    const double floor = latency + per_rank * (knot.ranks - 1), excess = law.values[i];
    knot.lever = excess > 0 ? std::min((floor + excess) / excess, kMostLever) : 0;
  }
  return knots;
}

double apart(double a, double b, double octaves) {
  const double distance = std::log2(a / b) / octaves;
  return std::exp(-0.5 * distance * distance);
}

}  // namespace

std::vector<double> machine_covariance(const ParameterSet& law) {
  const std::size_t n = law.names.size();
  std::vector<double> covariance(n * n, 0);
  if (!law.covariance.empty()) {
    // The fit's covariance, with undetermined directions limited to the differences between machines.
    std::vector<double> scale(n, 1);
    for (std::size_t i = 0; i < n; ++i) {
      const double sigma = std::sqrt(law.covariance[i * n + i]);
      if (sigma > kMostOpen) scale[i] = kMostOpen / sigma;
    }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        covariance[i * n + j] = law.covariance[i * n + j] * scale[i] * scale[j];
  }
  // A law of other machines may be off by its unexplained residual there, all in one direction.
  const double taken_over = law.derived ? std::clamp(law.residual, 0.1, 0.6) : 0;
  const std::vector<Knot> knots = knots_of(law);
  const auto calls = models::Corrections::calls_of(law, law.source);
  const double correction = law.get(models::Corrections::kSigma, 0);
  const auto kind = [&](std::size_t i) { return knots[i].is ? Kind::kRate : kind_of(law.names[i]); };
  const auto direction = [&](std::size_t i) {  // of a longer time
    return knots[i].is || kind(i) == Kind::kSeconds ? 1.0 : kind(i) == Kind::kRate ? -1.0 : 0.0;
  };
  for (std::size_t i = 0; i < n; ++i) {
    if (law.values[i] <= 0 || law.names[i] == models::Corrections::kSigma) continue;
    for (std::size_t j = 0; j < n; ++j) {
      if (law.values[j] <= 0) continue;
      double& c = covariance[i * n + j];
      c += taken_over * taken_over * direction(i) * direction(j);
      if (kind(i) == kind(j) && kind(i) != Kind::kShape)
        c += direction(i) * direction(j) * std::pow(kind(i) == Kind::kSeconds ? kStart : kRate, 2);
      if (knots[i].is && knots[j].is)
        c += kCurve * knots[i].lever * kCurve * knots[j].lever *
             apart(knots[i].bytes / knots[i].ranks, knots[j].bytes / knots[j].ranks, kOctaves) *
             apart(knots[i].ranks, knots[j].ranks, kRankOctaves);
      if (calls[i] && calls[j]) c += correction * correction * calls[i]->likeness(*calls[j]);
      if (i == j && !knots[i].is && !calls[i])
        c += std::pow(kind(i) == Kind::kSeconds ? kOwnStart
                      : kind(i) == Kind::kRate  ? kOwnRate
                                                : kOwnShape,
                      2);
    }
  }
  return covariance;
}

}  // namespace moesim::calibration

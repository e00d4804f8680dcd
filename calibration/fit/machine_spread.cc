#include "calibration/fit/machine_spread.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/text.h"
#include "models/costs/measured_calls.h"
#include "models/costs/size_curve.h"

namespace moesim::calibration {
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

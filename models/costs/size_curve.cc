#include "models/costs/size_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {
namespace {

// Share of one extra step that a ring spends on its own piece, where only one rank count was measured: from
// the ratio of 2 and 8 GPUs on H100 and B200 (published all_gather, 512 MiB).
constexpr double kOwnPiece = 0.37;

// A measured count keeps the scatter between repeated runs, not the error of a rank law.
constexpr double kMeasuredShare = 0.25;

struct Knot {
  double ranks;
  double bytes;
  double seconds;
};

std::vector<Knot> read_knots(const ParameterSet& set, const std::string& key) {
  std::vector<Knot> knots;
  for (std::size_t i = 0; i < set.names.size(); ++i) {
    if (!set.names[i].starts_with("excess/")) continue;
    const auto parts = split(set.names[i], '/');
    const auto ranks = parts.size() == 3 ? parse_number(parts[1]) : std::nullopt;
    const auto bytes = parts.size() == 3 ? parse_number(parts[2]) : std::nullopt;
    if (!ranks || !bytes || *ranks < 2 || *bytes <= 0)
      throw InputError("law " + key + ": found the parameter " + in_quotes(set.names[i]) +
                       ", expected excess/<ranks>/<bytes>");
    knots.push_back({*ranks, *bytes, set.values[i]});
  }
  std::sort(knots.begin(), knots.end(), [](const Knot& a, const Knot& b) {
    return a.ranks != b.ranks ? a.ranks < b.ranks : a.bytes < b.bytes;
  });
  return knots;
}

}  // namespace

namespace {

// Makes the values non-decreasing in size: sizes with a falling measurement get their mean (isotonic
// regression by pooling adjacent violators).
void make_rise(std::span<double> values) {
  struct Pool {
    double sum;
    std::size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::array<Pool, SizeCurve::kMostKnots> pools{};
  std::size_t used = 0;
  for (const double value : values) {
    pools[used++] = {value, 1};
    for (; used > 1 && pools[used - 2].mean() > pools[used - 1].mean(); --used)
      pools[used - 2] = {pools[used - 2].sum + pools[used - 1].sum,
                         pools[used - 2].count + pools[used - 1].count};
  }
  std::size_t at = 0;
  for (std::size_t p = 0; p < used; ++p)
    for (std::size_t i = 0; i < pools[p].count; ++i)
      values[at++] = pools[p].count == 1 ? pools[p].sum : pools[p].mean();
}

}  // namespace

SizeCurve SizeCurve::from(const ParameterSet& set, const std::string& key) {
  SizeCurve curve;
  curve.latency = set.get("latency", 0);
  curve.latency_per_rank = set.get("latency_per_rank", 0);
  curve.factor = set.factor;
  curve.measured_factor = std::pow(set.factor, kMeasuredShare);
  const std::vector<Knot> knots = read_knots(set, key);
  for (const Knot& knot : knots) {
    if (curve.counts == 0 || curve.rank_count[curve.counts - 1] != knot.ranks) {
      if (curve.counts == kMostCounts)
        throw InputError("law " + key + ": found too many rank counts, expected at most 8");
      curve.rank_count[curve.counts++] = knot.ranks;
    }
    if (curve.counts == 1) {
      if (curve.knots == kMostKnots)
        throw InputError("law " + key + ": found too many sizes, expected at most 32");
      curve.size[curve.knots++] = knot.bytes;
    }
  }
  if (knots.empty() || knots.size() != curve.knots * curve.counts)
    throw InputError("law " + key + ": found " + std::to_string(knots.size()) +
                     " knots, expected the same sizes for every rank count");
  for (std::size_t c = 0; c < curve.counts; ++c)
    for (std::size_t k = 0; k < curve.knots; ++k) {
      const Knot& knot = knots[c * curve.knots + k];
      if (knot.bytes != curve.size[k])
        throw InputError("law " + key + ": the rank counts have different sizes");
      curve.excess[c][k] = knot.seconds;
    }
  for (std::size_t c = 0; c < curve.counts; ++c) make_rise(std::span(curve.excess[c]).first(curve.knots));
  return curve;
}

bool SizeCurve::measured(double ranks) const {
  for (std::size_t i = 0; i < counts; ++i)
    if (rank_count[i] == ranks) return true;
  return false;
}

double SizeCurve::excess_of(std::size_t count, double bytes) const {
  const auto end = size.begin() + static_cast<std::ptrdiff_t>(knots);
  const auto segment = static_cast<std::size_t>(std::upper_bound(size.begin(), end, bytes) - size.begin());
  const auto& y = excess[count];
  if (segment == 0) return y[0];
  if (segment == knots) {
    if (knots == 1) return y[0] * bytes / size[0];
    const double slope = (y[knots - 1] - y[knots - 2]) / (size[knots - 1] - size[knots - 2]);
    return y[knots - 1] + std::max(slope, 0.0) * (bytes - size[knots - 1]);
  }
  const double t = (bytes - size[segment - 1]) / (size[segment] - size[segment - 1]);
  return y[segment - 1] + t * (y[segment] - y[segment - 1]);
}

double SizeCurve::excess_at(double ranks, double bytes, double slower) const {
  const double acts = bytes * slower;
  double excess = excess_as_measured(ranks, acts);
  if (slower == 1) return excess;
  // Per byte, excess is monotonic between knots.
  const auto keep = [&](double size) {
    const double scaled = excess_as_measured(ranks, size) * acts / size;
    excess = slower < 1 ? std::max(excess, scaled) : std::min(excess, scaled);
  };
  const auto [low, high] = std::minmax(bytes, acts);
  if (bytes > 0) keep(bytes);
  for (std::size_t c = 0; c < counts; ++c)
    for (std::size_t k = 0; k < knots; ++k)
      if (const double knot = size[k] * (counts == 1 ? 1 : ranks / rank_count[c]); low < knot && knot < high)
        keep(knot);
  return excess;
}

double SizeCurve::excess_as_measured(double ranks, double bytes) const {
  const double piece = bytes / ranks;
  const auto of = [&](std::size_t count) { return excess_of(count, piece * rank_count[count]); };
  std::size_t upper = 0;
  while (upper < counts && rank_count[upper] < ranks) ++upper;
  if (upper < counts && rank_count[upper] == ranks) return factor_at(ranks) * excess_of(upper, bytes);
  double excess = 0;
  if (upper == 0 || counts == 1) {
    // With one count only, compares at the same S: the steps would multiply errors of small pieces.
    const double n = rank_count[0];
    excess = excess_of(0, bytes) * ((ranks - 1 + kOwnPiece) / ranks) / ((n - 1 + kOwnPiece) / n);
  } else if (upper < counts) {
    const double low = of(upper - 1), high = of(upper);
    excess =
        low + (high - low) / (rank_count[upper] - rank_count[upper - 1]) * (ranks - rank_count[upper - 1]);
  } else {
    // Beyond the last count, the line through the first and the last one, where scatter weighs least. It falls where
    // the first one rises faster with the size: no message takes less than a smaller one.
    const double first = rank_count[0], last = rank_count[counts - 1];
    const auto line = [&](double each) {
      const double low = excess_of(0, each * first), high = excess_of(counts - 1, each * last);
      return high + std::max(high - low, 0.0) / (last - first) * (ranks - last);
    };
    excess = line(piece);
    for (std::size_t k = 0; k < knots; ++k)
      for (const double n : {first, last})
        if (size[k] < piece * n) excess = std::max(excess, line(size[k] / n));
  }
  return factor_at(ranks) * excess;
}

}  // namespace moesim::models

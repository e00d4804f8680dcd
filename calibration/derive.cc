#include "calibration/derive.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "calibration/devices.h"
#include "calibration/fit_collectives.h"
#include "calibration/least_squares.h"
#include "calibration/variants.h"
#include "models/dtype.h"
#include "models/size_curve.h"

namespace moesim::calibration {
namespace {

using models::DeviceLimits;
using models::ParameterSet;
using models::Profile;
using models::SizeCurve;

// Collectives reach this share of the data sheet's link rate where the links are the bottleneck: H800,
// all_reduce of two GPUs, 164 of 200 GB/s with its latency (SOURCES.md of the Echo data), 169 in the
// exchanges of its recordings.
constexpr double kLinkShare = 0.84;
// How well that is known before a GPU's own rows are seen, as log standard deviations.
constexpr double kShareSigma = 0.15;
constexpr double kLatencySigma = 0.7;
constexpr double kRowSigma = 0.03;   // and how well a row is
constexpr double kOverlapPower = 4;  // copying and links side by side
// What a law taken over adds to its scatter, from leaving out whole GPUs (docs/calibration.md): H200 from
// H100, B200 from H100.
constexpr double kSameChip = 0.05;
constexpr double kOtherChip = 0.15;
constexpr double kAnchoredLaw = 0.06;  // what a rank count or size far from the rows adds

bool same_chip(const DeviceLimits& a, const DeviceLimits& b) {
  constexpr auto kBf16 = static_cast<std::size_t>(models::DType::kBf16);
  return a.sms == b.sms && a.peak_flops[kBf16] == b.peak_flops[kBf16];
}

double wire_factor(const std::string& key) { return key.find("all_reduce") != std::string::npos ? 2 : 1; }

bool is_latency(const std::string& name) { return name.starts_with("latency"); }

// The relative's law on the links of `to`, with all latencies times `latency`.
ParameterSet adjusted(const ParameterSet& set, const DeviceLimits& from, const DeviceLimits& to,
                      const std::string& key, double share, double latency) {
  ParameterSet result = on_other_links(set, from, to, wire_factor(key), share);
  for (std::size_t i = 0; i < result.names.size(); ++i)
    if (is_latency(result.names[i])) result.values[i] *= latency;
  return result;
}

struct Anchored {
  ParameterSet set;
  double share;
};

Anchored anchored(const ParameterSet& relative, const DeviceLimits& from, const DeviceLimits& to,
                  const std::string& key, const std::vector<CollectiveRow>& rows) {
  const auto points = medians(rows);
  const auto residuals = [&](const std::vector<double>& p) {
    const SizeCurve curve = SizeCurve::from(adjusted(relative, from, to, key, p[0], p[1]), key);
    std::vector<double> result;
    for (const CurvePoint& point : points)
      result.push_back(std::log(curve.seconds(point.ranks, point.bytes) / point.seconds));
    result.push_back(std::log(p[0] / kLinkShare) * kRowSigma / kShareSigma);
    result.push_back(std::log(p[1]) * kRowSigma / kLatencySigma);
    return result;
  };
  FitOptions options;
  options.low = {0.2, 0.1};
  options.high = {1.2, 10};
  const FitResult fit = fit_log({kLinkShare, 1}, residuals, options);
  Anchored result{adjusted(relative, from, to, key, fit.values[0], fit.values[1]), fit.values[0]};
  double squares = 0;
  const SizeCurve curve = SizeCurve::from(result.set, key);
  result.set.domain.clear();
  double low = points.front().bytes, high = low, fewest = points.front().ranks, most = fewest;
  for (const CurvePoint& point : points) {
    squares += std::pow(std::log(curve.seconds(point.ranks, point.bytes) / point.seconds), 2);
    low = std::min(low, point.bytes);
    high = std::max(high, point.bytes);
    fewest = std::min<double>(fewest, point.ranks);
    most = std::max<double>(most, point.ranks);
  }
  result.set.residual = std::max(std::sqrt(squares / static_cast<double>(points.size())), kRowSigma);
  result.set.systematic = kAnchoredLaw;
  result.set.domain = {{"bytes", low, high}, {"ranks", fewest, most}};
  result.set.rows = static_cast<int>(rows.size());
  result.set.derived = false;
  return result;
}

std::vector<CollectiveRow> rows_of(const Measurements& measured, const Profile& profile,
                                   const std::string& key) {
  std::vector<CollectiveRow> rows;
  for (const CollectiveRow& row : measured.collectives) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (device && device == device_of_gpu(profile.gpu()) && inside_domain(row, profile) &&
        !integer_reduction(row) && collective_key(row.op, false) == key)
      rows.push_back(row);
  }
  return rows;
}

std::string first_source(const std::vector<CollectiveRow>& rows) {
  const std::string& source = rows.front().origin.source;
  return source.substr(0, source.find(','));
}

}  // namespace

ParameterSet on_other_links(const ParameterSet& set, const DeviceLimits& from, const DeviceLimits& to,
                            double wire_factor, double share) {
  ParameterSet result = set;
  if (from.scaleup_bandwidth <= 0 || to.scaleup_bandwidth <= 0) return result;
  const SizeCurve curve = SizeCurve::from(set, "derived");
  const bool slower_links = same_chip(from, to) && to.scaleup_bandwidth <= from.scaleup_bandwidth;
  const double ratio = from.scaleup_bandwidth / to.scaleup_bandwidth * kLinkShare / share;
  for (std::size_t i = 0; i < result.names.size(); ++i) {
    if (!result.names[i].starts_with("excess/")) continue;
    const auto parts = split(result.names[i], '/');
    const double ranks = *parse_number(parts[1]), bytes = *parse_number(parts[2]);
    double& excess = result.values[i];
    if (slower_links) {
      const double wire = wire_factor * bytes * (ranks - 1) / ranks;
      const double total = std::pow(excess, kOverlapPower);
      // Never more than all of it: reductions in the switch move less than a ring.
      const double links =
          std::min(std::pow(wire / (kLinkShare * from.scaleup_bandwidth), kOverlapPower), total);
      excess = std::pow(total - links + links * std::pow(ratio, kOverlapPower), 1 / kOverlapPower);
    } else {
      const double large = curve.size[curve.knots - 1];
      const double slope = (curve.excess_at(ranks, 2 * large) - curve.excess_at(ranks, large)) / large;
      excess = std::max(excess + slope * (ratio - 1) * bytes, 0.0);
    }
  }
  return result;
}

void derive_missing(Profile& profile, const Profile& relative, const Measurements& measured) {
  std::vector<std::string> derived, fitted;
  const DeviceLimits &from = relative.device(), &to = profile.device();
  const auto lacks = [&](const std::string& key) {
    return !profile.find(key) && key.find('@') == std::string::npos;
  };
  double share = kLinkShare;
  int shares = 0;
  double logs = 0;
  for (const auto& [key, set] : relative.sets()) {
    if (!key.ends_with("/scaleup") || !lacks(key)) continue;
    const auto rows = rows_of(measured, profile, key);
    if (rows.empty()) continue;
    Anchored result = anchored(set, from, to, key, rows);
    result.set.source = first_source(rows) + ", in the law of " + relative.name();
    profile.set(key, std::move(result.set));
    fitted.push_back(key + " (" + std::to_string(rows.size()) + " rows)");
    logs += std::log(result.share);
    ++shares;
  }
  if (shares > 0) share = std::exp(logs / shares);
  for (const auto& [key, set] : relative.sets()) {
    if (!lacks(key)) continue;
    if (key.starts_with("gemm/") || key.starts_with("grouped_gemm/")) {
      const std::string dtype = key.substr(key.find('/') + 1);
      if (to.peak_flops[static_cast<std::size_t>(models::dtype_named(dtype))] <= 0) continue;
    }
    ParameterSet copy = key.ends_with("/scaleup") ? adjusted(set, from, to, key, share, 1) : set;
    copy.derived = true;
    copy.residual = std::hypot(copy.residual, same_chip(from, to) ? kSameChip : kOtherChip);
    copy.rows = 0;
    copy.source = "derived from " + relative.name() + ": " + set.source;
    profile.set(key, copy);
    derived.push_back(key);
  }
  auto gaps = profile.gaps();
  if (!fitted.empty())
    gaps.push_back("the law of " + relative.name() +
                   " on its own links, two numbers fitted: " + join(fitted, ", "));
  if (!derived.empty())
    gaps.push_back("derived from " + relative.name() + ", not measured: " + join(derived, ", "));
  profile.describe(profile.name(), profile.gpu(), profile.provenance(), gaps);
}

}  // namespace moesim::calibration

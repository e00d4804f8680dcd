#include "calibration/rows/rank_counts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "calibration/rows/variants.h"
#include "models/costs/size_curve.h"
#include "models/hardware/gpu_family.h"

namespace moesim::calibration {
namespace {

using models::SizeCurve;

// The generation whose GPUs run one library on one kind of chip and switch.
constexpr std::string_view kSharedCounts = "blackwell";

SizeCurve curve_of(const std::vector<CollectiveRow>& rows) {
  return SizeCurve::from(fit_size_curve(rows), "fit");
}

std::set<int> counts_of(const std::vector<CollectiveRow>& rows) {
  std::set<int> counts;
  for (const CollectiveRow& row : rows) counts.insert(row.ranks());
  return counts;
}

std::set<double> sizes_of(const std::vector<CollectiveRow>& rows) {
  std::set<double> sizes;
  for (const CollectiveRow& row : rows) sizes.insert(row.bytes);
  return sizes;
}

std::vector<CurvePoint> ring_or_switch(const std::vector<CollectiveRow>& rows,
                                       const std::vector<CollectiveRow>& integer) {
  constexpr int kRing = 2, kBetween = 4, kSwitch = 8;
  // Below this share of the ring's time the switch must be used.
  constexpr double kSwitched = 0.93;
  const SizeCurve own = curve_of(rows), ring = curve_of(integer);
  // Floats add faster than integers.
  const auto cost = [&](double bytes) { return own.seconds(kRing, bytes) / ring.seconds(kRing, bytes); };
  std::vector<CurvePoint> points;
  for (const double bytes : sizes_of(rows)) {
    // At two ranks, with equal pieces per rank.
    double seconds = ring.seconds(kBetween, bytes) * cost(bytes * kRing / kBetween);
    if (own.seconds(kSwitch, bytes) < kSwitched * cost(bytes) * ring.seconds(kSwitch, bytes)) {
      const double by_switch =
          own.floor(kBetween) + own.excess_at(kSwitch, bytes) * (1 + 1.0 / kBetween) / (1 + 1.0 / kSwitch);
      seconds = std::min(seconds, by_switch);
    }
    points.push_back({kBetween, bytes, seconds});
  }
  return points;
}

}  // namespace

std::vector<CurvePoint> missing_rank_counts(const std::vector<CollectiveRow>& rows,
                                            const std::vector<CollectiveRow>& integer,
                                            const std::vector<CollectiveRow>& all, const Device& device) {
  const std::set<int> have = counts_of(rows);
  const bool reduces = rows.front().op == sim::CollectiveOp::all_reduce ||
                       rows.front().op == sim::CollectiveOp::reduce_scatter;
  const models::GpuFamily* family = models::gpu_family(device.profile);
  if (family != nullptr && family->generation == kSharedCounts) {
    std::vector<CurvePoint> points;
    std::set<int> added;
    for (const models::GpuFamily& relative : models::gpu_families()) {
      const std::string& name = relative.profile;
      if (name == device.profile || relative.generation != family->generation) continue;
      std::vector<CollectiveRow> others;
      for (const CollectiveRow& row : all) {
        const Device* owner = device_of_gpu(row.origin.gpu);
        if (owner && owner->profile == name && row.op == rows.front().op &&
            row.library == rows.front().library && row.nodes == 1 &&
            (!reduces || integer_reduction(row) == integer_reduction(rows.front())))
          others.push_back(row);
      }
      if (others.empty()) continue;
      const SizeCurve own = curve_of(rows), other = curve_of(others);
      const double largest = *sizes_of(rows).rbegin();
      for (const int count : counts_of(others)) {
        if (have.contains(count) || !added.insert(count).second) continue;
        // Compared at a count that this device has measured: latencies and bandwidths differ by constant
        // factors. Latencies of two own counts are more precise.
        const double here = *have.rbegin();
        const double scale = own.excess_at(here, largest) / other.excess_at(here, largest);
        const double start =
            have.size() > 1 ? own.floor(count) / other.floor(count) : own.floor(here) / other.floor(here);
        for (const double bytes : sizes_of(others))
          points.push_back(
              {count, bytes, start * other.floor(count) + scale * other.excess_at(count, bytes)});
      }
    }
    if (!points.empty()) return points;
  }
  if (rows.front().op == sim::CollectiveOp::all_reduce && !integer.empty() &&
      !integer_reduction(rows.front()) && have.contains(2) && have.contains(8) && !have.contains(4) &&
      counts_of(integer).contains(2) && counts_of(integer).contains(8))
    return ring_or_switch(rows, integer);
  return {};
}

}  // namespace moesim::calibration

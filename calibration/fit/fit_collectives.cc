#include "calibration/fit/fit_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "calibration/fit/least_squares.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"
#include "models/costs/network_law.h"
#include "models/costs/size_curve.h"
#include "models/hardware/gpu_family.h"

namespace moesim::calibration {

namespace {

using models::ParameterSet;
using models::SizeCurve;

constexpr double kLatencyBytes = 4096;    // up to here a collective is latency only
constexpr double kKnotTolerance = 0.015;  // a knot whose removal changes less than this is dropped

double median(std::vector<double> values) {
  check(!values.empty(), "a median needs values");
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 ? values[middle] : std::sqrt(values[middle - 1] * values[middle]);
}

// Interpolates log T in log S.
double interpolate(const std::map<double, double>& curve, double bytes) {
  const auto above = curve.lower_bound(bytes);
  if (above == curve.end()) {
    const auto last = std::prev(curve.end());
    return last->second * bytes / last->first;  // bandwidth-bound beyond the data
  }
  if (above->first == bytes || above == curve.begin()) return above->second;
  const auto below = std::prev(above);
  const double t = (bytes - below->first) / (above->first - below->first);
  return below->second + t * (above->second - below->second);
}

// Pool adjacent violators: the nearest (least squares) non-decreasing sequence.
std::vector<double> non_decreasing(const std::vector<double>& values) {
  std::vector<std::pair<double, int>> blocks;
  for (const double v : values) {
    blocks.emplace_back(v, 1);
    while (blocks.size() > 1 && blocks[blocks.size() - 2].first > blocks.back().first) {
      const auto [b, count] = blocks.back();
      blocks.pop_back();
      auto& [a, n] = blocks.back();
      a = (a * n + b * count) / (n + count);
      n += count;
    }
  }
  std::vector<double> result;
  for (const auto& [value, count] : blocks)
    result.insert(result.end(), static_cast<std::size_t>(count), value);
  return result;
}

void add(ParameterSet& set, std::string name, double value) {
  set.names.push_back(std::move(name));
  set.values.push_back(value);
}

void set_sigmas(ParameterSet& set, double sigma) {
  const std::size_t n = set.names.size();
  set.covariance.assign(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) set.covariance[i * n + i] = sigma * sigma;
}

double five_digits(double value) {
  if (value <= 0) return 0;
  const double scale = std::pow(10, 4 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

}  // namespace

std::vector<CurvePoint> medians(const std::vector<CollectiveRow>& rows) {
  std::map<std::pair<int, double>, std::vector<double>> cells;
  for (const CollectiveRow& row : rows) cells[{row.ranks(), row.bytes}].push_back(row.seconds);
  std::vector<CurvePoint> points;
  points.reserve(cells.size());
  for (const auto& [key, times] : cells) points.push_back({key.first, key.second, median(times)});
  return points;
}

ParameterSet curve_through(const std::vector<CurvePoint>& points, double scatter) {
  std::map<int, std::map<double, double>> curves;
  std::set<double> all_sizes;
  for (const CurvePoint& point : points) {
    curves[point.ranks][point.bytes] = point.seconds;
    all_sizes.insert(point.bytes);
  }
  // Latency: linear in n - 1 through the medians of the small messages.
  std::map<int, double> floors;
  for (const auto& [ranks, curve] : curves) {
    std::vector<double> small;
    for (const auto& [bytes, seconds] : curve)
      if (bytes <= kLatencyBytes) small.push_back(seconds);
    floors[ranks] = small.empty() ? curve.begin()->second * 0.5 : median(small);
  }
  double per_rank = 0, latency = floors.begin()->second;
  if (floors.size() > 1) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (const auto& [ranks, floor] : floors) {
      sx += ranks - 1;
      sy += floor;
      sxx += (ranks - 1.0) * (ranks - 1.0);
      sxy += (ranks - 1) * floor;
    }
    const double n = static_cast<double>(floors.size());
    per_rank = std::max((n * sxy - sx * sy) / (n * sxx - sx * sx), 0.0);
    latency = (sy - per_rank * sx) / n;
    // No count may lie below its latency: the excess is never negative.
    for (const auto& [ranks, floor] : floors) latency = std::min(latency, floor - per_rank * (ranks - 1));
    if (latency <= 0) {
      per_rank = 0;
      latency = floors.begin()->second;
      for (const auto& [ranks, floor] : floors) latency = std::min(latency, floor);
    }
  } else {
    // With one count only, uses the split of ring latency on NVSwitch machines (2 against 8 GPUs), 1 part in
    // 7 per step.
    const double steps = floors.begin()->first - 1;
    per_rank = floors.begin()->second / (6 + steps);
    latency = 6 * per_rank;
  }
  const std::vector<double> sizes(all_sizes.begin(), all_sizes.end());
  std::map<int, std::vector<double>> excess;
  for (const auto& [ranks, curve] : curves) {
    std::vector<double> values;
    values.reserve(sizes.size());
    for (const double bytes : sizes)
      values.push_back(std::max(interpolate(curve, bytes) - latency - per_rank * (ranks - 1), 0.0));
    excess[ranks] = non_decreasing(values);
  }
  // Drops knots from the flattest while every point stays within the tolerance of the whole curve.
  std::vector<std::size_t> kept(sizes.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = i;
  const auto error_without = [&](std::size_t position) {
    double worst = 0;
    const std::size_t a = kept[position - 1], b = kept[position + 1];
    for (const auto& [ranks, values] : excess)
      for (std::size_t i = a + 1; i < b; ++i) {
        const double line =
            values[a] + (values[b] - values[a]) * (sizes[i] - sizes[a]) / (sizes[b] - sizes[a]);
        const double floor = latency + per_rank * (ranks - 1);
        worst = std::max(worst, std::abs((floor + line) / (floor + values[i]) - 1));
      }
    return worst;
  };
  while (kept.size() > 3) {
    std::size_t best = 0;
    double least = kept.size() > SizeCurve::kMostKnots ? 1e9 : kKnotTolerance;
    for (std::size_t p = 1; p + 1 < kept.size(); ++p) {
      const double error = error_without(p);
      if (error < least) {
        least = error;
        best = p;
      }
    }
    if (best == 0) break;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(best));
  }
  ParameterSet set;
  set.law = "size-curve";
  add(set, "latency", five_digits(latency));
  add(set, "latency_per_rank", five_digits(per_rank));
  for (const auto& [ranks, values] : excess)
    for (const std::size_t i : kept)
      add(set, fmt::format("excess/{}/{:.0f}", ranks, std::floor(sizes[i])), five_digits(values[i]));
  set_sigmas(set, scatter / std::sqrt(2.0));
  set.rows = static_cast<int>(points.size());
  for (const CurvePoint& point : points) {
    widen(set, "bytes", point.bytes);
    widen(set, "ranks", point.ranks);
  }
  return set;
}

ParameterSet fit_size_curve(const std::vector<CollectiveRow>& rows) {
  const auto points = medians(rows);
  ParameterSet set = curve_through(points, 0.02);
  const SizeCurve curve = SizeCurve::from(set, "fit");
  double squares = 0;
  for (const CollectiveRow& row : rows) {
    const double r = std::log(curve.seconds(row.ranks(), row.bytes) / row.seconds);
    squares += std::min(r * r, 0.25);
  }
  set.residual = std::sqrt(squares / static_cast<double>(rows.size()));
  set_sigmas(set, std::max(set.residual, 0.01) / std::sqrt(2.0));
  set.rows = static_cast<int>(rows.size());
  set.source = rows.front().origin.source;
  return set;
}

ParameterSet fit_network(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows) {
  const sim::CollectiveOp op = rows.front().op;
  const bool message = op == sim::CollectiveOp::send_recv;
  const bool pairwise = op == sim::CollectiveOp::all_to_all || message;
  std::set<int> node_counts, per_node;
  bool small = false;
  for (const CollectiveRow& row : rows) {
    node_counts.insert(row.nodes);
    per_node.insert(row.gpus_per_node);
    small = small || row.bytes <= kLatencyBytes;
  }
  // Fits only parameters that the rows can distinguish; the rest keep neutral values.
  const bool tree = op == sim::CollectiveOp::all_reduce;
  std::vector<FittedParameter> parameters = {{"latency", 2e-5, 1e-6, 2e-3}};
  if (tree)
    parameters.push_back({"latency_per_octave", 1e-5, 1e-9, 2e-3});
  else
    parameters.push_back({"latency_per_rank", 3e-6, 1e-9, 2e-4});
  if (node_counts.size() > 1 && !tree) parameters.push_back({"latency_per_node", 1e-6, 1e-9, 1e-3});
  if (per_node.size() > 1 && !pairwise) parameters.push_back({"latency_per_peer", 3e-7, 1e-10, 1e-5});
  if (small) {
    parameters.push_back(tree ? FittedParameter{"ramp_per_octave", 3e-5, 1e-9, 5e-3}
                              : FittedParameter{"ramp_per_rank", 2e-6, 1e-9, 2e-4});
    parameters.push_back({"ramp_bytes", 1e5, 1e3, 1e8});
  }
  parameters.push_back({"connection_share", 0.9, 0.02, 2.0});
  if (pairwise && !message) parameters.push_back({"port_share", 0.9, 0.05, 1.2});
  if (!message) parameters.push_back({"node_share", 0.85, 0.05, 1.2});
  if (node_counts.size() > 1) parameters.push_back({"spread", 0.03, 1e-3, 1.0});
  if (message && node_counts.size() > 1 && per_node.size() > 1)
    parameters.push_back({"collision", 0.05, 1e-3, 1.0});
  if (op == sim::CollectiveOp::all_reduce && node_counts.size() > 1)
    parameters.push_back({"hierarchy", 0.3, 1e-3, 1.0});
  if (message) parameters.push_back({"port_share", 1.2, 1.2, 1.2});

  ParameterSet set;
  set.law = "network";
  fit_law(set, parameters, [&](const ParameterSet& trial) {
    const auto curve = models::NetworkCurve::from(trial, collective_key(op, true), cluster);
    return values_of(rows, [&](const CollectiveRow& row) {
      const auto shape = models::GroupShape::uniform(row.nodes, row.gpus_per_node);
      return std::log(curve.seconds(shape, row.bytes) / row.seconds);
    });
  });
  set.rows = static_cast<int>(rows.size());
  set.source = rows.front().origin.source;
  for (const CollectiveRow& row : rows) {
    widen(set, "bytes", row.bytes);
    widen(set, "ranks", row.ranks());
    widen(set, "nodes", row.nodes);
  }
  return set;
}

namespace {

// A share hidden by other limits may have any value above the visible range: sets its middle, and a spread
// that keeps draws inside of it, so that no interval contradicts the law's own rows.
void identify_shares(ParameterSet& set, const std::vector<FittedParameter>& parameters,
                     const LawResiduals& residuals) {
  constexpr double kStep = 1.02, kRise = 1.05;
  const std::size_t n = set.names.size();
  const auto squares = [&](const ParameterSet& trial) {
    double sum = 0;
    for (const double r : residuals(trial)) sum += std::min(r * r, 1.0);
    return sum;
  };
  const double best = squares(set);
  for (std::size_t i = 0; i < n; ++i) {
    if (!set.names[i].ends_with("_share")) continue;
    const double sigma = std::sqrt(set.covariance[i * n + i]);
    ParameterSet trial = set;
    double low = set.values[i];
    const double stop = std::max(parameters[i].low, low * std::exp(-2 * sigma));
    while (low > stop) {
      trial.values[i] = low / kStep;
      if (squares(trial) > kRise * best + 1e-9) break;
      low /= kStep;
    }
    trial.values[i] = std::min(parameters[i].high, set.values[i] * 1.1);
    const bool open = squares(trial) <= kRise * best + 1e-9;  // above, the rows do not depend on it
    if (!open || low < set.values[i] * std::exp(-1.2 * sigma)) continue;
    const double high = std::max(parameters[i].high, low);
    set.values[i] = std::sqrt(low * high);
    for (std::size_t j = 0; j < n; ++j) set.covariance[i * n + j] = set.covariance[j * n + i] = 0;
    // The 90 % interval is [low, high].
    set.covariance[i * n + i] = std::pow(std::log(high / low) / (2 * 1.645), 2);
  }
}

std::vector<FittedParameter> parameters_of(sim::CollectiveOp op, const ParameterSet* prior) {
  const bool message = op == sim::CollectiveOp::send_recv, exchange = op == sim::CollectiveOp::all_to_all,
             tree = op == sim::CollectiveOp::all_reduce;
  constexpr double kOpen = 1.0;
  // Starts as NCCL reckons them (src/graph/tuning.cc of 2.2x: seconds of LL and, for the ramp, what Simple
  // takes more; 8 GPUs a node): ring steps of 0.6 x 1.8 us inside a node and 2.7 us between nodes, 3.4 us by
  // Simple; of a tree 5 us and 14 us a level, up and down.
  std::vector<FittedParameter> all = {{"latency", tree ? 2.2e-5 : 6.6e-6, 1e-6, 2e-3, kOpen}};
  if (tree)
    all.push_back({"latency_per_octave", 1e-5, 1e-9, 2e-3, kOpen});
  else
    all.push_back({"latency_per_rank", 1.1e-6, 1e-9, 2e-4, kOpen});
  if (!tree) all.push_back({"latency_per_node", 1.6e-6, 1e-9, 1e-3, kOpen});
  if (!message && !exchange) all.push_back({"latency_per_peer", 1e-8, 1e-10, 1e-5, kOpen});
  all.push_back(tree ? FittedParameter{"ramp_per_octave", 1.8e-5, 1e-9, 5e-3, kOpen}
                     : FittedParameter{"ramp_per_rank", 2.3e-6, 1e-9, 2e-4, kOpen});
  all.push_back({"ramp_bytes", 2e5, 1e3, 1e8, kOpen});
  all.push_back({"connection_share", 0.85, 0.02, 1.0, 0.2});
  if (exchange) all.push_back({"port_share", 0.9, 0.05, 1.0, 0.2});
  if (!message) all.push_back({"node_share", 0.85, 0.05, 1.0, 0.2});
  all.push_back({"spread", 0.03, 1e-3, 1.0, kOpen});
  if (message) all.push_back({"collision", 0.05, 1e-3, 1.0, kOpen});
  if (tree) all.push_back({"hierarchy", 0.3, 1e-3, 1.0, kOpen});
  for (FittedParameter& p : all) {
    if (!prior) continue;
    p.start = std::clamp(prior->get(p.name, p.start), p.low, p.high);
    p.sigma = std::min(p.sigma, kNetworksDiffer);
  }
  return all;
}

}  // namespace

void fit_with_priors(ParameterSet& set, const std::vector<FittedParameter>& parameters,
                     const LawResiduals& residuals) {
  FitOptions options;
  options.huber = 0.15;
  fit_law(set, parameters, residuals, options);
  // Limits every parameter's uncertainty to its prior.
  const std::size_t n = set.names.size();
  for (std::size_t i = 0; i < n; ++i) {
    const double most = parameters[i].sigma, own = std::sqrt(set.covariance[i * n + i]);
    if (own <= most) continue;
    for (std::size_t j = 0; j < n; ++j) {
      set.covariance[i * n + j] *= most / own;
      set.covariance[j * n + i] *= most / own;
    }
  }
  double squares = 0;
  const std::vector<double> own = residuals(set);
  for (const double r : own) squares += std::min(r * r, 1.0);
  set.residual = own.empty() ? 0 : std::sqrt(squares / static_cast<double>(own.size()));
  identify_shares(set, parameters, residuals);
}

std::vector<double> network_residuals(const ParameterSet& set, sim::CollectiveOp op,
                                      const std::vector<NetworkRow>& rows) {
  const std::string key = collective_key(op, true);
  std::map<const models::Cluster*, models::NetworkCurve> curves;
  return values_of(rows, [&](const NetworkRow& one) {
    auto at = curves.find(one.cluster);
    if (at == curves.end())
      at = curves.emplace(one.cluster, models::NetworkCurve::from(set, key, *one.cluster)).first;
    const auto shape = models::GroupShape::uniform(one.row->nodes, one.row->gpus_per_node);
    return one.weight * std::log(at->second.seconds(shape, one.row->bytes) / one.row->seconds);
  });
}

ParameterSet fit_networks_law(sim::CollectiveOp op, const std::vector<NetworkRow>& rows,
                              const ParameterSet* prior) {
  ParameterSet set;
  set.law = "network";
  fit_with_priors(set, parameters_of(op, prior),
                  [&](const ParameterSet& trial) { return network_residuals(trial, op, rows); });
  // One message: the port itself is no limit besides the connection.
  if (op == sim::CollectiveOp::send_recv) add_known(set, "port_share", 1.2);
  set.rows = static_cast<int>(rows.size());
  for (const NetworkRow& one : rows) {
    widen(set, "bytes", one.row->bytes);
    widen(set, "ranks", one.row->ranks());
    widen(set, "nodes", one.row->nodes);
  }
  return set;
}

namespace {

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

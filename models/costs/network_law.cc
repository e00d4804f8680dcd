#include "models/costs/network_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/costs/collectives.h"
#include "models/hardware/cluster.h"
#include "models/hardware/group_shape.h"
#include "models/hardware/laws_file.h"

namespace moesim::models {

NetworkCurve NetworkCurve::from(const ParameterSet& set, const std::string& key, const Cluster& cluster) {
  NetworkCurve curve;
  curve.message = key.find("send_recv") != std::string::npos;
  curve.pairwise = curve.message || key.find("all_to_all") != std::string::npos;
  curve.wire_factor = key.find("all_reduce") != std::string::npos ? 2 : 1;
  curve.latency = set.get("latency", 0);
  curve.latency_per_node = set.get("latency_per_node", 0);
  curve.latency_per_rank = set.get("latency_per_rank", 0);
  curve.latency_per_peer = set.get("latency_per_peer", 0);
  curve.ramp_per_rank = set.get("ramp_per_rank", 0);
  curve.latency_per_octave = set.get("latency_per_octave", 0);
  curve.ramp_per_octave = set.get("ramp_per_octave", 0);
  curve.ramp_bytes = set.get("ramp_bytes", 1);
  curve.spread = set.get("spread", 0);
  curve.collision = set.get("collision", 0);
  curve.hierarchy = set.get("hierarchy", 0);
  curve.factor = set.factor;
  curve.corrections = Corrections::from(set, key);
  const double port = cluster.gpu_network();
  if (port <= 0)
    throw InputError("cluster " + cluster.name + " has no network bandwidth; give nic.bandwidth");
  curve.connection = port * set.get("connection_share", 0.75);
  if (cluster.nic.per_connection_cap > 0)
    curve.connection = std::min(curve.connection, cluster.nic.per_connection_cap);
  curve.port = port * set.get("port_share", 0.9);
  curve.domain = cluster.domain_network() * set.get("node_share", 0.8);
  if (cluster.nic.latency > 0) curve.latency_per_node = std::max(curve.latency_per_node, cluster.nic.latency);
  return curve;
}

double NetworkCurve::seconds(const GroupShape& shape, double size) const {
  const double n = shape.ranks;
  const double g = shape.max_per_domain;
  const double nodes = shape.domains;
  const double octaves = latency_per_octave + ramp_per_octave > 0 ? std::log2(nodes) : 0;
  const double ramp = (ramp_per_rank * (n - 1) + ramp_per_octave * octaves) * size / (size + ramp_bytes);
  const double start = latency + latency_per_node * (nodes - 1) +
                       (latency_per_rank + latency_per_peer * (shape.max_per_node - 1)) * (n - 1) +
                       latency_per_octave * octaves + ramp;
  double bytes = 0, bandwidth = 0;
  if (message) {
    bytes = size;
    bandwidth = shape.pair_bandwidth > 0 ? shape.pair_bandwidth : std::min(connection, port);
  } else if (pairwise) {
    // Seconds per byte of the buffer: for a rank in the domain with the fewest, and for the ports of both
    // kinds of domain.
    const double few = shape.min_per_domain, own = 1 - few / n;
    const double rank = own / std::min(connection * (n - few), port);
    const double shared = std::max(g * (1 - g / n), few * own) / domain;
    bytes = own * size;
    bandwidth = shape.pair_bandwidth > 0 ? shape.pair_bandwidth : own / std::max(rank, shared);
  } else {
    const double ring = (n - 1) / n, inter = (nodes - 1) / nodes;
    bytes = wire_factor * size * (wire_factor > 1 ? ring + hierarchy * (inter - ring) : ring);
    bandwidth = std::min(connection * shape.min_per_domain, domain);
  }
  const double falling = spread + (message ? collision * std::log2(g) : 0);
  if (falling > 0 && nodes > 2) bandwidth *= std::pow(nodes / 2, -falling);
  return factor * corrections.at(shape, size) * (start + bytes / bandwidth);
}

namespace {

constexpr std::string_view kPrefix = "correction/";
// Octaves over which the correlation falls to 1/e, chosen by the errors on published clusters
// (docs/calibration.md, "One log makes it mine").
constexpr double kSizeOctaves = 6, kGroupOctaves = 3;
// Share of the variance that a call has by itself: keeps the matrix regular where two calls are close.
constexpr double kOwn = 1e-3;

// Returns nullopt where the name is not that of a correction.
std::optional<MeasuredCall> call_named(std::string_view name, const std::string& key) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto parts = split(name, '/');
  MeasuredCall call;
  bool right = parts.size() == 4;
  for (std::size_t i = 1; right && i < 4; ++i) {
    const auto number = parse_number(parts[i]);
    right = number && *number >= 1;
    if (right) (i == 1 ? call.domains : i == 2 ? call.ranks : call.bytes) = std::log2(*number);
  }
  if (!right)
    throw InputError("law " + key + ": found the parameter " + in_quotes(name) +
                     ", expected correction/<domains>/<ranks of a domain>/<bytes>");
  return call;
}

// Replaces v by L^-1 v.
void forward(const std::vector<double>& lower, std::vector<double>& v) {
  const std::size_t n = v.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) v[i] -= lower[i * n + j] * v[j];
    v[i] /= lower[i * n + i];
  }
}

// Replaces v by L'^-1 v.
void backward(const std::vector<double>& lower, std::vector<double>& v) {
  const std::size_t n = v.size();
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) v[i] -= lower[j * n + i] * v[j];
    v[i] /= lower[i * n + i];
  }
}

}  // namespace

MeasuredCall MeasuredCall::of(const GroupShape& shape, double size) {
  return {std::log2(shape.domains), std::log2(shape.max_per_domain), std::log2(std::max(size, 1.0))};
}

std::string MeasuredCall::name() const {
  return fmt::format("{}{:.0f}/{:.0f}/{:.0f}", kPrefix, std::exp2(domains), std::exp2(ranks),
                     std::exp2(bytes));
}

double MeasuredCall::likeness(const MeasuredCall& other) const {
  return std::exp(-std::abs(bytes - other.bytes) / kSizeOctaves -
                  std::hypot(domains - other.domains, ranks - other.ranks) / kGroupOctaves);
}

std::vector<std::optional<MeasuredCall>> Corrections::calls_of(const ParameterSet& set,
                                                               const std::string& key) {
  std::vector<std::optional<MeasuredCall>> calls;
  calls.reserve(set.names.size());
  for (const std::string& name : set.names) calls.push_back(call_named(name, key));
  return calls;
}

Corrections Corrections::from(const ParameterSet& set, const std::string& key) {
  Corrections all;
  const auto calls = calls_of(set, key);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i]) continue;
    if (set.values[i] <= 0)
      throw InputError(fmt::format("law {}: found {} {}, expected a factor above 0", key,
                                   in_quotes(set.names[i]), set.values[i]));
    all.calls_.push_back(*calls[i]);
    all.weights_.push_back(std::log(set.values[i]));
  }
  const std::size_t n = all.calls_.size();
  if (n == 0) return all;
  all.sigma_ = set.get(kSigma, 0);
  const auto [low, high] = std::ranges::minmax(all.calls_, {}, &MeasuredCall::bytes);
  all.smallest_ = low.bytes, all.largest_ = high.bytes;
  std::vector<double> matrix(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      matrix[i * n + j] = i == j ? 1 + kOwn : all.calls_[i].likeness(all.calls_[j]);
  check(lower_factor(matrix, n, all.lower_), "likenesses of calls are correlations");
  forward(all.lower_, all.weights_);
  backward(all.lower_, all.weights_);
  return all;
}

double Corrections::at(const GroupShape& shape, double size) const {
  if (calls_.empty()) return 1;
  MeasuredCall call = MeasuredCall::of(shape, size);
  call.bytes = std::clamp(call.bytes, smallest_, largest_);
  double log = 0;
  for (std::size_t i = 0; i < calls_.size(); ++i) log += weights_[i] * calls_[i].likeness(call);
  return std::exp(log);
}

double Corrections::sigma(const GroupShape& shape, double size) const {
  if (sigma_ <= 0) return 0;
  const MeasuredCall call = MeasuredCall::of(shape, size);
  std::vector<double> known(calls_.size());
  std::ranges::transform(calls_, known.begin(), [&](const MeasuredCall& one) { return one.likeness(call); });
  forward(lower_, known);
  const double share = std::inner_product(known.begin(), known.end(), known.begin(), 0.0);
  return sigma_ * std::sqrt(std::max(1 - share, 0.0));
}

}  // namespace moesim::models

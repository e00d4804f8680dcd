#include "calibration/fit/refine_collectives.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"
#include "models/costs/measured_calls.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;
using sim::CollectiveOp;

double piece_of(const CollectiveRow& row) {
  const bool piece = row.op == CollectiveOp::all_gather || row.op == CollectiveOp::reduce_scatter;
  return piece ? row.bytes / row.ranks() : row.bytes;
}

// Log times of one operation under trial laws; `cluster` has the laws that bound it.
class CollectiveTimes {
 public:
  CollectiveTimes(models::Cluster cluster, CollectiveOp op, bool network)
      : cluster_(std::move(cluster)), op_(op), key_(collective_key(op, network)) {
    std::vector<std::string> others;
    for (const auto& [key, set] : cluster_.profile.sets())
      if (!key.starts_with("collective/") || key.find('@') != std::string::npos) others.push_back(key);
    for (const std::string& key : others) cluster_.profile.erase(key);
  }

  std::vector<double> operator()(const ParameterSet& trial, const std::vector<CollectiveRow>& rows) {
    cluster_.profile.set(key_, trial);
    const models::CollectiveModel model(cluster_);
    std::vector<double> times;
    times.reserve(rows.size());
    for (const CollectiveRow& row : rows) {
      const auto shape = shape_of(row, cluster_.profile.device());
      times.push_back(std::log(model.seconds(op_, shape, piece_of(row))));
    }
    return times;
  }

 private:
  models::Cluster cluster_;
  CollectiveOp op_;
  std::string key_;
};

// Returns calls over a law's range: every second octave of sizes, rank counts in octaves.
std::vector<CollectiveRow> domain_of(const ParameterSet& set, const std::vector<CollectiveRow>& rows,
                                     bool network) {
  const models::DomainRange* bytes = set.range("bytes");
  const models::DomainRange* ranks = set.range(network ? "nodes" : "ranks");
  constexpr double kLargest = 4.0 * (1u << 30);
  const Device* device = device_of_gpu(rows.front().origin.gpu);
  const int nodes_of_domain =
      device ? std::max(1, device->limits.scaleup_domain / device->limits.gpus_per_node) : 1;
  std::set<int> counts;
  for (double n = 2; ranks && n <= ranks->high; n *= 2)
    if (n >= ranks->low) counts.insert(static_cast<int>(n));
  if (counts.empty())
    for (const CollectiveRow& row : rows)
      counts.insert(network ? std::max(1, row.nodes / nodes_of_domain) : row.ranks());
  std::vector<CollectiveRow> calls;
  const double largest = bytes ? std::min(bytes->high, kLargest) : kLargest;
  for (const int n : counts) {
    double size = bytes ? std::max(bytes->low, 512.0) : 512;
    while (size <= largest) {
      CollectiveRow call = rows.front();
      call.nodes = network ? n * nodes_of_domain : 1;
      call.gpus_per_node = network ? rows.front().gpus_per_node : n;
      call.bytes = size;
      calls.push_back(call);
      size *= 4;
    }
  }
  return calls;
}

// Returns the law with a correction of 1 at calls of the rows, those least alike first, besides the corrections
// that it has.
ParameterSet with_corrections(ParameterSet law, const std::string& key,
                              const std::vector<CollectiveRow>& rows, const models::Cluster& cluster) {
  constexpr std::size_t kMost = 24;
  constexpr double kAlike = 0.85;  // calls more alike than this share a correction
  // The residual of a network's law, with which rows of published clusters scatter around it, is the scale of the
  // corrections before any own row. A derived law has none and takes 0.14, the root mean square over the networks
  // but Polaris's, whose rows this number decides (up to 0.17 without another one). The least, 0.07, is that of the
  // law which fits a whole cluster best.
  constexpr double kUsualJumps = 0.14, kLeastJumps = 0.07;
  const models::Corrections before = models::Corrections::from(law, key);
  std::vector<models::MeasuredCall> taken;
  for (const auto& call : models::Corrections::calls_of(law, key))
    if (call) taken.push_back(*call);
  const std::size_t fitted = law.names.size();
  if (law.get(models::Corrections::kSigma, 0) <= 0) {
    law.names.emplace_back(models::Corrections::kSigma);
    law.values.push_back(law.derived ? kUsualJumps : std::max(law.residual, kLeastJumps));
  }
  while (taken.size() < kMost) {
    double least = kAlike;
    std::optional<models::MeasuredCall> next;
    double factor = 1;
    for (const CollectiveRow& row : rows) {
      const models::GroupShape shape = shape_of(row, cluster.profile.device());
      const auto call = models::MeasuredCall::of(shape, row.bytes);
      double alike = 0;
      for (const auto& other : taken) alike = std::max(alike, call.likeness(other));
      if (alike < least) least = alike, next = call, factor = before.at(shape, row.bytes);
    }
    if (!next) break;
    taken.push_back(*next);
    law.names.push_back(next->name());
    law.values.push_back(factor);
  }
  if (law.covariance.empty()) return law;
  // machine_covariance() holds the spread between machines at these calls.
  const std::size_t n = law.names.size();
  std::vector<double> covariance(n * n, 0);
  for (std::size_t i = 0; i < fitted; ++i)
    for (std::size_t j = 0; j < fitted; ++j) covariance[i * n + j] = law.covariance[i * fitted + j];
  law.covariance = std::move(covariance);
  return law;
}

}  // namespace

LawCase collective_case(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows, bool network,
                        const ParameterSet& before) {
  LawCase one;
  one.key = collective_key(rows.front().op, network);
  one.before = network ? with_corrections(before, one.key, rows, cluster) : before;
  one.origins = origins_of(rows);
  one.ranges = {{"bytes", values_of(rows, [](const CollectiveRow& r) { return r.bytes; })},
                {"ranks", values_of(rows, [](const CollectiveRow& r) { return r.ranks(); })}};
  if (network)
    one.ranges.emplace_back("nodes", values_of(rows, [](const CollectiveRow& r) { return r.nodes; }));
  const auto times = std::make_shared<CollectiveTimes>(cluster, rows.front().op, network);
  one.residuals = [times, rows](const ParameterSet& trial) {
    std::vector<double> r = (*times)(trial, rows);
    for (std::size_t i = 0; i < r.size(); ++i) r[i] -= std::log(rows[i].seconds);
    return r;
  };
  const std::vector<CollectiveRow> calls = domain_of(before, rows, network);
  if (!calls.empty())
    one.over_domain = [times, calls](const ParameterSet& trial) { return (*times)(trial, calls); };
  return one;
}

std::map<CollectiveOp, std::vector<CollectiveRow>> by_operation(const std::vector<CollectiveRow>& rows) {
  std::map<CollectiveOp, std::vector<CollectiveRow>> result;
  for (const CollectiveRow& row : rows) result[row.op].push_back(row);
  return result;
}

}  // namespace moesim::calibration

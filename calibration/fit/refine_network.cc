#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/refine_law.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"
#include "models/costs/ep_kernel.h"

namespace moesim::calibration {

namespace {

using models::ParameterSet;
using models::Profile;
using sim::CollectiveOp;

class NetworkRefining : public Refining {
 public:
  NetworkRefining(const models::NetworkProfile& base,
                  const std::function<const Profile&(const Device&)>& profile_of, RefineReport& report)
      : Refining(report), base_(base), network_(base), profile_of_(profile_of) {}

  models::NetworkProfile run(const Measurements& all) {
    std::map<std::pair<const Device*, CollectiveOp>, std::vector<CollectiveRow>> collectives;
    for (const CollectiveRow& row : all.collectives) {
      const Device* device = device_of_gpu(row.origin.gpu);
      if (!device)
        skip("rows of a GPU without a profile");
      else if (inside_domain(row, profile_of_(*device)))
        skip(kOfGpu);
      else if (integer_reduction(row))
        skip("integer reductions, which no forecast uses");
      else
        collectives[{device, row.op}].push_back(row);
    }
    for (const auto& [of, own] : collectives) {
      const std::string key = collective_key(of.second, true);
      const models::Cluster& cluster = cluster_of_gpu(*of.first);
      const ParameterSet* law = cluster.profile.find(key);
      if (!law) {
        skip(key + ": no network was measured with it", own.size());
        continue;
      }
      // Rows of a second GPU on the same network are added.
      LawCase one =
          collective_case(cluster, own, true, network_.laws.contains(key) ? network_.laws[key] : *law);
      one.added = !base_.laws.contains(key);
      const ParameterSet refined = take(one);
      // A law that stays has no corrections for rows that do not move it.
      if (report_.laws.back().believed) network_.laws[key] = refined;
    }
    dispatches(all.dispatches);
    if (!all.exposed_calls.empty()) skip(Measurements::kExposedAreFitted, all.exposed_calls.size());
    const std::size_t others =
        all.gemms.size() + all.grouped.size() + all.ffns.size() + all.kernels.size() + all.machine.size();
    if (others > 0) skip("rows of a GPU alone (calibrate refine PROFILE)", others);
    return std::move(network_);
  }

 private:
  // Returns nodes of this GPU on the network.
  const models::Cluster& cluster_of_gpu(const Device& device) {
    auto& cluster = clusters_[&device];
    if (cluster) return *cluster;
    const Profile& profile = profile_of_(device);
    cluster = std::make_unique<models::Cluster>();
    cluster->name = base_.name;
    cluster->profile = profile;
    cluster->nodes = 1 << 12;
    cluster->gpus_per_node = base_.gpus_per_node;
    cluster->nvlink.bandwidth = profile.device().scaleup_bandwidth;
    const bool rack = profile.device().scaleup_domain > profile.device().gpus_per_node;
    cluster->nvlink.domain =
        rack ? std::max(profile.device().scaleup_domain, base_.gpus_per_node) : base_.gpus_per_node;
    cluster->nic.ports_per_node = base_.ports_per_node;
    cluster->nic.bandwidth = base_.line_rate;
    models::use_network(*cluster, base_);
    return *cluster;
  }

  void dispatches(const std::vector<DispatchRow>& rows) {
    static const models::NetworkProfile all = models::NetworkProfile::load(std::string(models::kLineRate));
    for (const auto& [key, own] : dispatches_by_law(rows, true)) {
      LawCase one = dispatch_case(key, own);
      if (base_.laws.contains(key)) {
        one.before = base_.laws.at(key);
      } else if (all.laws.contains(key)) {
        one.before = all.laws.at(key);
        one.before.derived = true;
        one.before.rows = 0;
        one.added = true;
      } else {
        skip(key + ": no network was measured with this kernel", own.size());
        continue;
      }
      std::map<const Device*, Profile> profiles;
      std::map<const Device*, double> ports;
      for (const DispatchRow& row : own) {
        const Device* device = device_of_gpu(row.origin.gpu);
        if (profiles.contains(device)) continue;
        profiles.emplace(device, profile_of_(*device));
        ports[device] = cluster_of_gpu(*device).network_per_gpu();
      }
      one.residuals = [profiles, ports, name = key, own = own](const ParameterSet& trial) mutable {
        std::map<const Device*, models::EpKernelModel> models;
        for (auto& [device, profile] : profiles) {
          profile.set(name, models::with_links(trial, profile, name));
          models.emplace(device, models::EpKernelModel(profile, name, ports.at(device)));
        }
        return values_of(own, [&](const DispatchRow& row) {
          return std::log(models.at(device_of_gpu(row.origin.gpu)).seconds(*call_of(row)) / seconds_of(row));
        });
      };
      network_.laws[key] = take(one);
    }
  }

  const models::NetworkProfile& base_;
  models::NetworkProfile network_;
  const std::function<const Profile&(const Device&)>& profile_of_;
  std::map<const Device*, std::unique_ptr<models::Cluster>> clusters_;
};

}  // namespace

models::NetworkProfile refine(const models::NetworkProfile& base, const Measurements& rows,
                              const std::function<const Profile&(const Device&)>& profile_of,
                              RefineReport& report) {
  return NetworkRefining(base, profile_of, report).run(rows);
}

namespace {

using models::ParameterSet;

constexpr double kLeastWeight = 1e-3;  // of a candidate relative to the most likely one

BaseEvidence evidence_in(const std::string& name, const RefineReport& report) {
  BaseEvidence one{name, 0, report.rows};
  for (const RefinedLaw& law : report.laws) one.log_probability += law.evidence;
  return one;
}

// Returns whether a node's ports could have received what the row sends it in the row's time. Switches may sum.
bool carries(const models::NetworkProfile& network, const CollectiveRow& row) {
  constexpr double kRounded = 1.02;  // tables print three digits
  if (row.op == CollectiveOp::send_recv) return true;
  const double each = row.op == CollectiveOp::all_to_all ? row.gpus_per_node : 1;
  const double received = each * row.bytes * (row.nodes - 1) / row.nodes;
  return received <= kRounded * row.seconds * network.line_rate * network.ports_per_node;
}

void sort_best_first(std::vector<BaseEvidence>& all) {
  std::stable_sort(all.begin(), all.end(), [](const BaseEvidence& a, const BaseEvidence& b) {
    return a.rows != b.rows ? a.rows > b.rows : a.log_probability > b.log_probability;
  });
}

// Returns the weighted mean of the logarithms; its covariance adds the spread between the parts to their own.
ParameterSet mean_of(ParameterSet mean, const std::vector<std::pair<double, const ParameterSet*>>& parts) {
  double total = 0;
  for (const auto& [weight, set] : parts) total += weight;
  double residual = 0, systematic = 0, share = 0;
  std::vector<WeighedLaw> weighed;
  for (const auto& [weight, set] : parts) {
    const double w = weight / total;
    weighed.push_back({w, set->values, set->covariance});
    residual += w * set->residual, systematic += w * set->systematic, share += w * set->own_share;
  }
  std::vector<double> covariance = mean_of_logs(weighed, mean.values);
  mean.covariance = writable(std::move(covariance), mean.values.size());
  mean.residual = residual, mean.systematic = systematic, mean.own_share = share;
  return mean;
}

}  // namespace

std::vector<models::NetworkProfile> possible_networks(const Measurements& rows) {
  std::vector<models::NetworkProfile> all;
  for (const std::string& name : models::NetworkProfile::names())
    all.push_back(models::NetworkProfile::load(name));
  std::set<std::string> kinds;
  rows.each_list([&](const auto& list) {
    for (const auto& row : list) {
      const auto named = std::ranges::find(all, row.origin.network, &models::NetworkProfile::name);
      if (!row.origin.network.empty()) kinds.insert(named == all.end() ? row.origin.network : named->kind);
    }
  });
  const auto keep = [&](const auto& possible) {
    std::vector<models::NetworkProfile> left;
    std::ranges::copy_if(all, std::back_inserter(left), possible);
    if (!left.empty()) all = std::move(left);
  };
  keep([&](const auto& one) { return kinds.contains(one.kind); });
  keep([&](const auto& one) {
    return std::ranges::all_of(rows.collectives, [&](const CollectiveRow& row) { return carries(one, row); });
  });
  return all;
}

models::NetworkProfile refine_nearest(const std::vector<models::NetworkProfile>& candidates,
                                      const Measurements& rows,
                                      const std::function<const models::Profile&(const Device&)>& profile_of,
                                      std::vector<BaseEvidence>& evidence, RefineReport& report) {
  std::map<std::string, models::NetworkProfile> refined;
  std::map<std::string, RefineReport> reports;
  evidence.clear();
  for (const models::NetworkProfile& candidate : candidates) {
    RefineReport& of = reports[candidate.name];
    refined.emplace(candidate.name, refine(candidate, rows, profile_of, of));
    evidence.push_back(evidence_in(candidate.name, of));
  }
  sort_best_first(evidence);
  const BaseEvidence& best = evidence.front();
  report = reports.at(best.name);
  models::NetworkProfile mean = refined.at(best.name);
  for (const RefinedLaw& law : report.laws) {
    if (!mean.laws.contains(law.key)) continue;
    std::vector<std::pair<double, const ParameterSet*>> parts;
    for (const BaseEvidence& one : evidence) {
      const auto found = refined.at(one.name).laws.find(law.key);
      const double weight = one.rows == best.rows ? std::exp(one.log_probability - best.log_probability) : 0;
      if (weight > kLeastWeight && found != refined.at(one.name).laws.end() &&
          found->second.names == mean.laws.at(law.key).names)
        parts.emplace_back(weight, &found->second);
    }
    mean.laws[law.key] = mean_of(mean.laws.at(law.key), parts);
  }
  return mean;
}

std::vector<BaseEvidence> evidence_of(const std::vector<models::Profile>& candidates,
                                      const Measurements& rows) {
  std::vector<BaseEvidence> all;
  for (const models::Profile& candidate : candidates) {
    RefineReport report;
    refine(candidate, renamed(rows, candidate.gpu()), report);
    all.push_back(evidence_in(candidate.name(), report));
  }
  sort_best_first(all);
  return all;
}

Measurements renamed(Measurements rows, const std::string& gpu) {
  rows.each_list([&](auto& list) {
    for (auto& row : list) row.origin.gpu = gpu;
  });
  return rows;
}

}  // namespace moesim::calibration

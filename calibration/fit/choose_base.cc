#include "calibration/fit/choose_base.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "calibration/fit/refine_law.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;

constexpr double kLeastWeight = 1e-3;  // of a candidate relative to the most likely one

BaseEvidence evidence_in(const std::string& name, const RefineReport& report) {
  BaseEvidence one{name, 0, report.rows};
  for (const RefinedLaw& law : report.laws) one.log_probability += law.evidence;
  return one;
}

void sort_best_first(std::vector<BaseEvidence>& all) {
  std::stable_sort(all.begin(), all.end(), [](const BaseEvidence& a, const BaseEvidence& b) {
    return a.rows != b.rows ? a.rows > b.rows : a.log_probability > b.log_probability;
  });
}

// Returns the weighted mean of the logarithms; its covariance adds the spread between the parts to their own.
ParameterSet mean_of(ParameterSet mean, const std::vector<std::pair<double, const ParameterSet*>>& parts) {
  const std::size_t n = mean.values.size();
  const auto log_of = [](double value) { return std::log(std::max(value, 1e-300)); };
  double total = 0;
  for (const auto& [weight, set] : parts) total += weight;
  std::vector<double> logs(n, 0), covariance(n * n, 0);
  double residual = 0, systematic = 0, share = 0;
  for (const auto& [weight, set] : parts) {
    const double w = weight / total;
    for (std::size_t i = 0; i < n; ++i) logs[i] += w * log_of(set->values[i]);
    residual += w * set->residual, systematic += w * set->systematic, share += w * set->own_share;
  }
  for (const auto& [weight, set] : parts)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        const bool both = mean.values[i] > 0 && mean.values[j] > 0;
        covariance[i * n + j] +=
            weight / total *
            ((set->covariance.empty() ? 0 : set->covariance[i * n + j]) +
             (both ? (log_of(set->values[i]) - logs[i]) * (log_of(set->values[j]) - logs[j]) : 0));
      }
  for (std::size_t i = 0; i < n; ++i)
    if (mean.values[i] > 0) mean.values[i] = std::exp(logs[i]);
  mean.covariance = writable(std::move(covariance), n);
  mean.residual = residual, mean.systematic = systematic, mean.own_share = share;
  return mean;
}

}  // namespace

std::vector<BaseEvidence> evidence_of(
    const std::vector<models::NetworkProfile>& candidates, const Measurements& rows,
    const std::function<const models::Profile&(const Device&)>& profile_of) {
  std::vector<BaseEvidence> evidence;
  RefineReport report;
  refine_nearest(candidates, rows, profile_of, evidence, report);
  return evidence;
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

#include "calibration/training/step_constants.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <boost/math/tools/minima.hpp>

#include "base/input_error.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/publication.h"
#include "models/costs/recipe.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/workload/training_settings.h"

namespace moesim::calibration {

namespace {

constexpr std::string_view kBridge = "NVIDIA-NeMo/Megatron-Bridge", kAws = "awslabs/awsome-distributed-ai",
                           kMarin = "marin-community/marin", kCclBench = "cornell-sysphotonics/ccl-bench",
                           kRocm = "ROCm/rocm-blogs";
constexpr std::size_t kFewestRows = 3;
constexpr double kFarthest = 1.5;  // factor by which a fit may leave the range of shipped and neutral value
constexpr int kBits = 8;           // of the fitted logarithm

template <class Change>
void change_cluster(models::Scenario& s, const Change& change) {
  models::Cluster cluster = *s.cluster;
  change(cluster);
  s.cluster = std::make_shared<const models::Cluster>(std::move(cluster));
}

bool steps(const TrainingRow& row) { return row.scenario.is_step(); }

const std::string& gpu(const TrainingRow& row) { return row.scenario.cluster->profile.name(); }

StepConstant power(std::string name, std::vector<std::string_view> profiles) {
  const double shipped = models::Profile::load(std::string(profiles.front())).device().power_slowdown;
  return {std::move(name),
          {kBridge},
          shipped,
          1,
          [profiles](const TrainingRow& row) {
            return steps(row) && std::ranges::find(profiles, gpu(row)) != profiles.end();
          },
          [](models::Scenario& s, double value) {
            change_cluster(s, [&](models::Cluster& c) { c.profile.device().power_slowdown = value; });
          }};
}

StepConstant exchange(std::string_view kind, const std::string& network,
                      std::vector<std::string_view> publications) {
  const models::NetworkProfile profile = models::NetworkProfile::load(network);
  const auto law = profile.laws.find(models::kExchangeInStep);
  return {"exchanges in a step over " + std::string(kind),
          std::move(publications),
          law == profile.laws.end() ? 1 : law->second.get("factor", 1),
          1.3,  // for a network without rows
          [kind = std::string(kind)](const TrainingRow& row) {
            return steps(row) && row.scenario.cluster->network.starts_with(kind) &&
                   row.scenario.parallel.dispatch_ranks() > row.scenario.cluster->nvlink.domain;
          },
          [](models::Scenario& s, double value) {
            change_cluster(s, [&](models::Cluster& c) {
              const models::ParameterSet* law = c.profile.find(models::kExchangeInStep);
              if (!law) return;
              models::ParameterSet changed = *law;
              for (std::size_t i = 0; i < changed.names.size(); ++i)
                if (changed.names[i] == "factor") changed.values[i] = value;
              c.profile.set(models::kExchangeInStep, changed);
            });
          }};
}

std::vector<StepConstant> make() {
  std::vector<StepConstant> all;
  all.push_back(power("power of Blackwell", {"b200-sxm", "b300-sxm", "gb200"}));
  all.push_back(power("power of GB300", {"gb300"}));
  all.push_back(exchange("efa", "efa-p5", {kAws, "uccl-project/uccl"}));
  all.push_back(exchange("infiniband", "infiniband-ndr", {kBridge, "NVIDIA-NeMo/Automodel"}));
  all.push_back(exchange("slingshot", "slingshot-polaris", {kCclBench}));
  all.push_back({"launch on hosts of B300 [s]",
                 {kAws},
                 find_device("b300-sxm")->launch.kernel,
                 find_device("b200-sxm")->launch.kernel,
                 [](const TrainingRow& row) { return gpu(row) == "b300-sxm"; },
                 [](models::Scenario& s, double value) {
                   change_cluster(s, [&](models::Cluster& c) { c.profile.launch().kernel = value; });
                 }});
  all.push_back({"launches of hosts that nobody tuned",
                 {kAws, kMarin, kBridge},
                 1,
                 1 / models::kStockLaunches,
                 [](const TrainingRow& row) {
                   return row.scenario.training.framework == models::Framework::kMegatronStock;
                 },
                 [](models::Scenario& s, double value) {
                   change_cluster(s, [&](models::Cluster& c) { c.profile.launch().kernel *= value; });
                 }});
  all.push_back({"port rate of Perlmutter [B/s]",
                 {kCclBench},
                 kPerlmutterPort,
                 25e9,
                 [](const TrainingRow& row) { return row.gpu.find("Perlmutter") != std::string::npos; },
                 [](models::Scenario& s, double value) {
                   change_cluster(s, [&](models::Cluster& c) { c.nic.bandwidth = value; });
                 }});
  const double grouped = find_device("mi355x")->grouped_share;
  all.push_back({"grouped products of CDNA",
                 {kRocm},
                 grouped,
                 1,
                 [](const TrainingRow& row) { return gpu(row).starts_with("mi3"); },
                 [grouped](models::Scenario& s, double value) {
                   change_cluster(s, [&](models::Cluster& c) {
                     for (const auto& [key, law] : std::map(c.profile.sets())) {
                       if (!key.starts_with("grouped_gemm/")) continue;
                       models::ParameterSet changed = law;
                       for (std::size_t i = 0; i < changed.names.size(); ++i)
                         if (changed.names[i] == "peak_share") changed.values[i] *= value / grouped;
                       c.profile.set(key, changed);
                     }
                   });
                 }});
  // Two values only: hidden (0) or not (1).
  all.push_back({"MaxText's gathers behind nothing",
                 {kRocm},
                 1,
                 0,
                 [](const TrainingRow& row) { return row.framework.starts_with("MaxText"); },
                 [](models::Scenario& s, double value) {
                   s.training.overlap.parameters = s.training.overlap.gradients = value < 0.5;
                 }});
  return all;
}

double mean_error(const std::vector<TrainingRow>& rows, const StepConstant& constant, double value) {
  double sum = 0;
  int count = 0;
  for (TrainingRow row : rows) {
    constant.set(row.scenario, value);
    try {
      sum += std::abs(std::log(forecast_of(row, 0).seconds() / row.measured_s));
      ++count;
    } catch (const InputError&) {
      continue;  // the validation itself lists it as skipped
    }
  }
  return count > 0 ? sum / count : 0;
}

Refit refit(const StepConstant& constant, const std::vector<TrainingRow>& others) {
  Refit result{"", constant.name, constant.shipped, constant.neutral, 0};
  if (others.size() < kFewestRows || constant.neutral <= 0) return result;
  const double low = std::log(std::min(constant.shipped, constant.neutral) / kFarthest),
               high = std::log(std::max(constant.shipped, constant.neutral) * kFarthest);
  const auto best = boost::math::tools::brent_find_minima(
      [&](double x) { return mean_error(others, constant, std::exp(x)); }, low, high, kBits);
  result.value = std::exp(best.first);
  result.rows = others.size();
  return result;
}

}  // namespace

bool StepConstant::set_by(std::string_view publication) const {
  return std::ranges::find(publications, publication) != publications.end();
}

const std::vector<StepConstant>& step_constants() {
  static const std::vector<StepConstant> all = make();
  return all;
}

std::vector<Refit> leave_out_sources(std::vector<TrainingRow>& rows,
                                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::set<std::string> publications;
  for (const TrainingRow& row : rows) publications.insert(publication_of(row.source));
  for (TrainingRow& row : rows) row.left_out = publication_of(row.source);
  const std::vector<TrainingRow> given = rows;
  std::vector<Refit> refits;
  std::int64_t done = 0;
  for (const std::string& publication : publications) {
    if (progress) progress(done++, static_cast<std::int64_t>(publications.size()));
    for (const StepConstant& constant : step_constants()) {
      if (!constant.set_by(publication)) continue;
      std::vector<TrainingRow> others;
      bool touches_own = false;
      for (const TrainingRow& row : given) {
        if (!constant.touches(row) || !std::isfinite(row.measured_s)) continue;
        if (publication_of(row.source) == publication)
          touches_own = true;
        else
          others.push_back(row);
      }
      if (!touches_own) continue;
      Refit& one = refits.emplace_back(refit(constant, others));
      one.publication = publication;
      for (TrainingRow& row : rows)
        if (publication_of(row.source) == publication && constant.touches(row))
          constant.set(row.scenario, one.value);
    }
  }
  return refits;
}

}  // namespace moesim::calibration

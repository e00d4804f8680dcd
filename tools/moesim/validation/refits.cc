// Constants fitted to published training steps, each with its publications, so that a publication can be
// forecast without its own influence.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <boost/math/tools/minima.hpp>

#include "base/input_error.h"
#include "calibration/check/leave_out.h"
#include "calibration/rows/devices.h"
#include "models/costs/recipe.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/recipes/framework_recipe.h"
#include "models/workload/training_settings.h"
#include "tools/moesim/validation/rows.h"

namespace moesim::tools {

namespace {

using calibration::find_device;
using calibration::publication_of;
using models::Cluster;

constexpr std::string_view kBridge = "NVIDIA-NeMo/Megatron-Bridge", kAws = "awslabs/awsome-distributed-ai",
                           kMarin = "marin-community/marin", kCclBench = "cornell-sysphotonics/ccl-bench",
                           kRocm = "ROCm/rocm-blogs";
constexpr std::size_t kFewestRows = 3;
constexpr double kFarthest = 1.5;  // factor by which a fit may leave the range of shipped and neutral value
constexpr int kBits = 8;           // of the fitted logarithm

struct StepConstant {
  std::string name;                         // "power of Blackwell"
  std::set<std::string_view> publications;  // publications whose rows determine it
  double shipped = 1;
  double neutral = 1;  // value without any row
  std::function<bool(const PublishedRow&)> touches;
  std::function<void(models::Scenario&, double)> set;
};

template <class Change>
std::function<void(models::Scenario&, double)> in_cluster(Change change) {
  return [change](models::Scenario& s, double value) {
    Cluster cluster = *s.cluster;
    change(cluster, value);
    s.cluster = std::make_shared<const Cluster>(std::move(cluster));
  };
}

// Scales or sets a parameter of the laws whose keys begin with `prefix`.
template <class Change>
void change_laws(models::Profile& profile, std::string_view prefix, std::string_view name, Change change) {
  for (const auto& [key, law] : std::map(profile.sets())) {
    if (!key.starts_with(prefix)) continue;
    models::ParameterSet changed = law;
    for (std::size_t i = 0; i < changed.names.size(); ++i)
      if (changed.names[i] == name) changed.values[i] = change(changed.values[i]);
    profile.set(key, changed);
  }
}

const std::string& gpu(const PublishedRow& row) { return row.scenario.cluster->profile.name(); }

// Returns whether the row can set a constant of its GPU: the recipe of its trainer has no spread of its own.
bool tuned(const PublishedRow& row) {
  const std::string& recipe = row.scenario.recipe;
  return !recipe.empty() && models::FrameworkRecipe::find(recipe).spread == 0;
}

StepConstant power(std::string name, std::set<std::string_view> profiles) {
  const double shipped = models::Profile::load(std::string(*profiles.begin())).device().power_slowdown;
  return {std::move(name),
          {kBridge},
          shipped,
          1,
          [profiles = std::move(profiles)](const PublishedRow& row) {
            return row.scenario.is_step() && profiles.contains(gpu(row)) && tuned(row);
          },
          in_cluster([](Cluster& c, double value) { c.profile.device().power_slowdown = value; })};
}

StepConstant exchange(const std::string& kind, const std::string& network,
                      std::set<std::string_view> publications) {
  const models::NetworkProfile profile = models::NetworkProfile::load(network);
  const auto law = profile.laws.find(models::kExchangeInStep);
  return {"exchanges in a step over " + kind,
          std::move(publications),
          law == profile.laws.end() ? 1 : law->second.get("factor", 1),
          1.3,  // for a network without rows
          [kind](const PublishedRow& row) {
            const models::Scenario& s = row.scenario;
            return s.is_step() && s.cluster->network.starts_with(kind) &&
                   s.parallel.dispatch_ranks() > s.cluster->nvlink.domain;
          },
          in_cluster([](Cluster& c, double value) {
            change_laws(c.profile, models::kExchangeInStep, "factor", [&](double) { return value; });
          })};
}

std::vector<StepConstant> step_constants() {
  const double grouped = find_device("mi355x")->grouped_share;
  return {power("power of Blackwell", {"b200-sxm", "b300-sxm", "gb200"}),
          power("power of GB300", {"gb300"}),
          exchange("efa", "efa-p5", {kAws, "uccl-project/uccl"}),
          exchange("infiniband", "infiniband-ndr", {kBridge, "NVIDIA-NeMo/Automodel"}),
          exchange("slingshot", "slingshot-polaris", {kCclBench}),
          {"launch on hosts of B300 [s]",
           {kAws},
           find_device("b300-sxm")->launch.kernel,
           find_device("b200-sxm")->launch.kernel,
           [](const PublishedRow& row) { return gpu(row) == "b300-sxm"; },
           in_cluster([](Cluster& c, double value) { c.profile.launch().kernel = value; })},
          {"launches of hosts that nobody tuned",
           {kAws, kMarin, kBridge},
           1,
           1 / models::kStockLaunches,
           [](const PublishedRow& row) {
             return row.scenario.training.framework == models::Framework::kMegatronStock;
           },
           in_cluster([](Cluster& c, double value) { c.profile.launch().kernel *= value; })},
          {"port rate of Perlmutter [B/s]",
           {kCclBench},
           kPerlmutterPort,
           25e9,
           [](const PublishedRow& row) { return row.gpu.find("Perlmutter") != std::string::npos; },
           in_cluster([](Cluster& c, double value) { c.nic.bandwidth = value; })},
          {"grouped products of CDNA",
           {kRocm},
           grouped,
           1,
           [](const PublishedRow& row) { return gpu(row).starts_with("mi3"); },
           in_cluster([grouped](Cluster& c, double value) {
             change_laws(c.profile, "grouped_gemm/", "peak_share",
                         [&](double share) { return share * (value / grouped); });
           })},
          // Two values only: hidden (0) or not (1).
          {"MaxText's gathers behind nothing",
           {kRocm},
           1,
           0,
           [](const PublishedRow& row) { return row.framework.starts_with("MaxText"); },
           [](models::Scenario& s, double value) {
             s.training.overlap.parameters = s.training.overlap.gradients = value < 0.5;
           }}};
}

double mean_error(const std::vector<PublishedRow>& rows, const StepConstant& constant, double value) {
  double sum = 0;
  int count = 0;
  for (PublishedRow row : rows) {
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

Refit refit(const StepConstant& constant, const std::string& publication,
            const std::vector<PublishedRow>& others) {
  if (others.size() < kFewestRows || constant.neutral <= 0)
    return {publication, constant.name, constant.shipped, constant.neutral, 0};
  const auto [low, high] = std::minmax(constant.shipped, constant.neutral);
  const auto best = boost::math::tools::brent_find_minima(
      [&](double x) { return mean_error(others, constant, std::exp(x)); }, std::log(low / kFarthest),
      std::log(high * kFarthest), kBits);
  return {publication, constant.name, constant.shipped, std::exp(best.first), others.size()};
}

}  // namespace

std::vector<Refit> leave_out_sources(std::vector<PublishedRow>& rows, const Progress& progress) {
  for (PublishedRow& row : rows) row.left_out = publication_of(row.source);
  const std::vector<PublishedRow> given = rows;
  std::set<std::string> publications;
  for (const PublishedRow& row : rows) publications.insert(row.left_out);
  const std::vector<StepConstant> constants = step_constants();
  std::vector<Refit> refits;
  std::int64_t done = 0;
  for (const std::string& publication : publications) {
    if (progress) progress(done++, static_cast<std::int64_t>(publications.size()));
    for (const StepConstant& constant : constants) {
      if (!constant.publications.contains(publication)) continue;
      std::vector<PublishedRow> others;
      std::vector<std::size_t> own;
      for (std::size_t i = 0; i < given.size(); ++i)
        if (constant.touches(given[i])) {
          if (given[i].left_out == publication)
            own.push_back(i);
          else if (std::isfinite(given[i].measured_s))
            others.push_back(given[i]);
        }
      if (std::ranges::none_of(own, [&](std::size_t i) { return std::isfinite(given[i].measured_s); }))
        continue;
      refits.push_back(refit(constant, publication, others));
      for (const std::size_t i : own) constant.set(rows[i].scenario, refits.back().value);
    }
  }
  return refits;
}

}  // namespace moesim::tools

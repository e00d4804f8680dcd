#include "models/answers/energy.h"

#include <array>
#include <cmath>
#include <numeric>

#include "models/hardware/cluster.h"
#include "models/hardware/gpu_family.h"
#include "models/hardware/rental_list.h"

namespace moesim::models {

namespace {

using sim::Category;

// Shares of a GPU's power limit, from logs of MLPerf Training 4.0, 4.1 and 5.0 on H100 and B200 nodes, of OLMo 2 and
// of single GPUs; memory-bound kernels and host stalls are the least known.
struct Draw {
  double low, value, high;
};
constexpr Draw kComputes{0.91, 0.97, 1.0}, kComputesOnBlackwell{0.88, 0.92, 0.97}, kMoves{0.40, 0.60, 0.80},
    kCommunicates{0.23, 0.40, 0.46}, kWaits{0.15, 0.20, 0.25}, kStalls{0.10, 0.15, 0.17};
// Watts of the rest of a node for each of its GPUs: processors, memory, switches, NICs; with fans at the upper end.
// Measured on nodes of 8 H100 and 8 B200; of others a share of the GPU's limit as there.
constexpr Draw kRest{1500.0 / 8 / 700, 1600.0 / 8 / 700, 2900.0 / 8 / 700};
constexpr Draw kSupplies{0.98, 0.96, 0.94};  // efficiency
constexpr double kPeak = 1.03;               // of seconds over the mean of computing

const Draw& draw_of(Category category, bool blackwell) {
  switch (category) {
    case Category::attention:
    case Category::router:
    case Category::expert:
    case Category::loss:
    case Category::other:  // of layers without experts: their FFN for the most part
      return blackwell ? kComputesOnBlackwell : kComputes;
    case Category::dispatch:
    case Category::combine:
    case Category::grad_sync:
    case Category::p2p:
      return kCommunicates;
    case Category::straggler_wait:
    case Category::bubble:
      return kWaits;
    case Category::host_sync:
      return kStalls;
    case Category::permute:
    case Category::unpermute:
    case Category::optimizer:
    case Category::embedding:
      break;
  }
  return kMoves;
}

}  // namespace

std::optional<Energy> energy_of(const Scenario& s, const Answer& answer) {
  const auto& limits = RentalList::shipped().watts;
  const std::string& profile = s.cluster->profile.name();
  const auto limit = limits.find(profile);
  if (!s.is_step() || !answer.ok() || limit == limits.end()) return std::nullopt;
  const double watts = limit->second.value;
  const GpuFamily* family = gpu_family(profile);
  const bool blackwell = family && family->blackwell();
  const double whole = std::accumulate(answer.breakdown_us.begin(), answer.breakdown_us.end(), 0.0);
  if (whole <= 0 || answer.tokens <= 0) return std::nullopt;
  const double gpus = s.cluster->gpus_per_node;
  // Returns the watts of a node, with every constant at the low end, the middle or the high end of its range.
  const auto node = [&](double Draw::*end) {
    double share = 0;
    for (std::size_t c = 0; c < sim::kCategories; ++c)
      share += answer.breakdown_us[c] / whole * (draw_of(static_cast<Category>(c), blackwell).*end);
    return gpus * watts * (share + kRest.*end) / (kSupplies.*end);
  };
  Energy e;
  e.node_watts = {node(&Draw::value), node(&Draw::low), node(&Draw::high)};
  const double nodes = static_cast<double>(answer.gpus) / gpus;
  const double computes = (blackwell ? kComputesOnBlackwell : kComputes).value;
  e.peak_watts =
      kPeak * static_cast<double>(answer.gpus) * watts * (computes + kRest.value) / kSupplies.value;
  const auto joules = [&](double of_node, double us) { return of_node * nodes * us * 1e-6; };
  const Estimate& us = answer.time_us;
  e.kwh_per_step = joules(e.node_watts.value, us.value) / 3.6e6;
  // Time and power are independent.
  const auto end = [&](double power, double time) {
    return std::hypot(std::log(power / e.node_watts.value), std::log(time / us.value));
  };
  e.joules_per_token.value = joules(e.node_watts.value, us.value) / answer.tokens;
  e.joules_per_token.low = e.joules_per_token.value * std::exp(-end(e.node_watts.low, us.low));
  e.joules_per_token.high = e.joules_per_token.value * std::exp(end(e.node_watts.high, us.high));
  return e;
}

}  // namespace moesim::models

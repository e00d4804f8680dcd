#include "models/step/faults.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "models/costs/group_shapes.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

bool in_ring(CommKind kind) { return kind != CommKind::kAllToAll && kind != CommKind::kAllToAllV; }

}  // namespace

RankFaults RankFaults::of(const Faults& faults, const Cluster& cluster, std::span<const std::int32_t> gpus) {
  RankFaults r;
  r.compute.assign(gpus.size(), 1), r.nvlink = r.network = r.compute;
  r.jitter = faults.jitter;
  r.seed = faults.seed;
  const auto slow = [&](std::vector<double>& factors, std::int64_t gpu, double factor) {
    for (std::size_t i = 0; i < gpus.size(); ++i)
      if (gpus[i] == gpu) factors[i] = std::max(factors[i], factor);
  };
  for (const Faults::SlowGpu& g : faults.slow_gpus) slow(r.compute, g.gpu, g.factor);
  for (const Faults::Port& p : faults.nvlinks) slow(r.nvlink, p.gpu, 1 / p.share);
  for (const Faults::Port& p : faults.nics) {
    if (p.share > 0) {
      slow(r.network, p.gpu, 1 / p.share);
      continue;
    }
    // Two GPUs on one port.
    const std::int64_t node = p.gpu - cluster.local_gpu(p.gpu);
    slow(r.network, p.gpu, 2);
    slow(r.network, node + (cluster.local_gpu(p.gpu) + 1) % cluster.gpus_per_node, 2);
  }
  return r;
}

bool RankFaults::any() const {
  const auto healthy = [](const std::vector<double>& factors) {
    return std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
  };
  return jitter > 0 || !healthy(compute) || !healthy(nvlink) || !healthy(network);
}

double RankFaults::computing(std::size_t op, std::size_t rank) const {
  if (jitter == 0) return compute[rank];
  Random random = Random::for_item(seed, op * compute.size() + rank);
  // Log-normal with mean 1: never negative, and not faster on average.
  return compute[rank] * std::exp(jitter * random.normal() - jitter * jitter / 2);
}

void apply_faults(const RankFaults& faults, const Program& program, const std::vector<Op>& pass,
                  const GroupShapes& shapes, std::size_t salt, sim::LockstepProgram& priced) {
  const auto R = static_cast<std::size_t>(program.ranks());
  sim::LockstepProgram result;
  result.groups = priced.groups;
  result.ops = priced.ops;
  result.ps.reserve(pass.size() * R);
  std::vector<double> factor(R);
  for (std::size_t i = 0; i < pass.size(); ++i) {
    const Op& op = pass[i];
    std::fill(factor.begin(), factor.end(), 1);
    if (op.kind == OpKind::kKernel || op.kind == OpKind::kGemm || op.kind == OpKind::kAttention ||
        op.kind == OpKind::kScan) {
      for (std::size_t r = 0; r < R; ++r) factor[r] = faults.computing(salt + i, r);
    } else if (op.kind == OpKind::kCollective) {
      const bool across = op.one_kernel ? op.across_nodes : shapes.across_domains(op.group);
      std::vector<double> worst(static_cast<std::size_t>(program.group_count(op.group)), 1);
      for (std::size_t r = 0; r < R; ++r) {
        factor[r] = faults.link(across, r);
        double& w = worst[static_cast<std::size_t>(program.group_index(op.group, static_cast<int>(r)))];
        w = std::max(w, factor[r]);
      }
      if (in_ring(op.comm) && !op.one_kernel)
        for (std::size_t r = 0; r < R; ++r)
          factor[r] = worst[static_cast<std::size_t>(program.group_index(op.group, static_cast<int>(r)))];
    }
    result.ops[i].first = static_cast<std::uint32_t>(result.ps.size());
    result.ops[i].step = 1;
    for (std::size_t r = 0; r < R; ++r) {
      if (!priced.runs(priced.ops[i], r)) {
        result.ps.push_back(-1);
        continue;
      }
      const std::int64_t ps = priced.at(priced.ops[i], r);
      result.ps.push_back(factor[r] == 1 ? ps : std::llround(static_cast<double>(ps) * factor[r]));
    }
  }
  priced = std::move(result);
}

Goodput goodput(const Faults& faults, std::int64_t gpus, double step_s) {
  Goodput g;
  if (faults.gpu_mtbf_hours <= 0) return g;
  const double mean = faults.gpu_mtbf_hours * 3600 / static_cast<double>(std::max<std::int64_t>(1, gpus));
  const double dump = faults.checkpoint_s > 0 ? faults.checkpoint_s : Faults::kCheckpointSeconds;
  const double restart = faults.restart_s > 0 ? faults.restart_s : Faults::kRestartSeconds;
  g.failures_per_day = 86400 / mean;
  g.interval_s = faults.interval_s;
  if (g.interval_s == 0) {
    const double x = std::sqrt(dump / (2 * mean));
    g.interval_s = dump < 2 * mean ? std::sqrt(2 * dump * mean) * (1 + x / 3 + x * x / 9) - dump : mean;
  }
  g.interval_s = std::max(g.interval_s, step_s);
  const double work = mean * std::exp(restart / mean) * std::expm1((g.interval_s + dump) / mean);
  g.share = std::isfinite(work) && work > 0 ? g.interval_s / work : 0;
  return g;
}

}  // namespace moesim::models

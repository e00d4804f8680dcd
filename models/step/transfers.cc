#include "models/step/transfers.h"

#include <algorithm>

#include "models/step/parameter_collectives.h"
#include "models/step/step_memory.h"

namespace moesim::models {

namespace {

// Bytes that Adam moves per element of its shard: fp32 gradient, master weight and two moments in, the last
// three out, the bf16 weight out.
double optimizer_traffic(const OptimizerTypes& types) {
  return 4 + 2 * static_cast<double>(types.bytes()) + kBf16Bytes;
}

// Seconds that the weights of a chunk take to be gathered and its gradients to be reduced, once.
struct Seconds {
  double gather = 0, reduce = 0;
};

class Transfers {
 public:
  Transfers(const Scenario& s, const Placement& placement, const ProgramPricer& pricer,
            const LinkFaults& faults, DomainReport* report)
      : s_(s),
        plan_(s.training),
        placement_(placement),
        model_(pricer.collectives()),
        report_(report),
        once_(1 / static_cast<double>(s.parallel.microbatches)),
        dense_(placement.dense_replicas()),
        experts_(placement.expert_replicas()) {
    factor_ = across() ? faults.network : faults.nvlink;
  }

  bool across() const { return dense_.across_domains() || experts_.across_domains(); }
  // In a pipeline, parameters stay gathered for all microbatches and gradients leave after the last one
  // (torchtitan).
  bool sharded_passes() const {
    return s_.parallel.pp == 1 &&
           (plan_.sharding == ShardingScheme::kFsdp || plan_.sharding == ShardingScheme::kHsdp);
  }

  Seconds of(const StageParameters& n) const {
    Seconds all;
    add(dense_, n.dense, all);
    add(experts_, n.experts, all);
    // Rings over the data-parallel ranks are as slow as their slowest link.
    all.gather *= factor_;
    all.reduce *= factor_;
    return all;
  }

  // Of the slowest class of groups.
  double transfer(sim::CollectiveOp op, const Placement::Shapes& shapes, double bytes, double times) const {
    double slowest = -1;
    const GroupShape* shape = &shapes.front();
    for (const GroupShape& each : shapes)
      if (const double seconds = model_.seconds(op, each, bytes); seconds > slowest)
        slowest = seconds, shape = &each;
    if (report_) report_->add(slowest * times, model_.outside(op, *shape, bytes));
    return slowest;
  }

 private:
  void add(const Placement::Replicas& replicas, double parameters, Seconds& all) const {
    if (replicas.ranks == 1 || parameters == 0) return;
    const double bytes = parameters * static_cast<double>(plan_.gradient_bytes);
    if (plan_.sharding == ShardingScheme::kDdp) {
      all.reduce += transfer(sim::CollectiveOp::all_reduce, replicas.all, bytes, once_);
      return;
    }
    Placement::Shapes shard = replicas.all;
    std::int64_t block = replicas.ranks;
    if (plan_.sharding == ShardingScheme::kHsdp) {
      const std::int64_t dense = std::min<std::int64_t>(
          dense_.ranks, plan_.shard_group > 0 ? plan_.shard_group : dense_.per_domain());
      const std::int64_t size =
          &replicas == &dense_ ? dense : expert_shard_group(dense_.ranks, dense, replicas.ranks);
      if (size < block) block = size, shard = placement_.block_of(replicas, size);
    }
    const auto ranks = static_cast<double>(block);
    const double times = sharded_passes() ? 1 : once_;
    all.gather += transfer(sim::CollectiveOp::all_gather, shard, parameters * kBf16Bytes / ranks, times);
    all.reduce += transfer(sim::CollectiveOp::reduce_scatter, shard, bytes / ranks, times);
    if (block < replicas.ranks)
      all.reduce += transfer(sim::CollectiveOp::all_reduce, placement_.across_blocks(replicas, block),
                             bytes / ranks, once_) /
                    (sharded_passes() ? static_cast<double>(s_.parallel.microbatches) : 1);  // once a step
  }

  const Scenario& s_;
  const TrainingPlan& plan_;
  const Placement& placement_;
  const CollectiveModel& model_;
  DomainReport* report_;
  double once_, factor_ = 1;
  const Placement::Replicas &dense_, &experts_;
};

}  // namespace

PipelineTransfers step_transfers(const Scenario& s, const std::vector<Chunk>& chunks,
                                 const Placement& placement, const ProgramPricer& pricer,
                                 const LinkFaults& faults,
                                 const std::function<std::int64_t(std::size_t, bool)>& network_of,
                                 DomainReport* report) {
  const Parallel& p = s.parallel;
  const TrainingPlan& plan = s.training;
  const Transfers transfers(s, placement, pricer, faults, report);
  const bool sharded = transfers.sharded_passes(), across = transfers.across();
  PipelineTransfers t;
  t.gradients_overlap = plan.overlap.gradients;
  t.parameters_overlap = plan.overlap.parameters;
  t.optimizer.assign(static_cast<std::size_t>(p.pp), 0);
  const double memory = pricer.memory_seconds_per_byte();
  // Inference has neither gradients nor an optimizer, and its weights stay where they are.
  for (std::size_t c = 0; c < chunks.size() && s.train; ++c) {
    const StageParameters n = chunk_parameters(s.model, p, chunks[c]);
    const Seconds seconds = transfers.of(n);
    if (sharded) {
      // Gathered for every pass while the layer before computes; gradients leave while the next one does.
      // What does not hide is exposed: transfers over the network do not hide behind the pass's own.
      t.sharded.push_back({to_ps(seconds.gather),
                           to_ps((plan.reshard_after_forward ? seconds.gather : 0) + seconds.reduce),
                           across ? network_of(c, true) : 0, across ? network_of(c, false) : 0});
    } else {
      t.parameters.push_back(to_ps(seconds.gather));
      t.gradients.push_back(to_ps(seconds.reduce));
      t.pieces.push_back(std::max(1, static_cast<int>(chunks[c].layers.size())));
      t.forward_link.push_back(across ? network_of(c, true) : 0);
      t.backward_link.push_back(across ? network_of(c, false) : 0);
    }
    const double shard = plan.sharding == ShardingScheme::kDdp
                             ? n.dense + n.experts
                             : n.dense / static_cast<double>(p.dp * p.cp) +
                                   n.experts / static_cast<double>(std::max<std::int64_t>(1, p.edp()));
    // Adam, the norm of the gradients before it, and the zeroing of the gradient buffer.
    const std::int64_t update =
        to_ps((shard * (optimizer_traffic(plan.optimizer) + 4) + (n.dense + n.experts) * (sharded ? 0 : 4)) *
              memory);
    const std::size_t stage = c % static_cast<std::size_t>(p.pp);
    t.optimizer[stage] += update;
    if (plan.pipeline == PipelineKind::kDualPipe)
      t.optimizer[static_cast<std::size_t>(p.pp) - 1 - stage] += update;
  }
  if (p.pp > 1) {
    const double bytes = static_cast<double>(p.tokens_per_rank() * s.model.hidden) * kBf16Bytes;
    const auto send = [&](std::int64_t from, std::int64_t to) {
      const Placement::Shapes& pairs = placement.pipeline_pairs(from, to);
      const bool network = std::any_of(pairs.begin(), pairs.end(),
                                       [](const GroupShape& pair) { return pair.across_domains(); });
      // Of a microbatch: activations, gradients.
      return transfers.transfer(sim::CollectiveOp::send_recv, pairs, bytes, 2) *
             (network ? faults.network : faults.nvlink);
    };
    for (std::size_t c = 0; c + 1 < chunks.size(); ++c) {
      const std::int64_t from = static_cast<std::int64_t>(c) % p.pp, to = (from + 1) % p.pp;
      double seconds = send(from, to);
      // The other direction's microbatches go between the mirrored stages.
      if (plan.pipeline == PipelineKind::kDualPipe)
        seconds = std::max(seconds, send(p.pp - 1 - from, p.pp - 1 - to));
      t.send.push_back(to_ps(seconds));
    }
  }
  return t;
}

}  // namespace moesim::models

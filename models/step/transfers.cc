#include "models/step/transfers.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "models/costs/gemm.h"
#include "models/hardware/cluster.h"
#include "models/step/contention.h"
#include "models/step/optimizers.h"
#include "models/step/step_memory.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

// Kernels of an unfused Adam over one list of tensors (torch.optim's foreach path: decay, two moments, their
// corrections, root, division, update).
constexpr std::int64_t kKernelsOfAdam = 12;

// Returns the bytes that Adam moves per element of its shard: fp32 gradient, master weight and two moments
// in, the last three out, the bf16 weight out.
double optimizer_traffic(const OptimizerTypes& types) {
  return 4 + 2 * static_cast<double>(types.bytes()) + kBf16Bytes;
}
// Muon has one moment; its fp32 update is read for its norm, read and written divided by that, and read again
// after the Newton-Schulz steps. Kernels of a matrix beside their three products a step: moment, norm,
// division, scale, decay and update, conversion to bf16.
constexpr double kMuonPasses = 16;
constexpr double kKernelsOfMatrix = 7, kProductsOfStep = 3;
double muon_traffic(const OptimizerTypes& types) {
  return optimizer_traffic(types) - 2 * static_cast<double>(bytes_of(types.second)) + kMuonPasses;
}

struct MuonWork {
  double bytes = 0, matrices = 0;
  double products = 0, exchange = 0;  // seconds
};

// Seconds to gather a chunk's weights and to reduce its gradients, once.
struct Seconds {
  double gather = 0, reduce = 0;
};

// Reports that only the data sheet is known.
OutsideDomain host_link_unmeasured(const Profile& profile) {
  return {profile.name() + ": link to the host and the host's memory",
          "were not measured, priced at their data sheets' rates",
          {},
          0};
}

class Transfers {
 public:
  explicit Transfers(const TransferInputs& in)
      : s_(in.scenario),
        plan_(s_.training),
        placement_(in.placement),
        model_(in.pricer.collectives()),
        contention_(in.contention),
        report_(in.report),
        once_(1 / static_cast<double>(s_.parallel.microbatches)),
        dense_(placement_.dense_replicas()),
        experts_(placement_.expert_replicas()) {
    factor_ = across() ? in.faults.network : in.faults.nvlink;
  }

  bool across() const { return dense_.across_domains() || experts_.across_domains(); }
  bool sharded_passes(ShardingScheme scheme) const {
    return sharded_in_every_pass(s_.parallel) && (shards_weights(scheme) || scheme == ShardingScheme::kZero2);
  }

  // Whether a scheme moves nothing once a step. HSDP sums gradients of replicas then, ZeRO-2 gathers weights.
  bool only_in_passes(ShardingScheme scheme) const {
    return scheme == ShardingScheme::kFsdp && sharded_passes(scheme);
  }

  // Whether a chunk's backward passes gather its weights again.
  bool again() const { return gathers_again(traffic()); }

  // Describes the collectives of a chunk's weights `n`, of which `trained` have gradients. Its layers are the
  // units of FSDP. `buckets`: false where DDP's buckets count as one call.
  std::vector<ParameterCollective> collectives(const StageParameters& n, const StageParameters& trained,
                                               const Chunk& chunk, bool buckets) const {
    ParameterTraffic t = traffic();
    const double router = plan_.router_sharding ? n.router : 0;
    t.dense = HeldParameters::all(n.dense - router, layer_units(chunk));
    t.experts = HeldParameters::all(n.experts, expert_units(chunk));
    t.router = HeldParameters::all(router, t.experts.units);
    const bool within = experts_within_layers();
    if (within) {
      t.dense = HeldParameters::all(n.dense - router + n.experts, t.dense.units);
      t.experts = {};
    }
    if (plan_.lora.rank > 0) {
      t.dense.trained = trained.dense + (within ? trained.experts : 0);
      t.experts.trained = within ? 0 : trained.experts;
      t.router.trained = 0;
    }
    t.buckets = buckets;
    return parameter_collectives(plan_.sharding, t);
  }

  std::vector<TimedCollective> timed(const std::vector<ParameterCollective>& collectives) const {
    std::vector<TimedCollective> all;
    all.reserve(collectives.size());
    for (const ParameterCollective& one : collectives) all.push_back({one, seconds(one)});
    return all;
  }

  // Returns the times of collectives in every pass or once a step.
  Seconds of(const std::vector<TimedCollective>& all, bool in_passes) const {
    Seconds sum;
    for (const TimedCollective& one : all)
      if (one.what.every_pass == in_passes)
        (one.what.kind == CommKind::kAllGather ? sum.gather : sum.reduce) += one.seconds;
    // Rings over the data-parallel ranks are as slow as their slowest link.
    sum.gather *= factor_;
    sum.reduce *= factor_;
    return sum;
  }

  // Returns seconds of the gathers of experts in a forward pass, where they are units gathered at the experts
  // themselves; 0 where they are gathered with their layer.
  double gather_at_experts(const std::vector<TimedCollective>& all) const {
    if (plan_.fsdp_unit != FsdpUnit::kExperts) return 0;
    double sum = 0;
    for (const auto& [what, seconds] : all)
      if (what.every_pass && what.experts && what.kind == CommKind::kAllGather) sum += seconds;
    return sum * factor_;
  }

  // Describes the gathers of Distributed Shampoo's updates.
  std::vector<ParameterCollective> shampoo_gathers(const StageParameters& n) const {
    std::vector<ParameterCollective> all;
    const auto gather = [&](const Placement::Replicas& replicas, double parameters, ShardingScheme scheme) {
      const ParameterCollective one =
          shampoo_gather(scheme, &replicas == &experts_, static_cast<std::int64_t>(parameters),
                         static_cast<int>(kBf16Bytes), replicas.ranks, shard_of(replicas, scheme));
      if (one.moves()) all.push_back(one);
    };
    gather(dense_, n.dense, plan_.sharding);
    gather(experts_, n.experts, plan_.expert_sharding.value_or(plan_.sharding));
    return all;
  }

  // Distributed Shampoo: the gather of updates, and the preconditioners of this rank's blocks.
  double shampoo(const StageParameters& n) const {
    const auto side = std::min<std::int64_t>(Shampoo::kBlock, s_.model.hidden);
    const GemmModel gemms(s_.cluster->profile);
    const double fp32 = s_.cluster->profile.device().peak_flops[static_cast<std::size_t>(DType::kFp32)];
    const double own =
        n.dense / static_cast<double>(dense_.ranks) + n.experts / static_cast<double>(experts_.ranks);
    double seconds = shampoo_seconds(own, side, shampoo_work(plan_.preconditioning), gemms, fp32);
    for (const TimedCollective& gather : timed(shampoo_gathers(n))) seconds += factor_ * gather.seconds;
    return seconds;
  }

  // Muon: what the rank moves and computes that has most of the matrices. Under DDP every rank has all of
  // them; else the ranks that shard a weight deal them out. Those of FSDP and HSDP bring rows together to
  // whole matrices with an all-to-all and take updates back with another one, in bf16 (microsoft/dion's
  // Muon).
  MuonWork muon(const std::vector<MuonMatrix>& matrices) const {
    const GemmModel gemms(s_.cluster->profile);
    MuonWork work;
    for (const Placement::Replicas* replicas : {&dense_, &experts_}) {
      std::vector<MuonMatrix> own;
      std::ranges::copy_if(matrices, std::back_inserter(own),
                           [&](const MuonMatrix& m) { return m.experts == (replicas == &experts_); });
      const std::int64_t ranks =
          plan_.sharding == ShardingScheme::kDdp ? 1 : shard_of(*replicas, plan_.sharding);
      const StageParameters all = elements_of(own);
      const MuonShare share = largest_muon_share(std::move(own), ranks, [&](const MuonMatrix& m) {
        return newton_schulz_seconds(m.rows, m.columns, plan_.newton_schulz_steps, gemms);
      });
      work.bytes += share.elements * muon_traffic(plan_.optimizer);
      work.products += share.seconds;
      work.matrices += share.matrices;
      if (!shards_weights(plan_.sharding) || ranks == 1 || share.elements == 0) continue;
      const double rows = (all.dense + all.experts) / static_cast<double>(ranks) * kBf16Bytes;
      work.exchange += 2 * factor_ *
                       among(sim::CollectiveOp::all_to_all, Members{replicas, ranks, false}, rows, 2 * once_);
    }
    return work;
  }

  // Adam on the host: gradients of the rank's shard go there, bf16 weights come back, and the host's memory
  // moves what Adam reads and writes, in sequence (Megatron without --overlap-cpu-optimizer-d2h-h2d).
  double on_the_host(double shard) const {
    const DeviceLimits& device = s_.cluster->profile.device();
    const double link = shard * (plan_.gradient_bytes + kBf16Bytes) / device.host_link;
    const double seconds = link + shard * optimizer_traffic(plan_.optimizer) / device.host_memory;
    if (report_) report_->add(seconds * once_, host_link_unmeasured(s_.cluster->profile));
    return seconds;
  }

  using Members = Placement::Members;

  // Returns the time of the slowest class of such groups, all of which send at once.
  double among(sim::CollectiveOp op, const Members& members, double bytes, double times) const {
    return transfer(op, placement_.shapes_of(members), bytes, times) *
           (contention_ ? contention_->of_replicas(op, members, bytes) : 1);
  }

  // Returns the time of the slowest class of groups.
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
  double seconds(const ParameterCollective& c) const {
    const Placement::Replicas& replicas = c.experts ? experts_ : dense_;
    // Shard groups are consecutive replicas; replicate groups take one of each.
    const Members members = c.replicas && c.group < replicas.ranks
                                ? Members{&replicas, replicas.ranks / c.group, true}
                                : Members{&replicas, c.group, false};
    const auto calls = static_cast<double>(c.calls);
    return calls * among(simulated(c.kind), members, c.message(), (c.every_pass ? 1 : once_) * calls);
  }

  // Units of a chunk's layers; the embedding and the head are separate units.
  std::int64_t layer_units(const Chunk& chunk) const {
    if (plan_.fsdp_unit == FsdpUnit::kRoot) return 1;
    const std::int64_t layers = std::ssize(chunk.layers);
    return std::max<std::int64_t>(1, (plan_.fsdp_unit == FsdpUnit::kModule ? 2 * layers : layers) +
                                         (chunk.embedding ? 1 : 0) + (chunk.head ? 1 : 0));
  }
  std::int64_t expert_units(const Chunk& chunk) const {
    if (plan_.fsdp_unit == FsdpUnit::kRoot) return 1;
    return std::max<std::int64_t>(1, std::ranges::count(chunk.layers, LayerKind::Ffn::kMoe, &LayerKind::ffn));
  }
  // A unit takes one gather for each mesh of its weights. Experts on the mesh of the rest are gathered with
  // it.
  bool experts_within_layers() const {
    return s_.parallel.ep * s_.parallel.etp == 1 && s_.parallel.tp == 1 && dense_.ranks == experts_.ranks &&
           !plan_.expert_sharding && shards_weights(plan_.sharding) && plan_.fsdp_unit != FsdpUnit::kExperts;
  }
  // Returns the ranks that share a weight under a scheme; for experts as many as the sparse mesh leaves.
  std::int64_t shard_of(const Placement::Replicas& replicas, ShardingScheme scheme) const {
    if (scheme != ShardingScheme::kHsdp) return replicas.ranks;
    const std::int64_t dense =
        std::min<std::int64_t>(dense_.ranks, plan_.shard_group > 0 ? plan_.shard_group : dense_.per_domain());
    return &replicas == &dense_ ? dense : expert_shard_group(dense_.ranks, dense, replicas.ranks);
  }
  ParameterTraffic traffic() const {
    ParameterTraffic t;
    t.router_scheme = plan_.router_sharding;
    t.expert_scheme = plan_.expert_sharding;
    t.dense_group = dense_.ranks;
    t.expert_group = experts_.ranks;
    t.shard_group = shard_of(dense_, ShardingScheme::kHsdp);
    t.gradient_bytes = static_cast<int>(plan_.gradient_bytes);
    t.weight_bytes = static_cast<int>(kBf16Bytes);
    t.microbatches = s_.parallel.microbatches;
    t.every_pass = sharded_in_every_pass(s_.parallel);
    t.reshard_after_forward = plan_.reshard_after_forward;
    t.root_unit = plan_.fsdp_unit == FsdpUnit::kRoot;
    return t;
  }

  const Scenario& s_;
  const TrainingSettings& plan_;
  const Placement& placement_;
  const CollectiveModel& model_;
  const Contention* contention_;
  DomainReport* report_;
  double once_, factor_ = 1;
  const Placement::Replicas &dense_, &experts_;
};

// Returns a chunk's weights, and those of them that have gradients.
std::pair<StageParameters, StageParameters> parameters_of(const Architecture& held, const Scenario& s,
                                                          const Chunk& chunk) {
  const StageParameters all = chunk_parameters(held, s.parallel, chunk);
  const Lora& lora = s.training.lora;
  return {all, lora.rank > 0 ? trained_parameters(held, s.parallel, lora, chunk) : all};
}

// Parameters, gradients and the optimizer of every chunk.
class ParameterTransfers {
 public:
  explicit ParameterTransfers(const TransferInputs& in)
      : in_(in),
        p_(in.scenario.parallel),
        plan_(in.scenario.training),
        transfers_(in),
        held_(in.scenario.model) {
    // A copy of an expert has its own gradients and state.
    held_.experts = in.slots;
    for (const ShardingScheme scheme : {plan_.sharding, of_router_, of_experts_}) {
      sharded_ = sharded_ || transfers_.sharded_passes(scheme);
      all_in_passes_ = all_in_passes_ && transfers_.only_in_passes(scheme);
    }
  }

  void add(PipelineTransfers& t) const {
    for (std::size_t c = 0; c < in_.chunks.size(); ++c) {
      const auto [n, trained] = parameters_of(held_, in_.scenario, in_.chunks[c]);
      const std::vector<TimedCollective> timed =
          transfers_.timed(transfers_.collectives(n, trained, in_.chunks[c], false));
      if (sharded_) t.sharded.push_back(of_every_pass(c, timed));
      if (!all_in_passes_) add_once_a_step(t, c, timed);
      const std::int64_t update = optimizer(c, n, trained);
      const std::size_t stage = c % static_cast<std::size_t>(p_.pp);
      t.optimizer[stage] += update;
      if (plan_.pipeline == PipelineKind::kDualPipe)
        t.optimizer[static_cast<std::size_t>(p_.pp) - 1 - stage] += update;
    }
  }

 private:
  std::int64_t network_of(std::size_t chunk, bool forward) const {
    return transfers_.across() ? in_.network_of(chunk, forward) : 0;
  }

  // Gathered for every pass while the previous layer computes; gradients are reduced while the next one does.
  // The rest is exposed: transfers over the network do not hide behind the pass's own. A root unit is gathered
  // as a whole before the pass and reduced after it, so that nothing hides; it is not gathered again in
  // backward, as FSDP leaves its root.
  PipelineTransfers::Sharded of_every_pass(std::size_t c, const std::vector<TimedCollective>& timed) const {
    const Seconds seconds = transfers_.of(timed, true);
    constexpr std::int64_t kNoRoom = std::numeric_limits<std::int64_t>::max() / 4;
    const bool root = plan_.fsdp_unit == FsdpUnit::kRoot;
    const bool hides_forward = !root && plan_.overlap.parameters;
    const bool hides_backward =
        !root && plan_.overlap.gradients && (plan_.overlap.parameters || seconds.gather == 0);
    PipelineTransfers::Sharded all{
        to_ps(seconds.gather), to_ps((transfers_.again() ? seconds.gather : 0) + seconds.reduce),
        hides_forward ? network_of(c, true) : kNoRoom, hides_backward ? network_of(c, false) : kNoRoom};
    // A host that waits for the counts of an exchange requests the experts' weights only afterwards, when
    // nothing is left to hide their gather.
    if (in_.waits_before_experts) all.exposed = to_ps(transfers_.gather_at_experts(timed));
    return all;
  }

  void add_once_a_step(PipelineTransfers& t, std::size_t c, const std::vector<TimedCollective>& timed) const {
    const Seconds seconds = transfers_.of(timed, false);
    t.parameters.push_back(to_ps(seconds.gather));
    t.gradients.push_back(to_ps(seconds.reduce));
    t.pieces.push_back(
        plan_.fsdp_unit == FsdpUnit::kRoot ? 1 : std::max(1, static_cast<int>(in_.chunks[c].layers.size())));
    t.forward_link.push_back(network_of(c, true));
    t.backward_link.push_back(network_of(c, false));
  }

  // Parameters of a chunk that a rank updates.
  double shard(const StageParameters& of) const {
    const auto shard_of = [](ShardingScheme scheme, double parameters, std::int64_t ranks) {
      return scheme == ShardingScheme::kDdp
                 ? parameters
                 : parameters / static_cast<double>(std::max<std::int64_t>(1, ranks));
    };
    const double router = plan_.router_sharding ? of.router : 0;
    return shard_of(plan_.sharding, of.dense - router, p_.data_ranks()) +
           shard_of(of_router_, router, p_.data_ranks()) +
           shard_of(of_experts_, of.experts, p_.expert_data_ranks());
  }

  // The optimizer, the norm of the gradients before it, and the zeroing of the gradient buffer; never faster
  // than its kernels are launched.
  std::int64_t optimizer(std::size_t c, const StageParameters& n, const StageParameters& trained) const {
    StageParameters of_adam = trained;
    MuonWork muon;
    if (plan_.muon) {
      const std::vector<MuonMatrix> matrices = muon_matrices(held_, p_, in_.chunks[c]);
      const StageParameters of_muon = elements_of(matrices);
      of_adam.dense -= of_muon.dense, of_adam.experts -= of_muon.experts;
      muon = transfers_.muon(matrices);
    }
    const bool on_host = offloads_optimizer(plan_.offload);
    const double moved = (shard(of_adam) * (on_host ? 0 : optimizer_traffic(plan_.optimizer)) + muon.bytes +
                          shard(trained) * 4 + (trained.dense + trained.experts) * (sharded_ ? 0 : 4)) *
                         in_.pricer.memory_seconds_per_byte();
    const double kernels =
        static_cast<double>(optimizer_launches(in_.scenario, trained)) +
        muon.matrices * (kKernelsOfMatrix + kProductsOfStep * static_cast<double>(plan_.newton_schulz_steps));
    const double launching = kernels * static_cast<double>(in_.pricer.launch_ps()) * 1e-12;
    return to_ps(std::max(moved + muon.products, launching) + muon.exchange +
                 (plan_.shampoo ? transfers_.shampoo(n) : 0) +
                 (on_host ? transfers_.on_the_host(shard(trained)) : 0));
  }

  const TransferInputs& in_;
  const Parallel& p_;
  const TrainingSettings& plan_;
  const Transfers transfers_;
  Architecture held_;
  const ShardingScheme of_router_ = plan_.router_sharding.value_or(plan_.sharding),
                       of_experts_ = plan_.expert_sharding.value_or(plan_.sharding);
  // Whether any module is gathered and reduced in every pass, and whether none moves anything once a step.
  bool sharded_ = false, all_in_passes_ = true;
};

// Returns how long activations of a microbatch take from every chunk to the next, and its gradients back.
std::vector<std::int64_t> stage_sends(const TransferInputs& in) {
  const Parallel& p = in.scenario.parallel;
  const TrainingSettings& plan = in.scenario.training;
  const Transfers transfers(in);
  const std::int64_t tokens = p.tokens_per_rank() * (plan.sequence_parallel ? 1 : p.tp);
  const double bytes =
      static_cast<double>(tokens * in.scenario.model.hidden * rows_between_stages(in.scenario.model)) *
      kBf16Bytes;
  const auto send = [&](std::int64_t from, std::int64_t to) {
    const Placement::Shapes& pairs = in.placement.pipeline_pairs(from, to);
    const bool network =
        std::any_of(pairs.begin(), pairs.end(), [](const GroupShape& pair) { return pair.across_domains(); });
    // For a microbatch: activations, gradients.
    return transfers.transfer(sim::CollectiveOp::send_recv, pairs, bytes, 2) *
           (network ? in.faults.network : in.faults.nvlink) *
           (in.contention ? in.contention->of_stages(from, to, bytes) : 1);
  };
  std::vector<std::int64_t> sends;
  for (std::size_t c = 0; c + 1 < in.chunks.size(); ++c) {
    const std::int64_t from = static_cast<std::int64_t>(c) % p.pp, to = (from + 1) % p.pp;
    double seconds = send(from, to);
    // The other direction's microbatches go between the mirrored stages.
    if (plan.pipeline == PipelineKind::kDualPipe)
      seconds = std::max(seconds, send(p.pp - 1 - from, p.pp - 1 - to));
    sends.push_back(to_ps(seconds));
  }
  return sends;
}

}  // namespace

std::int64_t optimizer_meshes(const Scenario& s, const StageParameters& n) {
  // Experts that are spread over other ranks than the dense part lie on their own mesh.
  return n.experts > 0 && n.dense > 0 && s.parallel.ep > 1 ? 2 : 1;
}

std::int64_t optimizer_launches(const Scenario& s, const StageParameters& n) {
  const double sets =
      s.training.foreach ? static_cast<double>(optimizer_meshes(s, n)) : n.dense_tensors + n.expert_tensors;
  return static_cast<std::int64_t>(sets) * kKernelsOfAdam;
}

std::vector<TimedCollective> timed_collectives(const Scenario& s, std::int64_t slots,
                                               const Placement& placement, const ProgramPricer& pricer) {
  if (!(s.is_step() || s.sharding_asked()) || !s.train) return {};
  Architecture held = s.model;
  if (held.experts > 0) held.experts = slots;
  const std::vector<double> even(layer_stack(held).size(), 1.0);
  const std::vector<Chunk> chunks = cut_into_chunks(held, s.parallel, even, 0, 0);
  const TransferInputs in{s, chunks, slots, placement, pricer, {}, {}};
  const Transfers transfers(in);
  std::vector<TimedCollective> all;
  for (std::size_t c = 0; c < chunks.size(); c += static_cast<std::size_t>(s.parallel.pp)) {
    const auto [weights, trained] = parameters_of(held, s, chunks[c]);
    std::vector<ParameterCollective> collectives = transfers.collectives(weights, trained, chunks[c], true);
    if (s.training.shampoo)
      std::ranges::copy(transfers.shampoo_gathers(weights), std::back_inserter(collectives));
    for (const TimedCollective& one : transfers.timed(collectives)) {
      const auto same = std::ranges::find_if(all, [&](const TimedCollective& other) {
        return other.what.what == one.what.what && other.what.kind == one.what.kind;
      });
      if (same == all.end()) {
        all.push_back(one);
        continue;
      }
      same->what.buffer += one.what.buffer;
      same->what.calls += one.what.calls;
      same->seconds += one.seconds;
    }
  }
  return all;
}

PipelineTransfers step_transfers(const TransferInputs& in) {
  const TrainingSettings& plan = in.scenario.training;
  PipelineTransfers t;
  t.gradients_overlap = plan.overlap.gradients;
  t.parameters_overlap = plan.overlap.parameters;
  t.computing_slower = in.pricer.computing_beside_nccl();
  t.optimizer.assign(static_cast<std::size_t>(in.scenario.parallel.pp), 0);
  // Inference has neither gradients nor an optimizer, and its weights stay in place.
  if (in.scenario.train) ParameterTransfers(in).add(t);
  if (offloads_activations(plan.offload)) {
    for (const double bytes : in.kept_of_pass())
      t.offloaded.push_back(to_ps(bytes / in.scenario.cluster->profile.device().host_link));
    if (in.report)
      in.report->add(static_cast<double>(*std::ranges::max_element(t.offloaded)) * 1e-12,
                     host_link_unmeasured(in.scenario.cluster->profile));
  }
  if (in.scenario.parallel.pp > 1) t.send = stage_sends(in);
  return t;
}

}  // namespace moesim::models

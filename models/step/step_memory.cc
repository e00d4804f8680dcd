#include "models/step/step_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "models/programs/projections.h"
#include "models/step/kept_activations.h"
#include "models/step/optimizers.h"
#include "models/step/parameter_collectives.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

// Transformer Engine's workspace of cuBLAS on Hopper and later; grouped products have one more for each of
// four streams (transformer_engine/pytorch/module/base.py).
constexpr double kGemmWorkspace = 32.0 * (1 << 20);
constexpr int kGroupedStreams = 4;
constexpr int kMostDraws = 64;
// Loads [draw, layer, rank] that are shuffled, of one routing that is there: nothing is drawn (kMostDrawn).
constexpr std::int64_t kMostDrawnLoads = std::int64_t{1} << 16;
constexpr const char* kFactors = "preconditioners and their roots fp32";
constexpr double kOutsideLow = 0.5, kOutsideHigh = 1.5;  // factors on kFramework

using Kind = PipelineSlot::Kind;

// Memory that one pass of a chunk keeps, and its transients.
struct Passing {
  double kept = 0;        // of the part that is the same for all dispatchers
  double moe_layers = 0;  // layers that each keep a dispatcher's rows
  double layer = 0;       // the heaviest layer, the dispatcher's mean part included
  double forward = 0;     // transients
  double backward = 0;
  double loss = 0;       // of the head: logits and their gradient, weight gradient
  double embedding = 0;  // the dense gradient of the table
};

// The moment of a stage's peak.
struct Peak {
  double bytes = -1;
  std::string_view moment;
  double transient = 0;
  double extra = 0;         // activations of a layer in backward, or of a pass that runs beside another
  std::vector<int> passes;  // passes held, by chunk
  bool gradients = true;    // exist at that moment
  double unit = 0;          // gradients that wait for their reduction
};

// Draws of the dispatcher's kept memory over several layers on the fullest rank: every layer has the
// program's overload distribution, on other ranks.
class KeptRows {
 public:
  KeptRows(const MemoryQuestion& q) : q_(q) {
    if (!q.program || q.program->saved_bytes.empty()) return;
    const std::size_t ranks = q.program->saved_bytes.size();
    for (std::size_t r = 0; r < ranks; ++r)
      loads_.push_back(kept_bytes(*q.program, static_cast<int>(r), *q.model, *q.plan));
    mean_ = std::accumulate(loads_.begin(), loads_.end(), 0.0) / static_cast<double>(ranks);
    most_ = *std::max_element(loads_.begin(), loads_.end());
  }
  double mean() const { return mean_; }
  double most() const { return most_; }
  // Returns the rows of one of many layers on the fullest rank. Layers that route alike fill the same rank.
  double of_many() const { return q_.independent_layers ? mean_ : most_; }

  // For layers that are each held so many times. Sorted; one value where nothing is drawn.
  std::vector<double> draws(const std::vector<double>& layers) const {
    const double all = std::accumulate(layers.begin(), layers.end(), 0.0);
    if (loads_.empty() || all <= 0) return {0};
    const bool even = most_ <= mean_ * (1 + 1e-12);
    if (even || !q_.independent_layers || layers.size() == 1) return {all * most_};
    const auto work = static_cast<std::int64_t>(layers.size() * loads_.size());
    const auto count =
        std::clamp<std::int64_t>(kMostDrawnLoads / std::max<std::int64_t>(1, work), 8, kMostDraws);
    std::vector<double> peaks;
    std::vector<double> permuted = loads_, sum(loads_.size());
    for (std::int64_t d = 0; d < count; ++d) {
      Random random = Random::for_item(q_.seed ^ kStream, static_cast<std::uint64_t>(d));
      std::fill(sum.begin(), sum.end(), 0);
      for (const double times : layers) {
        for (std::size_t i = permuted.size(); i > 1; --i)
          std::swap(permuted[i - 1], permuted[random.below(i)]);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += times * permuted[i];
      }
      peaks.push_back(*std::max_element(sum.begin(), sum.end()));
    }
    std::sort(peaks.begin(), peaks.end());
    return peaks;
  }

 private:
  static constexpr std::uint64_t kStream = 0x6d656d6f7279;  // separates these draws from others
  const MemoryQuestion& q_;
  std::vector<double> loads_;
  double mean_ = 0, most_ = 0;
};

double transient_of(const Program* program, bool forward) {
  if (!program) return 0;
  const auto& peaks = forward ? program->peak_forward_bytes : program->peak_backward_bytes;
  double most = 0;
  for (std::size_t r = 0; r < peaks.size(); ++r)
    most = std::max(most, static_cast<double>(peaks[r] - program->saved_bytes[r]));
  return most;
}

// Layers of one kind: memory each keeps in the part that is the same for all dispatchers.
struct AlikeLayers {
  LayerKind kind;
  double count = 0;
  std::vector<KeptTensor> tensors;
  double kept = 0;  // their sum
};

// Sharding of a parameter's state over the ranks of a group.
struct Shards {
  double dense = 1, experts = 1;
};

// Parameters that FSDP gathers and reduces at once: of the largest unit, and of two that follow each other,
// the second of which is gathered while the first computes.
struct Units {
  double largest = 0, neighbours = 0;

  Units times(double share) const { return {largest * share, neighbours * share}; }
};

class Stages {
 public:
  explicit Stages(const MemoryQuestion& q) : q_(q), a_(*q.model), p_(q.parallel), plan_(*q.plan), rows_(q) {
    for (const Chunk& chunk : *q.chunks) {
      layers_.push_back(alike(chunk));
      passing_.push_back(passing_of(chunk, layers_.back()));
    }
  }

  // Kept by one pass of a chunk, on the rank whose experts keep most.
  std::vector<double> kept() const {
    std::vector<double> all;
    for (const Passing& c : passing_) all.push_back(c.kept + c.moe_layers * rows_.most());
    return all;
  }

  StageMemory stage(std::size_t s) {
    StageMemory m;
    causes_ = &m.causes;
    host_ = unit_ = 0;
    std::vector<LayerKind> kinds;
    StageParameters n;
    adapters_ = {};
    matrices_.clear();
    Units units;
    for (const std::size_t c : chunks_of(s)) {
      const Chunk& chunk = (*q_.chunks)[c];
      const StageParameters part = chunk_parameters(a_, p_, chunk);
      n.dense += part.dense;
      n.experts += part.experts;
      if (plan_.lora.rank > 0) {
        const StageParameters trained = trained_parameters(a_, p_, plan_.lora, chunk);
        adapters_.dense += trained.dense;
        adapters_.experts += trained.experts;
      }
      if (plan_.muon) std::ranges::copy(muon_matrices(a_, p_, chunk), std::back_inserter(matrices_));
      find_units(chunk, units);
      for (const AlikeLayers& l : layers_[c]) kinds.push_back(l.kind);
    }
    const double optimizer_step = state(n, units);
    persistent(kinds, chunks_of(s));
    const Peak peak = peak_of((*q_.schedule)[s], optimizer_step);
    if (!peak.gradients)
      std::erase_if(m.causes, [](const MemoryCause& c) { return c.kind == MemoryKind::kGradients; });
    add(MemoryKind::kGradients, "unit before its reduction/fp32", peak.unit);
    m.moment = peak.moment;
    activations(peak, m);
    m.host_bytes = host_;
    for (const MemoryCause& c : m.causes) add_to(m.bytes, c);
    return m;
  }

 private:
  static void add_to(RankMemory& m, const MemoryCause& c) {
    constexpr std::array<double RankMemory::*, 6> kParts{&RankMemory::parameters, &RankMemory::gradients,
                                                         &RankMemory::optimizer,  &RankMemory::activations,
                                                         &RankMemory::transient,  &RankMemory::persistent};
    m.*kParts[static_cast<std::size_t>(c.kind)] += c.bytes;
  }
  void add(MemoryKind kind, std::string what, double bytes) {
    if (bytes > 0) causes_->push_back({kind, std::move(what), bytes});
  }

  std::vector<std::size_t> chunks_of(std::size_t s) const {
    std::vector<std::size_t> all;
    for (std::int64_t v = 0; v < p_.vpp; ++v) all.push_back(static_cast<std::size_t>(v * p_.pp) + s);
    if (plan_.pipeline == PipelineKind::kDualPipe) all.push_back(static_cast<std::size_t>(p_.pp - 1) - s);
    return all;
  }

  std::vector<AlikeLayers> alike(const Chunk& chunk) const {
    std::vector<AlikeLayers> all;
    for (const LayerKind& kind : chunk.layers) {
      const auto at =
          std::find_if(all.begin(), all.end(), [&](const AlikeLayers& l) { return l.kind == kind; });
      if (at != all.end()) {
        ++at->count;
        continue;
      }
      all.push_back({kind, 1, kept_by_layer(a_, p_, plan_, kind), 0});
      all.back().kept = bytes_of(all.back().tensors);
    }
    return all;
  }

  Passing passing_of(const Chunk& chunk, const std::vector<AlikeLayers>& layers) const {
    Passing c;
    double whole = 0;  // a layer that is recomputed as a whole
    double mtp = 0;
    TrainingSettings everything = plan_;
    everything.recompute.full = everything.recompute.operations = false;
    for (const AlikeLayers& l : layers) {
      const bool moe = l.kind.ffn == LayerKind::Ffn::kMoe;
      c.kept += l.count * l.kept;
      c.moe_layers += moe ? l.count : 0;
      c.layer = std::max(c.layer, l.kept + (moe ? rows_.mean() : 0));
      const double program = moe ? transient_of(q_.program, false) : 0;
      c.backward = std::max({c.backward, backward_transient(a_, p_, plan_, l.kind), program});
      c.forward = std::max(c.forward, moe ? transient_of(q_.program, true) : 0);
      if (plan_.recompute.full) {
        const auto most = moe && q_.program && !q_.program->saved_bytes.empty()
                              ? static_cast<double>(*std::max_element(q_.program->saved_bytes.begin(),
                                                                      q_.program->saved_bytes.end()))
                              : 0;
        whole = std::max(whole, bytes_of(kept_by_layer(a_, p_, everything, l.kind)) + most);
      } else if (plan_.recompute.operations) {
        whole = std::max(whole, bytes_of(kept_by_layer(a_, p_, everything, l.kind)) - l.kept);
      }
      mtp += l.kind.mtp ? l.count : 0;
    }
    c.backward += whole;
    const double table = static_cast<double>(largest_share(a_.vocabulary, p_.tp) * a_.hidden) * kBf16Bytes;
    if (chunk.head) {
      // Fused cross entropy: logits in bf16, turned into their gradient in place, beside the product's own
      // output; those of MTP layers wait for backward too. Also a placeholder of the weight's gradient.
      const double tokens = static_cast<double>(p_.tokens_per_rank() * p_.tp) * kBf16Bytes;
      const double logits = tokens * static_cast<double>(largest_share(a_.vocabulary, p_.tp));
      // PyTorch's own: log-softmax, its gradient and that of the logits, each in fp32 (H200, PyTorch 2.11: 12.0
      // bytes a logit).
      const double copies = plan_.loss == LossKernel::kEager ? 6 : plan_.loss == LossKernel::kFp32 ? 3 : 2;
      c.loss = (copies + mtp) * logits + (trains_tables() ? table : 0);
      // Liger-Kernel fused_linear_cross_entropy.py: as many tokens at a time as have logits of the size of the
      // hidden states of all.
      if (plan_.loss == LossKernel::kChunked)
        c.loss =
            2 * std::min(logits, tokens * static_cast<double>(a_.hidden)) + (trains_tables() ? table : 0);
      // Without loss parallelism every rank holds all columns besides its own.
      if (p_.tp > 1 && !plan_.loss_parallel)
        c.loss += (1 + mtp) * tokens * static_cast<double>(a_.vocabulary);
      // The gathered input of the head, and its gradient before the reduce-scatter.
      if (p_.tp > 1) c.loss += 2 * static_cast<double>(p_.tokens_per_rank() * p_.tp * a_.hidden) * kBf16Bytes;
    }
    if (chunk.embedding && trains_tables()) c.embedding = table;
    return c;
  }
  bool trains_tables() const { return q_.train && plan_.lora.rank == 0; }

  // The embedding and the head are units of their own.
  void find_units(const Chunk& chunk, Units& units) const {
    const auto parameters = [&](const std::vector<LayerKind>& layers, bool embedding, bool head) {
      const StageParameters n = chunk_parameters(a_, p_, {0, layers, embedding, head});
      return n.dense + n.experts;
    };
    double before = 0;
    const auto follows = [&](double unit) {
      units.largest = std::max(units.largest, unit);
      units.neighbours = std::max(units.neighbours, before + unit);
      before = unit;
    };
    if (chunk.embedding) follows(parameters({}, true, false));
    std::optional<LayerKind> last;
    double whole = 0, of_mixer = 0;
    for (const LayerKind& layer : chunk.layers) {
      if (layer != last) {
        LayerKind mixer = layer;
        mixer.ffn = LayerKind::Ffn::kNone;
        whole = parameters({layer}, false, false);
        of_mixer = plan_.fsdp_unit == FsdpUnit::kModule ? parameters({mixer}, false, false) : 0;
      }
      last = layer;
      if (of_mixer > 0) follows(of_mixer);
      if (whole > of_mixer) follows(whole - of_mixer);
    }
    if (chunk.head) follows(parameters({}, false, true));
  }

  // Parameters, gradients and optimizer; bytes that only the optimizer's step holds.
  double state(const StageParameters& all, const Units& units) {
    const TrainingSettings& plan = plan_;
    const ShardingScheme router = plan.router_sharding.value_or(plan.sharding),
                         experts = plan.expert_sharding.value_or(plan.sharding);
    if (router == plan.sharding && experts == plan.sharding) return state_under(plan.sharding, all, units);
    // Modules that are wrapped apart.
    const double whole = std::max(1.0, all.dense + all.experts);
    double held = 0;
    const auto part = [&](ShardingScheme scheme, const StageParameters& n) {
      if (n.dense + n.experts > 0) held += state_under(scheme, n, units.times((n.dense + n.experts) / whole));
    };
    part(plan.sharding, {all.dense - all.router, 0});
    part(router, {all.router, 0});
    part(experts, {0, all.experts});
    return held;
  }

  double state_under(ShardingScheme sharding, const StageParameters& n, const Units& units) {
    const bool fsdp = shards_weights(sharding);
    const auto dp = static_cast<double>(p_.data_ranks()),
               edp = static_cast<double>(std::max<std::int64_t>(1, p_.expert_data_ranks()));
    const double group = sharding == ShardingScheme::kHsdp && plan_.shard_group > 0
                             ? static_cast<double>(plan_.shard_group)
                             : dp;
    const auto experts = static_cast<double>(expert_shard_group(
        static_cast<std::int64_t>(dp), static_cast<std::int64_t>(group), static_cast<std::int64_t>(edp)));
    const Shards whole, fully{group, experts}, zero1{dp, edp};
    const Shards& of_optimizer = fsdp ? fully : sharding == ShardingScheme::kDdp ? whole : zero1;
    // Shampoo distributes the blocks of a weight over all ranks that hold it, and the moments of its grafted
    // Adam with them.
    const Shards& of_moments = plan_.shampoo ? zero1 : of_optimizer;
    // Parameters with an optimizer, and those with a second moment. Muon's matrices have none and stay whole
    // on their ranks; the rank with most of them counts.
    const bool frozen = plan_.lora.rank > 0;
    const StageParameters trained = frozen ? adapters_ : n;
    StageParameters held = trained, second = trained;
    if (plan_.muon) {
      const StageParameters matrices = elements_of(matrices_);
      second.dense -= matrices.dense, second.experts -= matrices.experts;
      if (sharding == ShardingScheme::kZero1 || sharding == ShardingScheme::kZero2)
        for (const bool of_experts : {false, true}) {
          std::vector<MuonMatrix> kind;
          std::ranges::copy_if(matrices_, std::back_inserter(kind),
                               [&](const MuonMatrix& m) { return m.experts == of_experts; });
          const double ranks = of_experts ? zero1.experts : zero1.dense;
          const double most =
              ranks *
              largest_muon_share(std::move(kind), static_cast<std::int64_t>(ranks), [](const MuonMatrix&) {
                return 0.0;
              }).elements;
          (of_experts ? held.experts : held.dense) += most - (of_experts ? matrices.experts : matrices.dense);
        }
    }
    const auto both = [&](MemoryKind kind, const std::string& what, double bytes, const Shards& over,
                          const StageParameters& of) {
      const auto text = [&](const char* part, double shards) {
        return shards > 1 ? fmt::format("{}/{} over {:.0f} ranks", part, what, shards)
                          : fmt::format("{}/{}", part, what);
      };
      add(kind, text("dense part", over.dense), of.dense / over.dense * bytes);
      add(kind, text("experts", over.experts), of.experts / over.experts * bytes);
    };
    const double share = frozen ? (trained.dense + trained.experts) / (n.dense + n.experts) : 1;
    if (fsdp) {
      // FSDP2 with mixed precision shards the master weights themselves, gathers bf16 copies of the unit at
      // work and of the next, and reduces gradients in fp32.
      if (frozen) both(MemoryKind::kParameters, "bf16, frozen", kBf16Bytes, fully, n);
      both(MemoryKind::kParameters, std::string(name_of(plan_.optimizer.master)),
           bytes_of(plan_.optimizer.master), fully, trained);
      // A stage that stays gathered for all microbatches, and reduces gradients after the last.
      const bool whole_stage = !sharded_in_every_pass(p_);
      const bool root = plan_.fsdp_unit == FsdpUnit::kRoot;
      if (whole_stage || root || !plan_.reshard_after_forward)
        add(MemoryKind::kParameters, root ? "gathered model/bf16" : "gathered stage/bf16",
            (n.dense + n.experts) * kBf16Bytes);
      else
        add(MemoryKind::kParameters, "gathered units/bf16, two", units.neighbours * kBf16Bytes);
      if (!q_.train) return 0;
      both(MemoryKind::kGradients, std::string(name_of(plan_.optimizer.master)),
           bytes_of(plan_.optimizer.master), fully, trained);
      if (whole_stage || root)
        add(MemoryKind::kGradients, "stage before its reduction/fp32", share * (n.dense + n.experts) * 4);
      else
        unit_ += share * units.largest * 4;
      both(MemoryKind::kOptimizer, fmt::format("first moment {}", name_of(plan_.optimizer.first)),
           bytes_of(plan_.optimizer.first), of_moments, held);
      both(MemoryKind::kOptimizer, fmt::format("second moment {}", name_of(plan_.optimizer.second)),
           bytes_of(plan_.optimizer.second), of_moments, second);
      if (plan_.shampoo) both(MemoryKind::kOptimizer, kFactors, kShampooStateBytes, zero1, n);
      return 0;
    }
    if (frozen) both(MemoryKind::kParameters, "bf16, frozen", kBf16Bytes, whole, n);
    both(MemoryKind::kParameters, "bf16", kBf16Bytes, whole, trained);
    if (!q_.train) return 0;
    const bool divides = sharding == ShardingScheme::kZero2;
    both(MemoryKind::kGradients, plan_.gradient_bytes == 2 ? "bf16" : "fp32", plan_.gradient_bytes,
         divides ? zero1 : whole, trained);
    if (divides) unit_ += share * units.largest * static_cast<double>(plan_.gradient_bytes);
    const OptimizerTypes& o = plan_.optimizer;
    const double shard = held.dense / of_optimizer.dense + held.experts / of_optimizer.experts;
    if (offloads_optimizer(plan_.offload)) {
      // The host holds a copy of the gradients besides the state and converts them itself.
      host_ += shard * (o.bytes() + plan_.gradient_bytes);
      return 0;
    }
    // The optimizer updates bf16 weights in place where its master weights are bf16, too.
    const bool masters = o.master != DType::kBf16;
    if (masters)
      both(MemoryKind::kOptimizer, fmt::format("master weights {}", name_of(o.master)), bytes_of(o.master),
           of_optimizer, held);
    both(MemoryKind::kOptimizer, fmt::format("first moment {}", name_of(o.first)), bytes_of(o.first),
         of_moments, held);
    both(MemoryKind::kOptimizer, fmt::format("second moment {}", name_of(o.second)), bytes_of(o.second),
         of_moments, second);
    if (plan_.shampoo) both(MemoryKind::kOptimizer, kFactors, kShampooStateBytes, zero1, n);
    // Adam reads fp32 gradients: a copy of the rank's shard where they were reduced in bf16.
    return plan_.gradient_bytes == 2 && masters ? 4 * shard : 0;
  }

  void persistent(const std::vector<LayerKind>& kinds, const std::vector<std::size_t>& chunks) {
    double moe_layers = 0;
    for (const std::size_t c : chunks) moe_layers += passing_[c].moe_layers;
    if (q_.program)
      add(MemoryKind::kPersistent, "dispatch buffers",
          static_cast<double>(q_.program->persistent_bytes) +
              moe_layers * static_cast<double>(q_.program->layer_bytes));
    if (plan_.framework != Framework::kMegatron) return;
    const bool grouped = q_.program && p_.edp() > 0;
    add(MemoryKind::kPersistent, "GEMM workspaces", (grouped ? 1 + kGroupedStreams : 1) * kGemmWorkspace);
    if (q_.train && plan_.lora.rank == 0 &&
        (plan_.sharding == ShardingScheme::kDdp || plan_.sharding == ShardingScheme::kZero1)) {
      Parallel held = p_;  // experts as the dispatcher splits them
      if (q_.program) held.etp = q_.program->etp();
      add(MemoryKind::kPersistent, "placeholders of weight gradients",
          distinct_weights(a_, held, kinds) * kBf16Bytes);
    }
  }

  // Memory that a pass leaves on the GPU.
  double left_by(std::size_t c) const {
    return offloads_activations(plan_.offload) ? 0
                                               : passing_[c].kept + passing_[c].moe_layers * rows_.of_many();
  }
  // The heaviest layer on the rank with the most rows.
  double fullest_layer(std::size_t c) const {
    return passing_[c].layer + (passing_[c].moe_layers > 0 ? rows_.most() - rows_.mean() : 0);
  }
  // Two layers whose activations are being moved to or from the host.
  double on_the_way(std::size_t c) const {
    return offloads_activations(plan_.offload) ? 2 * fullest_layer(c) : 0;
  }

  Peak peak_of(const std::vector<PipelineSlot>& slots, double optimizer_step) {
    Peak peak;
    std::vector<int> held(passing_.size(), 0);
    // FSDP2's gradients are freed after the optimizer's step, and the first backward makes them layer by layer
    // while activations go: most is held where it begins or where it ends.
    double late = 0;
    for (const MemoryCause& c : *causes_)
      if (shards_weights(plan_.sharding) && c.kind == MemoryKind::kGradients) late += c.bytes;
    double level = -late, away = 0, most_away = 0;
    const std::vector<double> of_pass = kept();
    const auto consider = [&](std::string_view moment, double transient, double extra, double unit = 0) {
      const double bytes = level + extra + transient + unit;
      if (bytes <= peak.bytes) return;
      peak = {bytes, moment, transient, extra, held, late == 0, unit};
    };
    const auto keep = [&](std::int32_t chunk, int count) {
      const auto c = static_cast<std::size_t>(chunk);
      held[c] += count;
      level += count * left_by(c);
      away += offloads_activations(plan_.offload) ? count * of_pass[c] : 0;
      most_away = std::max(most_away, away);
    };
    for (const PipelineSlot& slot : slots) {
      const auto f = static_cast<std::size_t>(slot.chunk), b = static_cast<std::size_t>(slot.back_chunk);
      const bool first = slot.kind == Kind::kBackward && late > 0;
      if (slot.kind != Kind::kForward && !first) level += std::exchange(late, 0);
      if (slot.kind == Kind::kForward) {
        if (q_.train) keep(slot.chunk, 1);
        consider("forward", passing_[f].forward, on_the_way(f));
        if (passing_[f].loss > 0) consider("loss", passing_[f].loss, on_the_way(f));
      } else if (slot.kind == Kind::kOverlapped) {
        // Layer by layer the forward pass reuses what the backward pass has just freed.
        consider("forward and backward", std::max(passing_[f].forward, passing_[b].backward),
                 passing_[f].layer + on_the_way(f) + on_the_way(b), unit_);
        keep(slot.back_chunk, -1);
        keep(slot.chunk, 1);
        consider("forward", passing_[f].forward, on_the_way(f));
        if (passing_[f].loss > 0) consider("loss", passing_[f].loss, on_the_way(f));
      } else {
        if (slot.kind != Kind::kWeightGradient)
          consider("backward", passing_[f].backward, on_the_way(f), unit_);
        if (slot.kind == Kind::kInputGradient) continue;
        keep(slot.chunk, -1);
        level += std::exchange(late, 0);
        if (first)  // its last layer is still held
          consider("backward", passing_[f].backward,
                   offloads_activations(plan_.offload) ? on_the_way(f) : fullest_layer(f), unit_);
        if (passing_[f].embedding > 0) consider("embedding gradient", passing_[f].embedding, 0, unit_);
      }
    }
    host_ += most_away;
    if (optimizer_step > peak.bytes)
      peak = {optimizer_step, "optimizer step", optimizer_step, 0, std::vector<int>(passing_.size(), 0)};
    return peak;
  }

  void activations(const Peak& peak, StageMemory& m) {
    std::vector<double> layers;  // how many times each layer with experts is held
    std::vector<std::pair<std::string, double>> kept;
    const auto sum = [&](const std::vector<KeptTensor>& tensors, double times, double scale) {
      for (const KeptTensor& t : tensors) {
        const auto at =
            std::find_if(kept.begin(), kept.end(), [&](const auto& k) { return k.first == t.name; });
        if (at == kept.end())
          kept.emplace_back(t.name, times * scale * t.bytes);
        else
          at->second += times * scale * t.bytes;
      }
    };
    for (std::size_t c = 0; c < passing_.size(); ++c) {
      if (peak.passes[c] == 0) continue;
      m.in_flight += peak.passes[c];
      if (offloads_activations(plan_.offload)) continue;
      for (const AlikeLayers& l : layers_[c]) {
        sum(l.tensors, peak.passes[c], l.count);
        if (l.kind.ffn == LayerKind::Ffn::kMoe)
          layers.insert(layers.end(), static_cast<std::size_t>(l.count), peak.passes[c]);
      }
    }
    const std::vector<double> draws = rows_.draws(layers);
    const double rows = draws[draws.size() / 2];
    if (rows > 0) {
      const auto& saved = q_.program->saved_bytes;
      const auto fullest = static_cast<int>(std::max_element(saved.begin(), saved.end()) - saved.begin());
      const std::vector<KeptTensor> tensors = kept_by_program(*q_.program, fullest, a_, plan_);
      const double each = bytes_of(tensors);
      if (each > 0) sum(tensors, 1, rows / each);
    }
    for (auto& [name, bytes] : kept) add(MemoryKind::kActivations, name, bytes);
    add(MemoryKind::kActivations,
        offloads_activations(plan_.offload) ? "layers on their way to the host or back"
                                            : "layer in backward or beside it",
        peak.extra);
    add(MemoryKind::kTransient, std::string(peak.moment), peak.transient);
    double others = 0;
    for (const MemoryCause& c : *causes_) others += c.bytes;
    others -= rows;
    m.low_bytes = others + draws[static_cast<std::size_t>(0.05 * static_cast<double>(draws.size()))];
    m.high_bytes =
        others +
        draws[std::min(draws.size() - 1, static_cast<std::size_t>(0.95 * static_cast<double>(draws.size())))];
    // Draws of routing with stratified draws of allocator and library overhead.
    int fitting = 0;
    for (int d = 0; d < kMostDraws; ++d) {
      Random random = Random::for_item(q_.seed ^ 0x66697473, static_cast<std::uint64_t>(d));
      const double of_allocator = (static_cast<double>(d) + 0.5) / kMostDraws;
      const double reserved = of_allocator < 0.5
                                  ? kReservedLow + 2 * of_allocator * (kReserved - kReservedLow)
                                  : kReserved + (2 * of_allocator - 1) * (kReservedHigh - kReserved);
      const double outside = kFramework * (kOutsideLow + random.uniform() * (kOutsideHigh - kOutsideLow));
      const double allocated = others + draws[random.below(draws.size())];
      fitting += allocated * reserved + outside <= q_.gpu_bytes;
    }
    m.fits_probability = static_cast<double>(fitting) / kMostDraws;
  }

  const MemoryQuestion& q_;
  const Architecture& a_;
  const Parallel& p_;
  const TrainingSettings& plan_;
  KeptRows rows_;
  std::vector<std::vector<AlikeLayers>> layers_;  // of every chunk
  std::vector<Passing> passing_;
  std::vector<MemoryCause>* causes_ = nullptr;
  // For the present stage: bytes in the host's memory, of FSDP's largest unit of gradients in fp32, adapters,
  // matrices whose optimizer is Muon.
  double host_ = 0, unit_ = 0;
  StageParameters adapters_;
  std::vector<MuonMatrix> matrices_;
};

}  // namespace

std::string_view name_of(MemoryKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"parameters",  "gradients", "optimizer",
                                                   "activations", "transient", "persistent"};
  return kNames[static_cast<std::size_t>(kind)];
}

StageParameters chunk_parameters(const Architecture& a, const Parallel& p, const Chunk& chunk) {
  const auto tp = static_cast<double>(p.tp);
  const double H = static_cast<double>(a.hidden), matrices = a.gated ? 3 : 2,
               norm = static_cast<double>(a.norm_parameters());
  StageParameters n;
  std::optional<LayerKind::Mixer> last;
  double mixer = 0;
  for (const LayerKind& kind : chunk.layers) {
    if (kind.mixer != last) mixer = static_cast<double>(mixer_parameters(a, kind.mixer)) / tp;
    last = kind.mixer;
    n.dense += 2 * norm;
    n.dense_tensors += (a.norm_bias ? 4 : 2) + (kind.mixer == LayerKind::Mixer::kNone ? 0 : 4) +
                       (kind.ffn == LayerKind::Ffn::kDense ? matrices : 0);
    if (kind.mtp) n.dense += 2 * H * H;
    n.dense += mixer;
    // Weights that mix residual streams are whole on every rank.
    n.dense += blocks_of(kind) * static_cast<double>(residual_parameters(a));
    n.dense_tensors += a.residual.kind == Residual::Kind::kPlain ? 0 : 3 * blocks_of(kind);
    if (kind.ffn == LayerKind::Ffn::kDense)
      n.dense += matrices * H * static_cast<double>(dense_ffn_of(a, kind)) / tp;
    if (kind.ffn == LayerKind::Ffn::kMoe) {
      n.dense += H * static_cast<double>(a.experts + a.zero_experts) +
                 matrices * H * static_cast<double>(a.shared_ffn) / tp +
                 2 * H * static_cast<double>(a.latent);
      n.router += H * static_cast<double>(a.experts + a.zero_experts);
      n.dense_tensors += 1 + (a.shared_ffn > 0 ? matrices : 0) + (a.latent > 0 ? 2 : 0);
      n.expert_tensors += matrices;
      const double local = static_cast<double>(std::max<std::int64_t>(1, a.experts / p.ep));
      n.experts += static_cast<double>(a.parameters_per_expert()) * local / static_cast<double>(p.etp);
    }
  }
  // The first ranks hold one more row of a vocabulary that does not divide.
  const double table = static_cast<double>(largest_share(a.vocabulary, p.tp)) * H;
  n.dense_tensors += (chunk.embedding ? 1 : 0) + (chunk.head ? 2 : 0);
  if (chunk.embedding) n.dense += table;
  if (chunk.head) n.dense += static_cast<double>(residual_head_parameters(a));
  if (chunk.head) n.dense += norm + (a.tied_embeddings && chunk.embedding ? 0 : table);
  return n;
}

StageParameters trained_parameters(const Architecture& a, const Parallel& p, const Lora& lora,
                                   const Chunk& chunk) {
  if (lora.rank == 0) return chunk_parameters(a, p, chunk);
  StageParameters n;
  const double of_experts = static_cast<double>(expert_adapter_elements(lora, a, p.etp) *
                                                std::max<std::int64_t>(1, a.experts / p.ep));
  for (const LayerKind& kind : chunk.layers) {
    for (const Projections::Weight& w : layer_weights(a, kind, p.tp)) {
      n.dense += static_cast<double>(adapter_elements(lora, w));
      n.dense_tensors += adapted(lora, w) ? 2 : 0;
    }
    if (kind.ffn != LayerKind::Ffn::kMoe || of_experts == 0) continue;
    n.experts += of_experts;
    n.expert_tensors += 4;
  }
  return n;
}

std::vector<double> kept_by_pass(const MemoryQuestion& q) { return Stages(q).kept(); }

StepMemory step_memory(const MemoryQuestion& q) {
  StepMemory result;
  result.limit_bytes = (q.gpu_bytes - kFramework) / kReserved;
  if (q.program && !q.program->saved_bytes.empty()) {
    const auto& saved = q.program->saved_bytes;
    result.rank = static_cast<int>(std::max_element(saved.begin(), saved.end()) - saved.begin());
  }
  Stages stages(q);
  for (std::size_t s = 0; s < static_cast<std::size_t>(q.parallel.pp); ++s) {
    StageMemory m = stages.stage(s);
    const double bytes = m.bytes.total();
    if (bytes > result.limit_bytes && result.fits)
      result.fits = false, result.first_stage = static_cast<int>(s);
    // All stages run under the same allocator and libraries, so the fullest decides.
    result.fits_probability = std::min(result.fits_probability, m.fits_probability);
    if (bytes > result.max_bytes) {
      result.max_bytes = bytes;
      result.worst = m.bytes;
      result.stage = static_cast<int>(s);
    }
    result.host_bytes = std::max(result.host_bytes, m.host_bytes);
    result.stages.push_back(std::move(m));
  }
  result.missing_bytes = std::max(0.0, result.max_bytes - result.limit_bytes);
  return result;
}

}  // namespace moesim::models

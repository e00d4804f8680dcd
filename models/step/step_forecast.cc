#include "models/step/step_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "models/hardware/cluster.h"
#include "models/step/layer_forecast.h"
#include "models/step/training_flops.h"
#include "models/step/transfers.h"
#include "models/workload/placement.h"

namespace moesim::models {

namespace {

using sim::Category;

constexpr std::uint64_t kDrawStream =
    0x73746570;  // separates these draws from those of routings and profiles
}  // namespace

struct StepForecaster::Timed {
  PipelineRun run;
  PipelineTransfers transfers;
};

StepForecaster::~StepForecaster() = default;

StepForecaster::StepForecaster(const Scenario& scenario, const DispatcherSpec& dispatcher,
                               RoutingCache* routings)
    : scenario_(scenario), dispatcher_(dispatcher), routing_(scenario_, routings), placement_(scenario_) {
  const Parallel& p = scenario_.parallel;
  const TrainingSettings& plan = scenario_.training;
  if (!plan.note.empty()) warnings_.push_back(plan.note);
  if (plan.overlap.expert_communication && p.pp > 1 && p.vpp == 1 && plan.pipeline == PipelineKind::k1F1B)
    warnings_.push_back(
        "expert communication under the other microbatch needs one more microbatch in flight without vpp > "
        "1");
  for (const std::string& warning : routing_.warnings()) warnings_.push_back(warning);
  if (plan.shampoo && scenario_.train)
    warnings_.push_back(
        "shampoo: the roots of its preconditioners were not measured; they are priced at the GPU's fp32 "
        "rate, a "
        "lower bound");
  if (plan.lora.rank > 0)
    warnings_.push_back(
        "lora: FLOPs count 4 for a frozen weight, which has no gradient, and 6 for an adapter's");
  if (plan.muon)
    warnings_.push_back(
        "muon: its Newton-Schulz products were not measured as such; they are priced as bf16 products of "
        "their "
        "shapes, one after the other");
  if (scenario_.mesh.given && scenario_.train && plan.foreach && p.ep > 1 &&
      (shards_weights(plan.sharding) || scenario_.mesh.replicate == 1))
    warnings_.push_back(
        "training.foreach: router and experts lie on two meshes, which one foreach kernel of PyTorch refuses "
        "(\"DTensor does not support cross-mesh operation yet\"): a set of launches per mesh is counted, as "
        "with "
        "a parameter group each");
  choose_programs();
  for (const std::string& note : placement_.notes()) warnings_.push_back(note);
  for (const std::string& warning : moe_program().warnings)
    warnings_.push_back(dispatcher_.text() + ": " + warning);
  plan_ = std::make_unique<PipelineLayout>(scenario_, *programs_, routing_);
  const auto overlapped = [](const std::vector<PipelineSlot>& stage) {
    return std::any_of(stage.begin(), stage.end(),
                       [](const PipelineSlot& slot) { return slot.kind == PipelineSlot::Kind::kOverlapped; });
  };
  if (plan.overlap.delayed_wgrad && std::none_of(plan_->schedule.begin(), plan_->schedule.end(), overlapped))
    warnings_.push_back(
        "training.overlap.delayed_wgrad: no pass runs beside another, so no weight gradient is delayed");
  stage_faults_ = faults_of_stages(scenario_, warnings_);
}

void StepForecaster::choose_programs() {
  std::vector<std::unique_ptr<LayerPrograms>> classes =
      programs_of_classes(scenario_, dispatcher_, routing_, placement_);
  std::size_t slowest = 0;
  if (classes.size() > 1) {
    const ProgramPricer pricer(*scenario_.cluster,
                               Recipe::of(scenario_.training, scenario_.parallel.world()));
    std::int64_t longest = -1;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const std::vector<Chunk> none;
      StepPasses::Options options;
      options.chunks = &none;
      StepPasses passes(*classes[c], routing_, pricer, options);
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < classes[c]->kinds().size(); ++k) {
        const StepPasses::Times t = passes.layer_times(k, 0, 0);
        sum += t.forward + t.backward;
      }
      if (sum > longest) longest = sum, slowest = c;
    }
  }
  programs_ = std::move(classes[slowest]);
}

StepPasses::Options StepForecaster::passes_options(bool faults, const Contention* contention) const {
  const TrainingSettings& plan = scenario_.training;
  StepPasses::Options o;
  o.chunks = &plan_->chunks;
  o.contention = contention;
  o.full_recompute = plan.recompute.full;
  o.delayed_weight_gradients = plan.overlap.delayed_wgrad;
  o.split = plan.pipeline != PipelineKind::k1F1B || plan.overlap.delayed_wgrad;
  if (!faults || stage_faults_.empty()) return o;
  o.faults.resize(static_cast<std::size_t>(scenario_.parallel.pp));
  return o;
}

StepForecaster::Timed StepForecaster::time(const ProgramPricer& pricer, bool book, bool faults,
                                           const Contention* contention, DomainReport* report) const {
  StepPasses::Options o = passes_options(faults, contention);
  LinkFaults links;
  if (!o.faults.empty()) {
    // Among several dispatch groups of a stage with faults, takes the slowest on the first routing.
    for (std::size_t s = 0; s < stage_faults_.size(); ++s) {
      std::int64_t slowest = -1;
      for (const RankFaults& group : stage_faults_[s]) {
        for (const double f : group.network) links.network = std::max(links.network, f);
        for (const double f : group.nvlink) links.nvlink = std::max(links.nvlink, f);
        if (stage_faults_[s].size() == 1) {
          o.faults[s] = group;
          continue;
        }
        StepPasses::Options alone = passes_options(false, contention);
        alone.faults = {group};
        StepPasses passes(*programs_, routing_, pricer, alone);
        std::int64_t sum = 0;
        for (std::size_t k = 0; k < programs_->kinds().size(); ++k) {
          const StepPasses::Times t = passes.layer_times(k, 0, 0);
          sum += t.forward + t.backward;
        }
        if (sum > slowest) slowest = sum, o.faults[s] = group;
      }
    }
  }
  StepPasses passes(*programs_, routing_, pricer, std::move(o));
  if (report) passes.report(*report);
  Timed timed;
  std::map<std::size_t, StepPasses::Times> network;
  timed.transfers =
      step_transfers({.scenario = scenario_,
                      .chunks = plan_->chunks,
                      .slots = programs_->experts(),
                      .placement = placement_,
                      .pricer = pricer,
                      .network_of =
                          [&](std::size_t chunk, bool forward) {
                            auto [at, added] = network.try_emplace(chunk);
                            if (added) at->second = passes.network_of(chunk);
                            return forward ? at->second.forward : at->second.backward;
                          },
                      .kept_of_pass = [this] { return kept_by_pass(scenario_, *plan_, *programs_); },
                      .faults = links,
                      .contention = contention,
                      .waits_before_experts = waits_before_experts(),
                      .report = report});
  timed.run = run_pipeline(plan_->shape, plan_->schedule, timed.transfers, passes.ranks(),
                           {pricer.launch_ps(), pricer.overlap(moe_program())}, passes, book);
  return timed;
}

double StepForecaster::seconds(const ProgramPricer& pricer) const {
  return static_cast<double>(time(pricer, false, true, nullptr, nullptr).run.total) * 1e-12 +
         overload_report(scenario_, *plan_, *programs_, placement_, pricer).seconds;
}

double tokens_of_step(const Parallel& p) {
  return static_cast<double>(p.dp * p.microbatches * p.micro_batch) * static_cast<double>(p.seq);
}

double StepForecaster::tokens() const {
  const double all = tokens_of_step(scenario_.parallel);
  return moe_program().tokens_replicated ? all / static_cast<double>(scenario_.parallel.ep) : all;
}

// Steps under drawn profiles: a sample of the passes is priced again, and the pipeline is run with passes
// scaled by the ratio. Where every layer and microbatch has its own routing, a draw takes each pass from
// another microbatch and another chunk of the same layers, which is what another seed of the routing would
// change.
class StepForecaster::Draws {
 public:
  Draws(const StepForecaster& f, const Timed& nominal, const ProgramPricer& pricer,
        const Contention* contention, std::size_t draws)
      : f_(f),
        nominal_(nominal),
        contention_(contention),
        healthy_(*f.programs_, f.routing_, pricer, f.passes_options(false, contention)) {
    const std::int64_t passes =
        static_cast<std::int64_t>(f.programs_->kind_of_layer().size()) * f.scenario_.parallel.microbatches;
    samples_ = f.routing_.shared()
                   ? 1
                   : std::clamp<std::int64_t>(passes / static_cast<std::int64_t>(draws), 1, kMostSamples);
    blocks_ = blocks_of(nominal);
    for (std::size_t s = 0; s < f.plan_->schedule.size(); ++s)
      for (std::size_t i = 0; i < f.plan_->schedule[s].size(); ++i) {
        const PipelineSlot& slot = f.plan_->schedule[s][i];
        alike_[healthy_.alike(slot)].push_back(nominal.run.slot_ps[s][i]);
      }
    nominal_blocks_ = run_blocks(nominal.transfers, blocks_);
  }

  // Returns seconds of the step under draw `d`.
  double seconds(std::size_t d, const ProgramPricer& pricer) {
    Random random = Random::for_item(f_.scenario_.seed ^ kDrawStream, d);
    StepPasses drawn(*f_.programs_, f_.routing_, pricer, f_.passes_options(false, contention_));
    const std::vector<Ratio> ratios = ratios_of(drawn, random);
    Blocks blocks = blocks_;
    for (std::size_t s = 0; s < blocks.size(); ++s)
      for (std::size_t i = 0; i < blocks[s].size(); ++i) {
        const PipelineSlot& slot = f_.plan_->schedule[s][i];
        const std::vector<std::int64_t>& others = alike_.at(healthy_.alike(slot));
        const std::int64_t own = f_.routing_.shared() ? blocks[s][i] : others[random.below(others.size())];
        blocks[s][i] = static_cast<std::int64_t>(static_cast<double>(own) * ratio_of(slot, ratios));
      }
    std::map<std::size_t, StepPasses::Times> network;
    const PipelineTransfers transfers = step_transfers(
        {.scenario = f_.scenario_,
         .chunks = f_.plan_->chunks,
         .slots = f_.programs_->experts(),
         .placement = f_.placement_,
         .pricer = pricer,
         .network_of =
             [&](std::size_t chunk, bool forward) {
               auto [at, added] = network.try_emplace(chunk);
               if (added) at->second = drawn.network_of(chunk);
               return forward ? at->second.forward : at->second.backward;
             },
         .kept_of_pass = [this] { return kept_by_pass(f_.scenario_, *f_.plan_, *f_.programs_); },
         .contention = contention_,
         .waits_before_experts = f_.waits_before_experts()});
    const double blocks_ps = static_cast<double>(run_blocks(transfers, blocks));
    return static_cast<double>(nominal_.run.total) * 1e-12 * blocks_ps / static_cast<double>(nominal_blocks_);
  }

 private:
  using Blocks = std::vector<std::vector<std::int64_t>>;  // [stage][slot]: picoseconds
  static constexpr std::int64_t kMostSamples = 64;

  // Ratio of a layer kind's passes under a draw to the nominal profile, weighted by the nominal times; the
  // last is for embedding and head.
  struct Ratio {
    double nominal_forward = 0, nominal_backward = 0, forward = 1, backward = 1;
  };

  class BlockPasses : public PipelinePasses {
   public:
    BlockPasses(const std::vector<std::vector<PipelineSlot>>& schedule, const Blocks& blocks)
        : blocks_(blocks), next_(schedule.size(), 0) {
      program_.ops.emplace_back();
      program_.ops.back().launches = 0;
      program_.ps.assign(1, 0);
    }
    void run(int stage, const PipelineSlot&, sim::Lockstep& clocks) override {
      const auto s = static_cast<std::size_t>(stage);
      program_.ps[0] = blocks_[s][next_[s]++];
      clocks.run({&program_});
    }

   private:
    const Blocks& blocks_;
    std::vector<std::size_t> next_;
    sim::LockstepProgram program_;
  };

  static Blocks blocks_of(const Timed& timed) { return timed.run.slot_ps; }

  std::int64_t run_blocks(const PipelineTransfers& transfers, const Blocks& blocks) const {
    BlockPasses passes(f_.plan_->schedule, blocks);
    return run_pipeline(f_.plan_->shape, f_.plan_->schedule, transfers, 1, {}, passes, false).total;
  }

  std::vector<Ratio> ratios_of(StepPasses& drawn, Random& random) {
    std::vector<Ratio> ratios(f_.programs_->kinds().size() + 1);
    std::vector<int> with_experts;
    for (std::size_t k = 0; k + 1 < ratios.size(); ++k) {
      const bool moe = f_.programs_->kinds()[k].ffn == LayerKind::Ffn::kMoe;
      // Layers of this kind, to pick from.
      std::vector<int> ordinals;
      for (std::size_t l = 0; l < f_.programs_->kind_of_layer().size(); ++l)
        if (f_.programs_->kind_of_layer()[l] == k) ordinals.push_back(f_.programs_->ordinal(l));
      double forward = 0, backward = 0;
      for (std::int64_t i = 0; i < (moe ? samples_ : 1); ++i) {
        const int ordinal = ordinals[random.below(ordinals.size())];
        const auto microbatch =
            static_cast<int>(random.below(static_cast<std::uint64_t>(f_.scenario_.parallel.microbatches)));
        const StepPasses::Times was = nominal_times(k, ordinal, microbatch),
                                is = drawn.layer_times(k, ordinal, microbatch);
        ratios[k].nominal_forward += static_cast<double>(was.forward);
        ratios[k].nominal_backward += static_cast<double>(was.backward);
        forward += static_cast<double>(is.forward);
        backward += static_cast<double>(is.backward);
      }
      finish(ratios[k], forward, backward);
    }
    const StepPasses::Times was = ends_of(healthy_), is = ends_of(drawn);
    ratios.back().nominal_forward = static_cast<double>(was.forward);
    ratios.back().nominal_backward = static_cast<double>(was.backward);
    finish(ratios.back(), static_cast<double>(is.forward), static_cast<double>(is.backward));
    return ratios;
  }

  static StepPasses::Times ends_of(StepPasses& passes) {
    const StepPasses::Times embedding = passes.embedding_times(), head = passes.head_times();
    return {embedding.forward + head.forward, embedding.backward + head.backward};
  }

  static void finish(Ratio& r, double forward, double backward) {
    if (r.nominal_forward > 0) r.forward = forward / r.nominal_forward;
    if (r.nominal_backward > 0) r.backward = backward / r.nominal_backward;
  }

  StepPasses::Times nominal_times(std::size_t kind, int ordinal, int microbatch) {
    const bool one = f_.routing_.shared() || f_.programs_->kinds()[kind].ffn != LayerKind::Ffn::kMoe;
    if (!one) return healthy_.layer_times(kind, ordinal, microbatch);
    auto [at, added] = nominal_times_.try_emplace(kind);
    if (added) at->second = healthy_.layer_times(kind, ordinal, microbatch);
    return at->second;
  }

  double ratio_of(const PipelineSlot& slot, const std::vector<Ratio>& ratios) const {
    double was = 0, is = 0;
    const auto add = [&](std::int32_t chunk, bool forward) {
      const Chunk& c = f_.plan_->chunks[static_cast<std::size_t>(chunk)];
      const auto one = [&](const Ratio& r) {
        const double weight = forward ? r.nominal_forward : r.nominal_backward;
        was += weight;
        is += weight * (forward ? r.forward : r.backward);
      };
      for (std::size_t i = 0; i < c.layers.size(); ++i) {
        const Ratio& r = ratios[f_.programs_->kind_of_layer()[c.first + i]];
        Ratio each = r;
        // For one layer, however many were sampled.
        const bool moe = c.layers[i].ffn == LayerKind::Ffn::kMoe;
        each.nominal_forward /= static_cast<double>(moe ? samples_ : 1);
        each.nominal_backward /= static_cast<double>(moe ? samples_ : 1);
        one(each);
      }
      if (c.head) one(ratios.back());
    };
    if (slot.kind == PipelineSlot::Kind::kForward || slot.kind == PipelineSlot::Kind::kOverlapped)
      add(slot.chunk, true);
    if (slot.kind == PipelineSlot::Kind::kOverlapped) add(slot.back_chunk, false);
    if (slot.kind != PipelineSlot::Kind::kForward && slot.kind != PipelineSlot::Kind::kOverlapped)
      add(slot.chunk, false);
    return was > 0 ? is / was : 1;
  }

  const StepForecaster& f_;
  const Timed& nominal_;
  const Contention* contention_;
  StepPasses healthy_;
  std::int64_t samples_ = 1;
  Blocks blocks_;
  std::map<std::uint64_t, std::vector<std::int64_t>> alike_;  // times of slots
  std::map<std::size_t, StepPasses::Times> nominal_times_;
  std::int64_t nominal_blocks_ = 1;
};

StepOverload StepForecaster::overload() const {
  return overload_of_step(scenario_, *plan_, *programs_, routing_);
}

StepMemory StepForecaster::memory() const { return memory_of(scenario_, *plan_, *programs_, routing_); }

std::string StepForecaster::recompute_that_fits() const {
  // In ascending order of recomputation cost.
  for (const char* name : {"layernorm", "moe_act", "layernorm+moe_act", "layernorm+moe_act+mla_up_proj",
                           "core_attn+layernorm+moe_act", "core_attn+layernorm+moe", "full"}) {
    Scenario other = scenario_;
    other.training.recompute = StepRecompute::parse(name);
    if (other.training.recompute.latent && other.model.attention.kind != Attention::Kind::kLatent) continue;
    const JobRouting routing(other);
    if (memory_of(other, *plan_, LayerPrograms(other, dispatcher_, routing, placement_, programs_->where()),
                  routing)
            .fits)
      return name;
  }
  return "";
}

Forecast StepForecaster::forecast(const ProgramPricer& nominal, std::span<const ProgramPricer> drawn,
                                  bool slots, const Contention* contention) const {
  DomainReport report;
  const Timed timed = time(nominal, true, true, contention, &report);
  const Parallel& p = scenario_.parallel;
  Forecast f;
  f.overload_report = overload_report(scenario_, *plan_, *programs_, placement_, nominal);
  const double logging_us = f.overload_report.seconds * 1e6;
  const double seconds = static_cast<double>(timed.run.total) * 1e-12 + f.overload_report.seconds;
  f.time_us = Estimate::exact(seconds * 1e6);
  f.healthy_us =
      stage_faults_.empty()
          ? f.time_us.value
          : (static_cast<double>(time(nominal, false, false, contention, nullptr).run.total) * 1e-12 +
             f.overload_report.seconds) *
                1e6;
  if (contention)
    f.network = contention->report(
        static_cast<double>(time(nominal, false, true, nullptr, nullptr).run.total) * 1e-6 + logging_us);
  f.goodput = goodput(scenario_.faults, p.world(), seconds);
  for (std::size_t i = 0; i < sim::kCategories; ++i) f.breakdown_us[i] = timed.run.booked.breakdown[i].us();
  f.breakdown_us[static_cast<std::size_t>(Category::other)] += logging_us;
  f.exposed_comm_us = timed.run.booked.exposed_comm.us();
  f.critical_stage = timed.run.critical_stage;
  f.critical_rank = timed.run.critical_rank;
  f.gpus = p.world();
  f.tokens = tokens();
  // Dropped rows are not work.
  f.dropped_share = dropped_share(moe_program());
  const double lost = f.dropped_share * static_cast<double>(scenario_.model.moe_layers()) *
                      expert_flops_per_token(scenario_.model, scenario_.topk, scenario_.training.lora);
  f.flops =
      f.tokens *
      (training_flops_per_token(scenario_.model, p.seq, scenario_.topk, scenario_.training.lora) - lost) *
      (scenario_.train ? 1 : 1.0 / 3);
  f.memory = memory();
  f.warnings = warnings_;
  const std::vector<std::string> outside = report.lines();
  f.warnings.insert(f.warnings.end(), outside.begin(), outside.end());
  f.outside_domain = report.share();
  f.unmeasured = report.unmeasured();
  if (slots) {
    for (std::size_t s = 0; s < plan_->schedule.size(); ++s)
      for (std::size_t i = 0; i < plan_->schedule[s].size(); ++i) {
        const std::int64_t end = timed.run.slot_end[s][i];
        f.slots.push_back({static_cast<int>(s), plan_->schedule[s][i], end - timed.run.slot_ps[s][i], end});
      }
    f.stage_end = timed.run.stage_end;
    f.layer = LayerForecaster(scenario_, *programs_, routing_, std::nullopt, contention).trace(nominal);
  }
  if (drawn.empty()) return f;
  Draws draws(*this, timed, nominal, contention, drawn.size());
  for (std::size_t d = 0; d < drawn.size(); ++d)
    f.draws_us.push_back(draws.seconds(d, drawn[d]) * 1e6 + logging_us);
  return f;
}

namespace {

bool plain(const std::vector<double>& factors) {
  return std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
}

bool only_jitter(const RankFaults& f) { return plain(f.compute) && plain(f.nvlink) && plain(f.network); }

}  // namespace

std::vector<std::vector<RankFaults>> faults_of_stages(const Scenario& scenario,
                                                      std::vector<std::string>& warnings) {
  std::vector<std::vector<RankFaults>> stages;
  const Faults& faults = scenario.faults;
  if (!faults.slow()) return stages;
  const Parallel& p = scenario.parallel;
  std::int64_t outside = 0;
  for (const Faults::SlowGpu& gpu : faults.slow_gpus) outside += gpu.gpu >= p.world();
  for (const auto* ports : {&faults.nvlinks, &faults.nics})
    for (const Faults::Port& port : *ports) outside += port.gpu >= p.world();
  if (outside > 0) warnings.push_back(fmt::format("faults: {} on GPUs that the plan does not use", outside));
  const Placement placement(scenario);
  for (std::int64_t stage = 0; stage < p.pp; ++stage) {
    std::vector<RankFaults> found;
    for (const std::vector<std::int32_t>& gpus : placement.dispatch_groups(stage)) {
      RankFaults one = RankFaults::of(faults, *scenario.cluster, gpus);
      if (!only_jitter(one) || (one.jitter > 0 && found.empty())) found.push_back(std::move(one));
    }
    // Beside a real fault, jitter alone does not count.
    if (found.size() > 1) std::erase_if(found, only_jitter);
    stages.push_back(std::move(found));
  }
  return stages;
}

}  // namespace moesim::models

#include "models/step/layer_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/input_error.h"
#include "models/dispatchers/parts/balanced.h"
#include "models/dispatchers/parts/common.h"
#include "models/hardware/cluster.h"
#include "models/hardware/gpu_family.h"
#include "models/programs/program_builder.h"
#include "models/routing/expert_placement.h"

namespace moesim::models {

JobRouting::JobRouting(const Scenario& scenario, RoutingCache* cache) : s_(scenario), cache_(cache) {
  if (s_.routing.kind != RoutingSpec::Kind::kFile) return;
  check(s_.routing.file != nullptr, "a routing file was opened");
  of(0, 0, &warnings_);
}

bool JobRouting::shared() const {
  if (s_.model.experts == 0) return true;
  if (s_.routing.kind == RoutingSpec::Kind::kFile) return s_.routing.file->one_for_all();
  return s_.routing.shared || s_.routing.kind == RoutingSpec::Kind::kBalanced ||
         s_.routing.kind == RoutingSpec::Kind::kRoundRobin;
}

Routing JobRouting::of(int ordinal, int microbatch, std::vector<std::string>* warnings) const {
  if (s_.model.experts == 0)  // a dense model: no expert rows
    return Routing::from_counts(1, 1, 1, {s_.parallel.tokens_per_rank()}, {0});
  if (shared()) ordinal = microbatch = 0;
  Routing routing = drawn(ordinal, microbatch, warnings);
  routing.set_group_limit(static_cast<int>(s_.model.routing_groups),
                          static_cast<int>(s_.model.routing_topk_groups));
  if (!s_.placement.given()) return routing;
  // Experts are moved between steps, not between microbatches.
  auto at = placements_.find(ordinal);
  if (at == placements_.end()) {
    const Routing load = microbatch == 0 ? routing : drawn(ordinal, 0, nullptr);
    at = placements_.emplace(ordinal, s_.placement.make(load, static_cast<int>(s_.parallel.ep))).first;
  }
  return placed(routing, at->second);
}

std::vector<std::int64_t> JobRouting::load(int ordinal) const {
  return drawn(shared() ? 0 : ordinal, 0, nullptr).expert_totals();
}

Routing JobRouting::drawn(int ordinal, int microbatch, std::vector<std::string>* warnings) const {
  const Parallel& p = s_.parallel;
  const auto ranks = static_cast<int>(p.dispatch_ranks()), experts = static_cast<int>(s_.model.experts),
             topk = static_cast<int>(s_.topk);
  if (s_.routing.kind == RoutingSpec::Kind::kFile) {
    std::vector<std::string> unheard;
    return s_.routing.file->routing({ranks, static_cast<int>(p.etp), s_.model.experts, s_.topk,
                                     p.tokens_per_rank(), s_.gave("parallel.seq")},
                                    ordinal, microbatch, warnings ? *warnings : unheard);
  }
  return (cache_ ? *cache_ : own_)
      .draw(s_.routing, ranks, p.tokens_per_rank(), experts, topk, s_.seed, ordinal, microbatch);
}

namespace {

MoeLayer moe_layer_of(const Scenario& s, const Routing& routing, const Placement::DispatchClass& where) {
  MoeLayer layer;
  layer.hidden = s.model.expert_width();
  layer.expert_ffn = s.model.expert_ffn;
  layer.shared_ffn = s.model.shared_ffn;
  layer.gated = s.model.gated;
  layer.ep = static_cast<int>(s.parallel.ep);
  layer.etp = static_cast<int>(s.parallel.etp);
  layer.tp = static_cast<int>(s.parallel.tp);
  layer.cp = static_cast<int>(s.parallel.cp);
  const int block = where.block();
  layer.straddles = block == 0;
  // A group inside one domain may have any size up to the domain's.
  layer.ranks_per_node = where.shape.across_domains() ? block : s.cluster->nvlink.domain;
  layer.ranks_per_host = where.block_in_node();
  layer.activation = layer.weight = s.activation;
  layer.router = s.router_dtype;
  layer.recompute = s.training.recompute.of_program();
  layer.train = s.train;
  layer.routing_given = s.routing.kind == RoutingSpec::Kind::kFile;
  layer.placed = s.placement.given();
  layer.fp8 = s.cluster->profile.device().has_precision("fp8");
  layer.own_links = !by_pcie(s.cluster->profile.name());
  layer.microbatches = s.parallel.microbatches;
  layer.gradient_bytes = s.training.gradient_bytes;
  if (s.training.lora.modules == Lora::Modules::kExperts) layer.lora_rank = s.training.lora.rank;
  layer.routing_groups = static_cast<int>(s.model.routing_groups);
  layer.routing_topk_groups = static_cast<int>(s.model.routing_topk_groups);
  layer.routing = &routing;
  return layer;
}

Program without_experts(const Scenario& s) {
  ProgramBuilder b(1, 1, static_cast<int>(s.parallel.tp));
  Program& p = b.program();
  p.tokens = {s.parallel.tokens_per_rank()};
  p.computed_rows = p.balanced_rows = {0};
  return b.finish();
}

}  // namespace

DensePrograms::DensePrograms(const Scenario& s, std::int64_t tokens, std::int64_t experts) : model_(s.model) {
  model_.experts = experts;
  context_.model = &model_;
  context_.parallel = s.parallel;
  context_.tokens = tokens;
  context_.topk = s.topk;
  context_.activation = s.activation;
  context_.router = s.router_dtype;
  context_.recompute = s.training.recompute;
  context_.fp8_attention = s.training.fp8_attention;
  context_.attention = s.training.attention;
  context_.sequence_parallel = s.training.sequence_parallel;
  context_.lora = s.training.lora;
  context_.loss_parallel = s.training.loss_parallel;
  context_.train = s.train;
  const TrainingSettings& plan = s.training;
  if (plan.attention != AttentionKernel::kFlash && (s.parallel.cp > 1 || s.model.attention.index_topk > 0))
    throw InputError(
        fmt::format("training.attention: found {} with {}, expected flash: the framework has no "
                    "unfused kernels for it",
                    name_of(plan.attention), s.parallel.cp > 1 ? "context parallelism" : "sparse attention"));
  if (!plan.sequence_parallel && s.parallel.tp > 1 && experts > 0)
    throw InputError(
        "training.sequence_parallel: found false with experts and tensor parallelism, expected true: "
        "frameworks train experts with sequence parallelism only");
}

const LayerContext& DensePrograms::context(bool shared_expert) const {
  context_.shared_expert = shared_expert;
  return context_;
}

const Program& DensePrograms::before(const LayerKind& kind, bool shared_expert) const {
  for (const Before& known : before_)
    if (known.kind == kind && known.shared_expert == shared_expert) return *known.program;
  before_.push_back(
      {kind, shared_expert, std::make_unique<Program>(before_experts(context(shared_expert), kind))});
  return *before_.back().program;
}

const Program& DensePrograms::after(bool shared_expert) const {
  auto& made = after_[shared_expert ? 1 : 0];
  if (!made) made = std::make_unique<Program>(after_experts(context(shared_expert)));
  return *made;
}

const Program& DensePrograms::embedding() const {
  if (!embedding_) embedding_ = std::make_unique<Program>(embedding_program(context_));
  return *embedding_;
}

const Program& DensePrograms::head() const {
  if (!head_) head_ = std::make_unique<Program>(head_program(context_));
  return *head_;
}

LayerPrograms::LayerPrograms(const Scenario& scenario, const DispatcherSpec& dispatcher,
                             const JobRouting& routing, const Placement& placement,
                             const Placement::DispatchClass& where,
                             std::shared_ptr<const DensePrograms> dense)
    : scenario_(scenario),
      routing_(routing),
      placement_(placement),
      where_(where),
      text_(dispatcher.text()),
      dense_(std::move(dense)) {
  int experts_before = 0;
  for (const LayerKind& kind : layer_stack(scenario.model)) {
    const auto found = std::find(kinds_.begin(), kinds_.end(), kind);
    kind_of_layer_.push_back(static_cast<std::size_t>(found - kinds_.begin()));
    if (found == kinds_.end()) kinds_.push_back(kind);
    ordinals_.push_back(experts_before);
    experts_before += kind.ffn == LayerKind::Ffn::kMoe ? 1 : 0;
  }
  if (scenario.model.experts == 0) {
    // Without MoE layers an empty program with the shape of the tensor-parallel group replaces the
    // dispatcher's.
    Program program = without_experts(scenario);
    shapes_ = std::make_shared<const GroupShapes>(placement, program, where.gpus);
    if (!dense_)
      dense_ = std::make_shared<const DensePrograms>(scenario, scenario.parallel.tokens_per_rank(), 0);
    UnevenLoads loads(program, *shapes_);
    first_ = std::make_shared<const MoeProgram>(MoeProgram{std::move(program), std::move(loads)});
    return;
  }
  made_ = make_dispatcher(dispatcher);
  const Routing sample = routing.of(0, 0);
  MoeLayer layer = moe_layer_of(scenario, sample, where);
  balances_ = without_balance(dispatcher).has_value();
  std::vector<std::int64_t> load;
  if (balances_) load = routing.load(0), layer.load = &load;
  if (const auto rule = models::rule_against(*made_, layer))
    throw InputError(fmt::format("{}: dispatcher {}: {}", dispatcher.origin, text_, *rule));
  Program program = made_->build(layer);
  shapes_ = std::make_shared<const GroupShapes>(placement, program, where.gpus);
  shared_expert_ = !program.runs_shared_expert;
  if (const Lora& lora = scenario.training.lora; lora.rank > 0) {
    const auto refuse = [&](const char* what, const char* expected) {
      throw InputError(fmt::format("training.lora: found {} with dispatcher {}, which {}; expected {}",
                                   lora.rank, text_, what, expected));
    };
    if (balances_) refuse("sums gradients of experts' copies", "one that moves no experts");
    if (!shared_expert_ && lora.modules != Lora::Modules::kAttention)
      refuse("runs the shared expert without adapters", "training.lora_modules attention");
    const auto has_adapters = [](const std::vector<Op>& pass) {
      return std::ranges::any_of(pass, [](const Op& op) { return op.name == kLoraDown; });
    };
    if (layer.lora_rank > 0 && (!has_adapters(program.forward()) || !has_adapters(program.backward())))
      refuse("runs the experts without adapters", "training.lora_modules attention+ffn");
  }
  experts_ = made_->expert_slots(layer);
  if (!dense_)
    dense_ = std::make_shared<const DensePrograms>(scenario, sample.max_tokens(), sample.experts());
  UnevenLoads loads(program, *shapes_);
  first_ = std::make_shared<const MoeProgram>(MoeProgram{std::move(program), std::move(loads)});
}

MoeProgram LayerPrograms::moe(int ordinal, int microbatch) const {
  const Routing routing = routing_.of(ordinal, microbatch);
  MoeLayer layer = moe_layer_of(scenario_, routing, where_);
  std::vector<std::int64_t> load;
  if (balances_) load = routing_.load(ordinal), layer.load = &load;
  Program program = made_->build(layer);
  UnevenLoads loads(program, *shapes_);
  return {std::move(program), std::move(loads)};
}

std::vector<std::unique_ptr<LayerPrograms>> programs_of_classes(const Scenario& scenario,
                                                                const DispatcherSpec& dispatcher,
                                                                const JobRouting& routing,
                                                                const Placement& placement,
                                                                std::shared_ptr<const DensePrograms> dense) {
  std::vector<std::unique_ptr<LayerPrograms>> all;
  for (const Placement::DispatchClass& where : placement.dispatch_classes()) {
    all.push_back(std::make_unique<LayerPrograms>(scenario, dispatcher, routing, placement, where, dense));
    dense = all.front()->dense();
  }
  return all;
}

std::optional<std::string> rule_against(const Scenario& scenario, const DispatcherSpec& dispatcher,
                                        const JobRouting& routing, const Placement& placement) {
  const Routing sample = routing.of(0, 0);
  const std::unique_ptr<Dispatcher> made = make_dispatcher(dispatcher);
  for (const Placement::DispatchClass& where : placement.dispatch_classes())
    if (auto rule = rule_against(*made, moe_layer_of(scenario, sample, where))) return rule;
  return std::nullopt;
}

}  // namespace moesim::models

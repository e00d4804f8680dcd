#include "models/workload/without_effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "models/workload/fields.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

// Only where they were given themselves: --overlap none and --overlap gradients leave them out.
constexpr std::array<std::string_view, 2> kOverlaps{"training.overlap.gradients",
                                                    "training.overlap.parameters"};

class Finder {
 public:
  explicit Finder(const Scenario& s) : s_(s), t_(s.training), p_(s.parallel) {}

  std::vector<WithoutEffect> all() {
    find_sizes();
    find_overlap();
    if (!s_.train) find_training();
    if (s_.model.hidden > 0) find_model();
    return std::move(found_);
  }

 private:
  void add(std::string_view path, std::string found, std::string expected, std::string_view cause = {}) {
    found_.push_back({path, std::move(found), std::move(expected), cause});
  }

  // Returns the ranks that hold the same parameters and sum their gradients.
  bool has_replicas() const { return p_.data_ranks() > 1 || p_.edp() > 1; }
  bool has_copies() const { return s_.placement.slots > 0 || !s_.placement.expert_of.empty(); }

  void find_sizes() {
    if (!t_.sequence_parallel && p_.tp == 1)
      add("training.sequence_parallel", "false with tp 1, whose ranks hold all rows", "tp > 1",
          "parallel.tp");
    if (!t_.loss_parallel && p_.tp == 1)
      add("training.loss_parallel", "false with tp 1, which divides no logits", "tp > 1", "parallel.tp");
    if (t_.stages_inside && p_.pp == 1)
      add("training.rank_order", fmt::format("{} with pp 1, which has no other order", t_.rank_order()),
          "pp > 1", "parallel.pp");
    if (t_.unfolded) find_folding();
    find_placement();
    if (s_.is_step() || p_.pp > 1) return;
    if (t_.pipeline == PipelineKind::kZeroBubble && s_.train)
      add("training.schedule", "zero-bubble with scope layer and pp 1, which has no bubble", "pp > 1",
          "parallel.pp");
    if (p_.microbatches != Parallel().microbatches && p_.vpp == 1 && !has_copies() && !s_.sharding_asked())
      add("parallel.microbatches",
          fmt::format("{} with scope layer and pp 1, where each microbatch is alone", p_.microbatches),
          "pp > 1, or scope step", "parallel.pp");
  }

  // Without copies, a placement by load moves experts between the ranks.
  void find_placement() {
    const PlacementSpec& spec = s_.placement;
    if (!spec.given() || has_copies()) return;
    if (p_.ep == 1)
      add("placement", fmt::format("{} with ep 1, whose ranks hold all experts", spec.text),
          "ep > 1, or slots for copies", "parallel.ep");
    else if (s_.routing.kind == RoutingSpec::Kind::kBalanced)
      add("placement", fmt::format("{} with routing balanced, which loads all experts alike", spec.text),
          "another routing, or slots for copies");
  }

  // Without folding, EP skips the ranks of TP x CP; with ETP = TP and CP 1 it does so anyway.
  void find_folding() {
    const auto add_folding = [&](const std::string& reason, std::string expected, std::string_view cause) {
      add("training.folding", "false with " + reason, std::move(expected), cause);
    };
    if (p_.mesh_ep > 1) return add_folding("a mesh, which places its ep axis itself", "no mesh", {});
    for (const auto& [path, size] :
         {std::pair{std::string_view("parallel.ep"), p_.ep}, {"parallel.cp", p_.cp}})
      if (size == 1)
        return add_folding(
            fmt::format("ep {} and cp {}, which place experts alike with and without it", p_.ep, p_.cp),
            "both above 1", path);
    if (p_.etp != p_.tp)
      return add_folding(fmt::format("etp {} and tp {}", p_.etp, p_.tp),
                         "the same: without folding, experts are split like the dense part", "parallel.tp");
    if (p_.dp % p_.ep != 0)
      add_folding(fmt::format("dp {} and ep {}", p_.dp, p_.ep),
                  "a multiple of ep: without folding, EP lies inside DP", "parallel.ep");
  }

  void find_overlap() {
    const StepOverlap& o = t_.overlap;
    const bool sends = s_.model.experts == 0 || p_.dispatch_ranks() > 1;  // dense models: find_model()
    if (o.expert_communication && !sends)
      add("training.overlap.expert_communication",
          fmt::format("true with etp {} x ep {}, which send nothing", p_.etp, p_.ep), "ep > 1",
          "parallel.ep");
    const bool beside =
        (o.expert_communication && sends && s_.model.experts > 0) || t_.pipeline == PipelineKind::kDualPipe ||
        std::ranges::any_of(s_.dispatchers,
                            [](const DispatcherSpec& d) { return d.options.contains("batch_overlap"); });
    if (o.delayed_wgrad && !beside)
      add("training.overlap.delayed_wgrad", "true without passes beside each other",
          "training.overlap.expert_communication, schedule dualpipe or a dispatcher with batch_overlap");
    if (!s_.train || has_replicas()) {
      if (o.parameters || t_.shampoo || t_.muon || !s_.train) return;
      const auto whole = [&](const std::optional<ShardingScheme>& scheme) {
        return scheme.value_or(t_.sharding) == ShardingScheme::kDdp;
      };
      if (whole(t_.sharding) && whole(t_.router_sharding) && whole(t_.expert_sharding))
        add("training.overlap.parameters", "false with ddp, which gathers no parameters",
            "zero1, fsdp or hsdp");
      return;
    }
    for (const auto& [path, on] : {std::pair{kOverlaps[0], o.gradients}, {kOverlaps[1], o.parameters}})
      if (!on) add(path, "false with one replica, which sends neither", "dp > 1", "parallel.dp");
  }

  // A forward pass keeps nothing for backward and has no gradients and no optimizer.
  void find_training() {
    const auto add_trained = [&](std::string_view path, std::string value) {
      add(path, std::move(value) + " without training", "it with training");
    };
    // Weights are whole under ddp and zero1.
    const auto whole = [](ShardingScheme scheme) {
      return scheme == ShardingScheme::kDdp || scheme == ShardingScheme::kZero1;
    };
    if (whole(t_.sharding) && !s_.mesh.given) {
      if (t_.sharding == ShardingScheme::kDdp) add_trained("training.sharding", "ddp");
      if (t_.router_sharding && whole(*t_.router_sharding))
        add_trained("training.router_sharding", std::string(name_of(*t_.router_sharding)));
      if (t_.expert_sharding && whole(*t_.expert_sharding))
        add_trained("training.expert_sharding", std::string(name_of(*t_.expert_sharding)));
    }
    if (t_.recompute.any()) add_trained("training.recompute", t_.recompute.text());
    if (t_.pipeline == PipelineKind::kZeroBubble) add_trained("training.schedule", "zero-bubble");
    if (!t_.foreach) add_trained("training.foreach", "false");
    if (t_.optimizer != OptimizerTypes()) add_trained("training.optimizer_dtypes", t_.optimizer.text());
    if (t_.gradient_bytes != TrainingSettings().gradient_bytes)
      add_trained("training.gradient_bytes", std::to_string(t_.gradient_bytes));
    if (t_.overload.report != OverloadLog::Report::kNone)
      add_trained("training.overload.report", std::string(name_of(t_.overload.report)));
    if (t_.overlap.expert_communication) add_trained("training.overlap.expert_communication", "true");
    if (t_.overlap.delayed_wgrad) add_trained("training.overlap.delayed_wgrad", "true");
    if (!t_.overlap.gradients) add_trained("training.overlap.gradients", "false");
    if (!t_.overlap.parameters) add_trained("training.overlap.parameters", "false");
  }

  void find_model() {
    const Architecture& m = s_.model;
    const auto add_lacking = [&](std::string_view path, std::string_view value, const char* lacks) {
      add(path, fmt::format("{} with model {}, which has no {}", value, m.name, lacks),
          fmt::format("a model with {}", lacks));
    };
    const auto add_part = [&](std::string_view path, std::int64_t value, const char* lacks) {
      if (s_.origins.find(path)) add_lacking(path, std::to_string(value), lacks);
    };
    if (!m.has_dense_ffn()) add_part("model.dense_ffn", m.dense_ffn, "dense FFN");
    if (m.routing_groups <= 1) add_part("model.routing_topk_groups", m.routing_topk_groups, "routing groups");
    if (m.experts > 0) return;
    constexpr const char* kExperts = "experts";
    add_part("model.dense_layers", m.dense_layers, kExperts);
    add_part("model.moe_every", m.moe_every, kExperts);
    add_part("model.shared_ffn", m.shared_ffn, kExperts);
    add_part("model.latent", m.latent, kExperts);
    if (m.routing_groups > 1) add_part("model.routing_groups", m.routing_groups, kExperts);
    if (s_.router_dtype != Scenario().router_dtype)
      add_lacking("router_dtype", name_of(s_.router_dtype), kExperts);
    if (t_.fused_kernels && t_.gemm == DType::kBf16)
      add("training.fused_kernels", fmt::format("true with model {}, which has no experts, in bf16", m.name),
          "experts, or a precision whose conversions it fuses");
    if (t_.overload.report != OverloadLog::Report::kNone)
      add_lacking("training.overload.report", name_of(t_.overload.report), kExperts);
    if (t_.router_sharding) add_lacking("training.router_sharding", name_of(*t_.router_sharding), kExperts);
    if (t_.expert_sharding) add_lacking("training.expert_sharding", name_of(*t_.expert_sharding), kExperts);
    if (t_.overlap.expert_communication)
      add_lacking("training.overlap.expert_communication", "true", kExperts);
  }

  const Scenario& s_;
  const TrainingSettings& t_;
  const Parallel& p_;
  std::vector<WithoutEffect> found_;
};

}  // namespace

std::string WithoutEffect::message() const {
  return fmt::format("{}: found {}; expected {}", path, found, expected);
}

std::vector<WithoutEffect> without_effect(const Scenario& sized) {
  std::vector<WithoutEffect> all = Finder(sized).all();
  std::erase_if(all, [&](const WithoutEffect& one) {
    return std::ranges::find(kOverlaps, one.path) != kOverlaps.end() && !sized.gave(one.path);
  });
  return all;
}

void drop_without_effect(Scenario& sized) {
  static const Scenario kNothingSaid;
  // A dropped value may leave another one without effect.
  for (bool dropped = true; dropped;) {
    dropped = false;
    for (const WithoutEffect& one : without_effect(sized)) {
      const Field* field = find_field(one.path);
      if (!field) continue;  // a part of the model stays
      field->take(sized, kNothingSaid);
      sized.given.reset(index_of(*field));
      sized.origins.erase(one.path);
      dropped = true;
    }
  }
}

}  // namespace moesim::models

#include "models/answers/fitting_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

// Settings that lower memory together; one of a kind is enough.
struct Relief {
  std::string_view kind;
  std::vector<std::pair<std::string_view, std::string>> settings;  // path and value

  std::string options() const {
    std::vector<std::string> words;
    for (const auto& [path, value] : settings)
      words.push_back(fmt::format("{} {}", find_field(path)->flag, value));
    return join(words, " ");
  }
  // Returns whether they change anything.
  bool apply(Scenario& s) const {
    bool changed = false;
    for (const auto& [path, value] : settings) {
      const Field& field = *find_field(path);
      const auto before = field.write(s);
      set_field(field, s, value);
      changed = changed || field.write(s) != before;
    }
    return changed;
  }
};

std::vector<Relief> reliefs_of(const Scenario& s) {
  std::vector<Relief> all;
  const auto add = [&](std::string_view path, const std::vector<std::string>& values) {
    for (const std::string& value : values) all.push_back({path, {{path, value}}});
  };
  const Parallel& p = s.parallel;
  if (!s.is_step()) {
    for (std::int64_t pp = p.pp + 1; pp <= s.model.layers; ++pp)
      if (s.fewest_gpus || p.world() / (p.tp * p.cp) % pp == 0) add("parallel.pp", {std::to_string(pp)});
    return all;
  }
  add("training.recompute", {"layernorm", "moe_act", "layernorm+moe_act"});
  if (s.model.attention.kind == Attention::Kind::kLatent)
    add("training.recompute", {"mla_up_proj", "layernorm+moe_act+mla_up_proj"});
  add("training.recompute", {"layernorm+moe_act+moe", "full"});
  if (s.training.optimizer.bytes() > OptimizerTypes::parse("fp32,bf16,bf16").bytes())
    add("training.optimizer_dtypes", {"fp32,bf16,bf16"});
  add("training.gradient_bytes", {"2"});
  add("training.sharding", {"zero1", "fsdp"});
  if (s.training.offload == Offload::kNone)
    add("training.offload", {"optimizer", "activations", "optimizer+activations"});
  for (std::int64_t ep = 2 * p.ep; ep <= std::min(8 * p.ep, s.model.experts); ep *= 2)
    add("parallel.ep", {std::to_string(ep)});
  for (std::int64_t micro = p.micro_batch / 2; micro >= 1; micro /= 2)
    if (p.micro_batch % micro == 0)
      all.push_back({"parallel.micro_batch",
                     {{"parallel.micro_batch", std::to_string(micro)},
                      {"parallel.microbatches", std::to_string(p.microbatches * (p.micro_batch / micro))}}});
  if (s.training.gemm == DType::kBf16) add("training.precision", {"fp8", "mxfp8"});
  return all;
}

}  // namespace

FittingChange cheapest_fitting_change(const Scenario& scenario, const DispatcherSpec& dispatcher,
                                      const PlanRules& refused) {
  const std::vector<Relief> reliefs = reliefs_of(scenario);
  const PlanLimits limits{refused};
  FittingChange best;
  PriceCache prices;
  const auto attempt = [&](const Relief& first, const Relief* second) {
    Scenario s = scenario;
    s.dispatchers = {dispatcher};
    if (s.is_step()) s.give("parallel.dp");
    if (!first.apply(s) || (second && !second->apply(s))) return;
    // A layer's nodes follow from its plan where their number is open.
    if (!s.is_step() && s.fewest_gpus)
      s.cluster = std::make_shared<const Cluster>(
          s.cluster->holding(scenario.parallel.world() / scenario.parallel.pp * s.parallel.pp));
    const PlanTrial trial = try_plan(std::move(s), limits, prices);
    if (trial.fate != PlanTrial::Fate::kIllegal) ++best.tried;
    if (trial.fate != PlanTrial::Fate::kForecast) return;
    const double seconds = trial.per_token * trial.tokens;
    if (best.fitting++ > 0 && seconds >= best.seconds) return;
    best.options = second ? first.options() + " " + second->options() : first.options();
    best.seconds = seconds;
  };
  for (const Relief& relief : reliefs) {
    attempt(relief, nullptr);
    if (!scenario.is_step() && best.fitting > 0) return best;
  }
  for (std::size_t i = 0; i < reliefs.size() && best.fitting == 0 && scenario.is_step(); ++i)
    for (std::size_t j = i + 1; j < reliefs.size(); ++j)
      if (reliefs[i].kind != reliefs[j].kind) attempt(reliefs[i], &reliefs[j]);
  return best;
}

}  // namespace moesim::models

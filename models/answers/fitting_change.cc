#include "models/answers/fitting_change.h"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "models/answers/plan_search.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

// One option that lowers memory; apply() returns false where it does not apply to the scenario.
struct Relief {
  std::string options;
  std::function<bool(Scenario&)> apply;
};

std::vector<Relief> reliefs_of(const Scenario& given) {
  std::vector<Relief> all;
  const auto add = [&](std::string options, std::function<bool(Scenario&)> apply) {
    all.push_back({std::move(options), std::move(apply)});
  };
  for (const char* name : {"layernorm", "moe_act", "layernorm+moe_act", "mla_up_proj",
                           "layernorm+moe_act+mla_up_proj", "layernorm+moe_act+moe", "full"})
    add(fmt::format("--recompute {}", name), [name](Scenario& s) {
      const StepRecompute again = StepRecompute::parse(name);
      if (again == s.training.recompute) return false;
      if (again.latent && s.model.attention.kind != Attention::Kind::kLatent) return false;
      s.training.recompute = again;
      return true;
    });
  add("--optimizer-dtypes fp32,bf16,bf16", [](Scenario& s) {
    const OptimizerTypes types = OptimizerTypes::parse("fp32,bf16,bf16");
    if (types.bytes() >= s.training.optimizer.bytes()) return false;
    s.training.optimizer = types;
    return true;
  });
  if (given.is_step())
    add("--gradient-bytes 2", [](Scenario& s) {
      if (s.training.gradient_bytes == 2) return false;
      s.training.gradient_bytes = 2;
      return true;
    });
  for (const char* name : {"zero1", "fsdp"})
    add(fmt::format("--sharding {}", name), [name](Scenario& s) {
      const ShardingScheme was = s.training.sharding;
      s.training.set_sharding(name);
      return was == ShardingScheme::kDdp ||
             (was == ShardingScheme::kZero1 && s.training.sharding == ShardingScheme::kFsdp);
    });
  if (given.is_step())
    for (const char* name : {"optimizer", "activations", "optimizer+activations"})
      add(fmt::format("--offload {}", name), [name](Scenario& s) {
        const bool nothing = s.training.offload == Offload::kNone;
        s.training.offload = named<Offload>("offload", name);
        return nothing;
      });
  for (const std::int64_t times : {2, 4, 8}) {
    const std::int64_t ep = given.parallel.ep * times;
    if (ep <= given.model.experts)
      add(fmt::format("--ep {}", ep), [ep](Scenario& s) {
        s.parallel.ep = ep;
        return true;
      });
  }
  for (std::int64_t micro = given.parallel.micro_batch / 2; micro >= 1; micro /= 2)
    if (given.parallel.micro_batch % micro == 0)
      add(fmt::format("--micro-batch {} --microbatches {}", micro,
                      given.parallel.microbatches * (given.parallel.micro_batch / micro)),
          [micro](Scenario& s) {
            s.parallel.microbatches *= s.parallel.micro_batch / micro;
            s.parallel.micro_batch = micro;
            return true;
          });
  for (const char* name : {"fp8", "mxfp8"})
    add(fmt::format("--precision {}", name), [name](Scenario& s) {
      if (s.training.gemm != DType::kBf16) return false;
      s.training.set_precision(name);
      return s.cluster->profile.device().peak_flops[static_cast<std::size_t>(s.training.gemm)] > 0;
    });
  return all;
}

}  // namespace

FittingChange cheapest_fitting_change(const Scenario& scenario, const DispatcherSpec& dispatcher) {
  const std::vector<Relief> reliefs = reliefs_of(scenario);
  FittingChange best;
  PriceCache prices;
  const auto attempt = [&](const Relief& first, const Relief* second) {
    try {
      Scenario s = scenario;
      s.give("parallel.dp");
      if (!first.apply(s) || (second && !second->apply(s))) return;
      s.resolve();
      ++best.tried;
      const QuickAnswer answer(s, dispatcher, prices);
      if (!answer.memory().fits) return;
      ++best.fitting;
      const double seconds = answer.seconds();
      if (!best.options.empty() && seconds >= best.seconds) return;
      best.options = second ? first.options + " " + second->options : first.options;
      best.seconds = seconds;
    } catch (const InputError&) {  // the plan or the dispatcher forbids it
    }
  };
  for (const Relief& relief : reliefs) attempt(relief, nullptr);
  if (best.fitting > 0) return best;
  const auto word = [](const Relief& r) { return r.options.substr(0, r.options.find(' ')); };
  for (std::size_t i = 0; i < reliefs.size(); ++i)
    for (std::size_t j = i + 1; j < reliefs.size(); ++j)
      if (word(reliefs[i]) != word(reliefs[j])) attempt(reliefs[i], &reliefs[j]);
  return best;
}

}  // namespace moesim::models

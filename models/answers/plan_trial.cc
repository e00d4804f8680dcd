#include "models/answers/plan_trial.h"

#include <fmt/format.h>

#include "base/input_error.h"
#include "models/answers/decision.h"

namespace moesim::models {

namespace {

// Throws the rule by which a graph of the whole iteration cannot hold a plan in which the host waits. HybridEP
// and NCCL EP store rows beyond their static budgets there (Megatron-Bridge 26.06), the others need the counts
// on the host.
void check_graph(const Scenario& s, const MoeProgram& moe) {
  const std::string& name = s.dispatchers.front().name;
  if (s.training.launch == LaunchMode::kGraphs && name != "flex-hybridep" && name != "nccl-ep" &&
      moe.program.host_syncs(moe.program.forward()) + moe.program.host_syncs(moe.program.backward()) > 0)
    throw InputError(
        fmt::format("launch graphs: {} waits for the host in every layer, which a graph of the whole "
                    "iteration cannot",
                    name));
}

PlanTrial tried(Scenario scenario, const PlanLimits* limits, bool measured, PriceCache& prices) {
  PlanTrial trial;
  try {
    Scenario plan = resolved_plan(std::move(scenario));
    if (limits && limits->refused && !(trial.rule = limits->refused(plan)).empty()) return trial;
    const QuickAnswer answer(std::move(plan), prices);
    if (measured && !answer.measured_exchanges()) {
      trial.unmeasured = answer.scenario().dispatchers.front().name;
      throw InputError(fmt::format("dispatcher {}: its dispatch kernel was never measured on this machine",
                                   trial.unmeasured));
    }
    if (limits) check_graph(answer.scenario(), answer.moe());
    if (limits && limits->under_memory && !surely_fits(answer.memory())) {
      trial.fate = PlanTrial::Fate::kTooLarge;
    } else {
      trial.tokens = answer.tokens();
      trial.per_token = answer.seconds() / trial.tokens;
      trial.fate = PlanTrial::Fate::kForecast;
    }
  } catch (const InputError& error) {
    trial.rule = error.what();
  }
  return trial;
}

}  // namespace

bool surely_fits(const StepMemory& memory) { return memory.fits_probability >= Decision::kSure; }

Scenario resolved_plan(Scenario s) {
  s.resolve();
  if (s.dispatchers.size() > 1) s.dispatchers.resize(1);
  return s;
}

PlanTrial try_plan(Scenario scenario, const PlanLimits& limits, PriceCache& prices) {
  return tried(std::move(scenario), &limits, limits.measured, prices);
}

PlanTrial time_plan(Scenario scenario, bool measured, PriceCache& prices) {
  return tried(std::move(scenario), nullptr, measured, prices);
}

}  // namespace moesim::models

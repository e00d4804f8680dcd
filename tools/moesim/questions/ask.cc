#include "tools/moesim/questions/ask.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/input_error.h"
#include "models/answers/priced_draws.h"
#include "models/hardware/cluster.h"
#include "replay/recording/recorded_routing.h"
#include "tools/moesim/read/argument_checks.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

models::PlanRules framework_rules(int version, std::optional<JobFramework> framework) {
  return [=](const models::Scenario& plan) { return refusal_of(plan, framework, version); };
}

models::ResolveOptions resolving(const CommonOptions& common, std::optional<JobFramework> framework) {
  models::ResolveOptions o;
  o.threads = common.threads;
  o.open_routing = replay::open_routing;
  o.refused = framework_rules(0, framework);
  return o;
}

models::Resolved settle(const Question& question, const CommonOptions& common) {
  models::Resolved resolved = models::resolve(question, resolving(common));
  if (!resolved.error.empty()) throw InputError(resolved.error);
  models::check_effects(question, resolved);
  return resolved;
}

Comparison ask(models::Scenario scenario, const models::AnswerOptions& options) {
  replay::open_routing(scenario.routing);
  models::AnswerOptions with_rules = options;
  with_rules.refused = framework_rules();
  return models::answer(std::move(scenario), with_rules);
}

Base Base::of(Question question, const CommonOptions& common, bool plan,
              std::optional<JobFramework> framework) {
  models::ResolveOptions options = resolving(common, framework);
  options.plan = plan;
  models::Resolver resolver(std::move(options));
  models::Resolved resolved = resolver.resolve(question);
  if (plan) models::check_effects(question, resolved);
  return {std::move(question), std::move(resolver), std::move(resolved), plan};
}

Base Base::with(Question other, const std::vector<ScenarioPath>& changed) const {
  models::Resolver again = resolver;
  models::Resolved found = again.resolve(other);
  if (planned) models::check_effects(other, found, &changed);
  return {std::move(other), std::move(again), std::move(found), planned};
}

Asker::Asker(const Base& base, std::vector<ScenarioPath> paths)
    : paths_(paths),
      planned_(base.planned),
      changes_(base.question, std::move(paths), Origin::said("--set")),
      resolver_(base.resolver),
      prices_(std::make_unique<models::PriceCache>()),
      routings_(std::make_unique<models::RoutingCache>()) {}
Asker::~Asker() = default;
Asker::Asker(Asker&&) noexcept = default;

models::Resolved Asker::resolve(const std::vector<PathValue>& values) {
  const Question question = changes_.make(values);
  models::Resolved resolved = resolver_.resolve(question);
  if (!resolved.error.empty()) throw InputError(resolved.error);
  models::check_effects(question, resolved, planned_ ? &paths_ : nullptr);
  return resolved;
}

Comparison Asker::ask(const std::vector<PathValue>& values, models::AnswerOptions options) {
  models::Scenario scenario = resolve(values).scenario;
  options.each = true;
  // Prices are cached by the machine, which the plan makes anew where its nodes are open.
  const bool open = scenario.cluster && (scenario.gpus_open() || scenario.gpus > 0) &&
                    scenario.cluster->node_count != models::Cluster::NodeCount::kGiven;
  options.prices = open ? nullptr : prices_.get();
  options.routings = routings_.get();
  return tools::ask(std::move(scenario), options);
}

std::string chosen_text(const models::Resolved& resolved) {
  std::string text;
  if (const models::ChosenPlan& chosen = resolved.chosen; !chosen.options.empty())
    text = fmt::format("plan chosen: {} ({})\n", chosen.options, chosen.because);
  for (const std::string& note : resolved.notes) text += note + "\n";
  return text;
}

void show_chosen(const models::Resolved& resolved, const CommonOptions& common) {
  if (common.format != Format::kTable) return;
  if (const std::string text = chosen_text(resolved); !text.empty())
    print(wrapped(text, sentence_columns(), 2) + "\n");
}

}  // namespace moesim::tools

#include "tools/moesim/questions/ask.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "models/answers/priced_draws.h"
#include "replay/recording/routing_from_dispatching.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

namespace {

models::AnswerOptions answering(const AskOptions& options) {
  models::AnswerOptions o;
  o.draws = options.draws;
  o.breakdown = options.breakdown;
  o.tolerance = options.tolerance;
  o.measured = options.measured;
  o.anchor = options.anchor;
  o.each = true;
  return o;
}

}  // namespace

models::ResolveOptions resolving(const CommonOptions& common) {
  models::ResolveOptions o;
  o.threads = common.threads;
  o.open_routing = replay::open_routing;
  return o;
}

models::Resolved settle(const Question& question, const CommonOptions& common) {
  return models::resolve(question, resolving(common));
}

Comparison ask(models::Scenario scenario, const models::AnswerOptions& options) {
  replay::open_routing(scenario.routing);
  return models::answer(std::move(scenario), options);
}

Comparison ask(models::Scenario scenario, const AskOptions& options) {
  return ask(std::move(scenario), answering(options));
}

Base Base::of(Question question, const CommonOptions& common, bool plan) {
  models::ResolveOptions options = resolving(common);
  options.plan = plan;
  models::Resolver resolver(std::move(options));
  models::Resolved resolved = resolver.resolve(question);
  return {std::move(question), std::move(resolver), std::move(resolved)};
}

Base Base::with(Question other) const {
  models::Resolver again = resolver;
  models::Resolved found = again.resolve(other);
  return {std::move(other), std::move(again), std::move(found)};
}

Asker::Asker(const Base& base, std::vector<ScenarioPath> paths)
    : changes_(base.question, std::move(paths), Origin::said("--set")),
      resolver_(base.resolver),
      prices_(std::make_unique<models::PriceCache>()),
      routings_(std::make_unique<models::RoutingCache>()) {}
Asker::~Asker() = default;
Asker::Asker(Asker&&) noexcept = default;

models::Resolved Asker::resolve(const std::vector<PathValue>& values) {
  return resolver_.resolve(changes_.make(values));
}

Comparison Asker::ask(const std::vector<PathValue>& values, const AskOptions& options) {
  models::Scenario scenario = resolve(values).scenario;
  models::AnswerOptions o = answering(options);
  // Prices are cached by the machine, which the plan creates where none is named.
  o.prices = scenario.cluster ? prices_.get() : nullptr;
  o.routings = routings_.get();
  return tools::ask(std::move(scenario), o);
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

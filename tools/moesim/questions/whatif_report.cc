#include "tools/moesim/questions/whatif_report.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "models/dispatchers/dispatcher.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/machine_text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

using nlohmann::ordered_json;

namespace {

ordered_json figures_or_error(const Answer& a) {
  return a.ok() ? figures_json(a) : ordered_json{{"dispatcher", a.dispatcher}, {"error", a.error}};
}

}  // namespace

ordered_json evaluation_json(const Comparison& e) {
  ordered_json j;
  j["dispatchers"] = ordered_json::array();
  for (const Answer& a : e.answers) j["dispatchers"].push_back(figures_or_error(a));
  if (const Answer* shortest = e.shortest()) {
    j["fastest"] = shortest->dispatcher;
    j["probability"] = or_null(e.decision.probability_of(e.decision.shortest));
    j["verdict"] = models::name_of(e.decision.verdict);
    j["recommendation"] = recommendation_json(e);
  }
  return j;
}

ordered_json whatif_result(const Base& base, const std::vector<std::string>& warnings,
                           const CommonOptions& common) {
  ordered_json result = envelope("whatif", describe_inputs(common, base.resolved.scenario), warnings);
  add_model(result, base.resolved.scenario);
  return result;
}

void print_asked(const Base& base) {
  print_text("\n" + asked_text(base.resolved.scenario) + "\n" + chosen_text(base.resolved), 2);
}

std::vector<std::string> many_to_act_on(const std::vector<std::string>& warnings, const Base& base) {
  std::vector<std::string> kept = warnings;
  // A map over machines has none of its own.
  if (const auto& cluster = base.resolved.scenario.cluster) kept = to_act_on(warnings, *cluster, {});
  std::erase_if(kept, [](const std::string& warning) {
    return std::ranges::any_of(models::dispatcher_registry(), [&](const auto& known) {
      return warning.starts_with(fmt::format("{}:", known.name));
    });
  });
  return kept;
}

std::string change_text(const models::Estimate& ratio) {
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * (ratio.value - 1), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1));
}

}  // namespace moesim::tools

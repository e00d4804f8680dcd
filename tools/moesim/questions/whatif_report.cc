#include "tools/moesim/questions/whatif_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/moesim/questions/inputs.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

using nlohmann::ordered_json;

ordered_json answer_json(const Answer& a) {
  ordered_json j{{"dispatcher", a.dispatcher}};
  if (!a.ok()) {
    j["error"] = a.error;
    return j;
  }
  j["time_us"] = estimate_json(a.time_us);
  ordered_json parts = ordered_json::object();
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    if (a.breakdown_us[c] > 0)
      parts[std::string(sim::name(static_cast<sim::Category>(c)))] = a.breakdown_us[c];
  j["breakdown_us"] = std::move(parts);
  j["gpus"] = a.gpus;
  j["tokens"] = a.tokens;
  j["tokens_per_s_per_gpu"] = a.tokens_per_s_per_gpu();
  if (a.mfu > 0) j["mfu"] = a.mfu;
  j["peak_memory_bytes"] = {{"max", a.memory.max_bytes}};
  j["fits"] = a.memory.fits;
  if (a.cost > 0) {
    j["cost"] = a.cost;
    j["cost_per_million_tokens"] = a.cost_per_million_tokens();
  }
  if (!a.not_ranked.empty()) j["not_ranked"] = a.not_ranked;
  return j;
}

ordered_json evaluation_json(const Evaluation& e) {
  ordered_json j;
  j["dispatchers"] = ordered_json::array();
  for (const Answer& a : e.answers) j["dispatchers"].push_back(answer_json(a));
  if (const Answer* best = e.winner()) {
    j["fastest"] = best->dispatcher;
    j["probability"] = e.decision.probability;
    j["verdict"] = models::name_of(e.decision.verdict);
  }
  return j;
}

ordered_json whatif_inputs(const ScenarioDocument& base, const CommonOptions& common,
                           const std::vector<ScenarioDocument>& changed) {
  ordered_json inputs = describe_inputs(common);
  inputs["scenario"] = models::to_json(base.scenario());
  const auto add = [&](const ScenarioDocument& document) {
    const models::Scenario s = document.scenario();
    for (const std::filesystem::path& file : s.files) add_input_file(inputs, file);
    if (s.routing.kind == models::RoutingSpec::Kind::kFile) add_input_file(inputs, s.routing.path);
  };
  add(base);
  for (const ScenarioDocument& document : changed) add(document);
  return inputs;
}

std::string change_text(const models::Estimate& ratio) {
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * (ratio.value - 1), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1));
}

}  // namespace moesim::tools

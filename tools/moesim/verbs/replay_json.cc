#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/answers/sentences.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/replay_answer.h"

namespace moesim::tools {

using replay::RecordingForecast;

namespace {

nlohmann::ordered_json attribution_json(const replay::Attribution& attribution) {
  nlohmann::ordered_json out;
  out["rule"] =
      "causes are taken away in this order and stay away; each accounts for what the iteration loses at its "
      "turn";
  out["shares_us"] = nlohmann::ordered_json::object();
  for (const auto& share : attribution.shares) out["shares_us"][std::string(name(share.cause))] = share.us;
  const auto list = [](const std::vector<replay::Waiting>& waits, const char* what) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& wait : waits)
      rows.push_back({{what, wait.index}, {"stage", wait.stage}, {"others_wait_us", wait.us}});
    return rows;
  };
  out["ranks"] = list(attribution.ranks, "rank");
  out["layers"] = list(attribution.layers, "layer");
  return out;
}

nlohmann::ordered_json critical_path_json(const replay::Iteration& iteration) {
  nlohmann::ordered_json path = nlohmann::ordered_json::array();
  for (const auto& step : iteration.timeline.critical_path(iteration.graph)) {
    nlohmann::ordered_json one{{"rank", iteration.graph.rank(step.task).value()},
                               {"task", iteration.graph.label(step.task).name},
                               {"from_us", step.from.us()},
                               {"to_us", step.to.us()},
                               {"waited_for", sim::name(step.cause)}};
    const std::uint32_t origin = iteration.graph.origin(step.task);
    if (origin < iteration.origins.size()) one["recorded_at"] = iteration.origins[origin].str();
    path.push_back(std::move(one));
  }
  return path;
}

nlohmann::ordered_json held_json(const models::RankMemory& held) {
  return {{"parameters_bytes", held.parameters}, {"gradients_bytes", held.gradients},
          {"optimizer_bytes", held.optimizer},   {"activations_bytes", held.activations},
          {"transient_bytes", held.transient},   {"persistent_bytes", held.persistent}};
}

constexpr const char* kAssumedMemory =
    "bf16 weights and activations, gradients and Adam's states in fp32 on every replica";

nlohmann::ordered_json memory_json(const replay::RecordedMemory& memory) {
  nlohmann::ordered_json out{{"dispatcher", memory.dispatcher},
                             {"assumed", kAssumedMemory},
                             {"total_bytes", memory.step.max_bytes},
                             {"limit_bytes", memory.step.limit_bytes},
                             {"fits", memory.step.fits},
                             {"stage", memory.step.stage}};
  out["stages"] = nlohmann::ordered_json::array();
  for (const models::StageMemory& stage : memory.step.stages) {
    out["stages"].push_back(held_json(stage.bytes));
    out["stages"].back().update(
        {{"total_bytes", stage.bytes.total()}, {"moment", stage.moment}, {"in_flight", stage.in_flight}});
  }
  return out;
}

nlohmann::ordered_json effects_json(const RecordingForecast& answer) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < replay::kEffects; ++k) {
    const auto& effect = answer.effects->list()[k];
    nlohmann::ordered_json one{{"name", effect.name}, {"value", effect.value},   {"sigma", effect.sigma},
                               {"unit", effect.unit}, {"source", effect.source}, {"what", effect.what}};
    if (!answer.effect_gains_us.empty()) one["changes_iteration_by_us"] = answer.effect_gains_us[k];
    rows.push_back(std::move(one));
  }
  return rows;
}

}  // namespace

nlohmann::ordered_json replay_json(const RecordingForecast& answer, const nlohmann::ordered_json& inputs,
                                   bool model, bool effects) {
  std::vector<std::string> warnings = answer.warnings;
  if (!answer.held)
    warnings.push_back(
        "peak_memory_bytes is null: a recording of times does not say what a rank held, and the memory "
        "model needs more: " +
        answer.not_held);
  auto result = envelope("replay", inputs, warnings);
  result["iteration_us"] = estimate_json(answer.time_us);
  if (answer.measured_us) result["measured_iteration_us"] = *answer.measured_us;
  result["microbatches"] = answer.microbatches;
  result["topology"] = answer.iteration.topology.str();
  if (answer.tokens > 0) result["tokens_per_s"] = tokens_per_s(answer);
  if (const auto cost = cost_per_million_tokens(answer))
    result["cost_per_million_tokens"] = {{"value", *cost}, {"currency", answer.settings.prices.currency}};
  if (const auto& before = answer.before) {
    result["before"] = {{"iteration_us", before->time_us.value}, {"what", before->what}};
    if (before->tokens > 0) result["before"]["tokens_per_s"] = tokens_per_s(*before);
  }
  result["synthetic"] = answer.synthetic;
  result["recorded_on"] = {{"gpu", answer.recorded_on.gpu},
                           {"told_by", name(answer.recorded_on.told)},
                           {"same_machine", replay::made_on(answer.recorded_on, answer.cluster)}};
  if (!answer.changes.empty()) result["changes"] = answer.changes;
  if (const auto both = replay::compared(std::span(&answer, 1))) {
    result["answer"] = models::sentence(*both);
    result["because"] = models::because(*both);
    result["recommendation"] = recommendation_json(*both);
  }
  result["ranks"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < answer.iteration.timeline.rank_count(); ++r) {
    const auto& rank = answer.iteration.timeline.rank(sim::RankId(static_cast<std::uint32_t>(r)));
    auto& row = result["ranks"].emplace_back(nlohmann::ordered_json{{"rank", r}});
    for (const RankTime& one : kRankTimes) row[one.key] = (rank.*one.time).us();
    row["peak_memory_bytes"] = nullptr;
    if (!answer.held) continue;
    const models::RankMemory& held = answer.held->of(answer.iteration.topology, static_cast<int>(r));
    row["peak_memory_bytes"] = held.total();
    row["memory"] = held_json(held);
  }
  if (answer.held) result["memory"] = memory_json(*answer.held);
  if (answer.held_as_recorded) result["memory_as_recorded"] = memory_json(*answer.held_as_recorded);
  result["ops"] = nlohmann::ordered_json::object();
  for (std::size_t k = 0; k < replay::kStepKinds; ++k) {
    const auto& mean = answer.summary.steps[k];
    if (mean.count > 0)
      result["ops"][std::string(replay::name(static_cast<replay::StepKind>(k)))] = {
          {"count", mean.count}, {"mean_us", mean.mean_us}};
  }
  result["overload"] = nullptr;
  if (answer.overload) {
    auto& overload = result["overload"] = overload_json(answer.overload->stages.back());
    overload["metrics"] = overload_metrics_json(answer.overload->logged);
    overload["entries"] = answer.overload->entries;
    overload["replicas"] = answer.overload->replicas;
  }
  if (answer.network.groups > 0)
    result["network"] = {{"timing", "flow"},
                         {"calibrated_us", answer.network.calibrated_us},
                         {"busiest_link", link_json(answer.network.busiest)}};
  result["attribution"] = attribution_json(answer.attribution);
  result["critical_path"] = critical_path_json(answer.iteration);
  if (model) result["model"] = models::model_summary(answer.settings.model);
  if (effects && answer.effects) result["effects"] = effects_json(answer);
  return result;
}

Table rank_table(const RecordingForecast& answer) {
  const auto ms = [](double us) { return fmt::format("{:.2f}", us / 1e3); };
  const auto cost = cost_per_million_tokens(answer);
  const std::pair<const char*, std::string> iteration[] = {
      {"iteration ms", ms(answer.time_us.value)},
      {"low", ms(answer.time_us.low)},
      {"high", ms(answer.time_us.high)},
      {"measured ms", answer.measured_us ? ms(*answer.measured_us) : ""},
      {"tokens/s", answer.tokens > 0 ? fmt::format("{:.1f}", tokens_per_s(answer)) : ""},
      {"cost per million tokens", cost ? fmt::format("{:.6g}", *cost) : ""}};
  std::vector<Table::Column> columns{{"rank"}};
  for (const RankTime& one : kRankTimes) columns.push_back({one.csv_head});
  for (const auto& [head, cell] : iteration) columns.push_back({head});
  Table table(std::move(columns));
  const auto ranks = answer.iteration.timeline.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::vector<std::string> row{std::to_string(r)};
    for (const RankTime& one : kRankTimes) row.push_back(ms((ranks[r].*one.time).us()));
    for (const auto& [head, cell] : iteration) row.push_back(cell);
    table.row(std::move(row));
  }
  return table;
}

}  // namespace moesim::tools

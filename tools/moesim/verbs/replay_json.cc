#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/answers/sentences.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/replay_answer.h"

namespace moesim::tools {

using replay::RecordingForecast;

using Memory = replay::RecordedMemory;

constexpr const char* kAssumedMemory =
    "bf16 weights and activations, gradients and Adam's states in fp32 on every replica";
constexpr const char* kAttributionRule =
    "causes are taken away in this order and stay away; each accounts for what the iteration loses at its turn";

Columns<models::StageMemory> held_columns() {
  Columns<models::StageMemory> all;
  return all.add(columns_of(Of<models::RankMemory>{}), &models::StageMemory::bytes)
      .add(columns_of(Of<models::StageMemory>{}).some({"total_bytes", "moment", "in_flight"}));
}

Columns<Memory> columns_of(Of<Memory>) {
  const auto step = [](auto member) { return [member](const Memory& m) { return m.step.*member; }; };
  using S = models::StepMemory;
  Columns<Memory> all{{"dispatcher", &Memory::dispatcher},
                      {"assumed", [](const Memory&) { return kAssumedMemory; }},
                      {"total_bytes", step(&S::max_bytes)},
                      {"limit_bytes", step(&S::limit_bytes)},
                      {"fits", step(&S::fits)},
                      {"stage", step(&S::stage)}};
  return all.list("stages", held_columns(), step(&S::stages));
}

Columns<replay::StepMean> columns_of(Of<replay::StepMean>) {
  using M = replay::StepMean;
  return {{"count", &M::count, "", "count"}, {"mean_us", &M::mean_us, "", {"mean ms", 3, 1e-3}}};
}

Columns<replay::Attribution> columns_of(Of<replay::Attribution>) {
  using A = replay::Attribution;
  using W = replay::Waiting;
  Columns<A> all{{"rule", [](const A&) { return kAttributionRule; }},
                 {"shares_us", [](const A& a) {
                    nlohmann::ordered_map<std::string, double> all;
                    for (const replay::TimeShare& share : a.shares)
                      all[std::string(name(share.cause))] = share.us;
                    return all;
                  }}};
  const Columns<W> waits{{"stage", &W::stage}, {"others_wait_us", &W::us}};
  return all.list("ranks", Columns<W>{{"rank", &W::index}}.add(waits), &A::ranks)
      .list("layers", Columns<W>{{"layer", &W::index}}.add(waits), &A::layers);
}

namespace {

using F = RecordingForecast;

// Of a rank; `f`: looked at where there is an answer, as below.
Columns<int> rank_columns(const F* f) {
  const auto held = [f](int r) { return f->held ? &f->held->of(f->iteration.topology, r) : nullptr; };
  const auto peak = [=](int r) { return held(r) ? std::optional(held(r)->total()) : std::nullopt; };
  Columns<int> all{{"rank", [](int r) { return r; }}};
  for (const RankTime& one : kRankTimes) {
    const auto us = [f, &one](int r) {
      return (f->iteration.timeline.ranks()[static_cast<std::size_t>(r)].*one.time).us();
    };
    all.add({{one.key, us}});
  }
  return all.add(
      {{"peak_memory_bytes", peak, "null where the model or the routing is not known"}, {"memory?", held}});
}

std::vector<int> ranks_of(const F& f) {
  std::vector<int> all(f.iteration.timeline.rank_count());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Columns<sim::PathStep> path_columns(const F* f) {
  using S = sim::PathStep;
  const auto recorded_at = [f](const S& s) {
    const std::uint32_t origin = f->iteration.graph.origin(s.task);
    return origin < f->iteration.origins.size() ? std::optional(f->iteration.origins[origin].str())
                                                : std::nullopt;
  };
  return {{"rank", [f](const S& s) { return f->iteration.graph.rank(s.task).value(); }},
          {"task", [f](const S& s) { return f->iteration.graph.label(s.task).name; }},
          {"from_us", [](const S& s) { return s.from.us(); }},
          {"to_us", [](const S& s) { return s.to.us(); }},
          {"waited_for", [](const S& s) { return sim::name(s.cause); }},
          {"recorded_at?", recorded_at}};
}

Columns<replay::Effect> effect_columns(const F* f) {
  using E = replay::Effect;
  const auto gain = [f](const E& e) {
    const auto k = static_cast<std::size_t>(&e - f->effects->list().data());
    return f->effect_gains_us.empty() ? std::nullopt : std::optional(f->effect_gains_us[k]);
  };
  return {{"name", &E::name},
          {"value", &E::value},
          {"sigma", &E::sigma},
          {"unit", &E::unit},
          {"source", &E::source},
          {"what", &E::what},
          {"changes_iteration_by_us?", gain}};
}

// `model`, `effects`: are told.
Columns<F> told_columns(const F* f, bool model, bool effects) {
  const auto both = [](const F& f) { return replay::compared(std::span(&f, 1)); };
  const auto path = [](const F& f) { return f.iteration.timeline.critical_path(f.iteration.graph); };
  const auto ops = [](const F& f) {
    nlohmann::ordered_map<std::string, replay::StepMean> all;
    for (std::size_t k = 0; k < replay::kStepKinds; ++k)
      if (const auto& mean = f.summary.steps[k]; mean.count > 0)
        all[std::string(replay::name(static_cast<replay::StepKind>(k)))] = mean;
    return all;
  };
  const auto summary = [=](const F& f) {
    return model ? std::optional(models::model_summary(f.settings.model)) : std::nullopt;
  };
  const Columns<models::Comparison> comparison{
      {"answer", models::sentence,
       "where another dispatcher was asked for than the recorded one: which of both to run and what that can "
       "cost, one sentence"},
      {"because", models::because, "where the times of both differ: one sentence"},
      {"recommendation", recommendation()}};
  Columns<F> constants;
  constants.list(
      "effects", effect_columns(f), [](const F& f) -> const auto& { return f.effects->list(); });
  return job_columns()
      .add(comparison, both)
      .list("ranks", rank_columns(f), ranks_of)
      .add({{"memory?", &F::held, "what the fullest rank holds, by the memory model of compare"},
            {"memory_as_recorded?", &F::held_as_recorded},
            {"ops", ops},
            {"overload", &F::overload,
             "of the experts' ranks; null where neither calls nor a routing show the rows"},
            {"network?",
             {{"timing", [](const F&) { return "flow"; }},
              {"calibrated_us", [](const F& f) { return f.network.calibrated_us; }},
              {"busiest_link", [](const F& f) { return f.network.busiest; }}},
             "",
             [](const F& f) { return f.network.groups > 0; }},
            {"attribution", &F::attribution}})
      .list("critical_path", path_columns(f), path)
      .add({{"model?", summary, as_in("model-summary.schema.json")}})
      .add(constants, [=](const F& f) { return effects && f.effects ? &f : nullptr; });
}

const ResultSchema kSchema("replay", "replay", [] { return told_columns(nullptr, false, false).schema(); });

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
  result.update(told_columns(&answer, model, effects).json(answer));
  return result;
}

std::string rank_csv(const RecordingForecast& answer) {
  const auto whole =
      job_columns()
          .some({"iteration_us", "measured_iteration_us", "tokens_per_s", "cost_per_million_tokens"})
          .json(answer);
  const Columns<int> columns = rank_columns(&answer);
  auto rows = nlohmann::ordered_json::array();
  for (const int rank : ranks_of(answer)) {
    rows.push_back(columns.json(rank));
    rows.back().update(whole);
  }
  return csv_of(rows);
}

}  // namespace moesim::tools

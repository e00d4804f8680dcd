#include <algorithm>

#include <nlohmann/json.hpp>

#include "models/answers/sentences.h"
#include "models/hardware/cluster.h"
#include "models/question/assumed.h"
#include "models/step/training_flops.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::Answer;
using models::Comparison;
using models::Scenario;
using nlohmann::ordered_json;
using sim::Category;

ordered_json memory_json(const Answer& a) {
  const models::RankMemory& m = a.memory.worst;
  ordered_json j{{"rank", a.memory.rank},
                 {"stage", a.memory.stage},
                 {"parameters_bytes", m.parameters},
                 {"gradients_bytes", m.gradients},
                 {"optimizer_bytes", m.optimizer},
                 {"activations_bytes", m.activations},
                 {"transient_bytes", m.transient},
                 {"persistent_bytes", m.persistent},
                 {"total_bytes", a.memory.max_bytes},
                 {"limit_bytes", a.memory.limit_bytes}};
  if (a.memory.host_bytes > 0) j["host_bytes"] = a.memory.host_bytes;
  if (!a.memory.fits)
    j["first_not_fitting"] = {{"stage", a.memory.first_stage}, {"missing_bytes", a.memory.missing_bytes}};
  j["stages"] = ordered_json::array();
  for (const models::StageMemory& s : a.memory.stages) {
    ordered_json causes = ordered_json::array();
    for (const models::MemoryCause& c : s.causes)
      causes.push_back({{"kind", models::name_of(c.kind)}, {"what", c.what}, {"bytes", c.bytes}});
    j["stages"].push_back({{"total_bytes", s.bytes.total()},
                           {"low_bytes", s.low_bytes},
                           {"high_bytes", s.high_bytes},
                           {"fits_probability", s.fits_probability},
                           {"moment", s.moment},
                           {"in_flight", s.in_flight},
                           {"causes", causes}});
  }
  j["curve"] = ordered_json::array();
  for (const auto& [time_us, point] : a.memory_over_time)
    j["curve"].push_back({{"time_us", time_us},
                          {"pass", point.forward ? "forward" : "backward"},
                          {"what", point.what},
                          {"bytes", point.bytes}});
  return j;
}

// Returns the counters of one layer. Those of a step are added up over its layers and microbatches, as a job
// prints them at its end for the selected ranks; extremes and the uniform count of rows are not added.
ordered_json counters_json(const Answer& a, const Scenario& s) {
  ordered_json counters = ordered_json::object();
  for (const auto& [name, count] : a.program().counters) {
    const bool adds = !name.ends_with("_min") && !name.ends_with("_max") && name != "uniform_local_count";
    counters[name] = s.is_step() && adds ? count * a.overload.entries : count;
  }
  return counters;
}

ordered_json step_overload_json(const Answer& a, const Scenario& s) {
  const models::StepOverload& o = a.overload;
  ordered_json j = overload_json(o.printed());
  j["metrics"] = overload_metrics_json(o.logged);
  // With recomputation the hook of forward runs twice per backward, so the log's cumulative factor is
  // meaningless.
  if (const models::StepRecompute& again = s.training.recompute; s.train && (again.moe || again.full)) {
    for (ordered_json& stage : j["metrics"][models::kMaxCumOverload]) stage = nullptr;
    j["invalid"] = {{models::kMaxCumOverload, "the MoE layer is computed again in backward"}};
  }
  j["entries"] = o.entries;
  j["recorded_entries"] = o.recorded;
  j["replicas"] = o.replicas;
  j["of_replicas"] = o.of_replicas;
  j["routings_per_layer"] = o.routings;
  j["buffers"] = {{"forward_rows", o.rows.forward_rows},
                  {"forward_bytes", o.forward_bytes},
                  {"retained_rows", o.rows.retained_rows},
                  {"retained_bytes", o.retained_bytes}};
  if (!s.is_step()) return j;
  j["stages"] = ordered_json::array();
  for (const models::Overload& stage : o.stages) j["stages"].push_back(overload_json(stage));
  if (a.overload_report.calls > 0)
    j["report"] = {{"all_reduces", a.overload_report.calls}, {"time_us", a.overload_report.seconds * 1e6}};
  return j;
}

// Adds the parts of scope step.
void add_step(ordered_json& j, const Answer& a) {
  const auto part = [&](Category c) { return a.breakdown_us[static_cast<std::size_t>(c)]; };
  j["step_time_us"] = {{"p50", a.step_time.p50}, {"p90", a.step_time.p90}, {"p99", a.step_time.p99}};
  j["bubble_us"] = part(Category::bubble);
  j["critical_stage"] = a.critical_stage;
  if (a.optimizer_launches > 0)
    j["optimizer"] = {{"meshes", a.optimizer_meshes}, {"launches", a.optimizer_launches}};
  if (a.goodput.failures_per_day > 0)
    j["goodput"] = {{"share", a.goodput.share},
                    {"tokens_per_s_per_gpu", a.goodput.share * a.tokens_per_s_per_gpu()},
                    {"failures_per_day", a.goodput.failures_per_day},
                    {"checkpoint_interval_s", a.goodput.interval_s}};
  if (!a.memory.recompute_that_fits.empty()) j["recompute_that_fits"] = a.memory.recompute_that_fits;
  if (a.slots.empty()) return;
  j["slots"] = ordered_json::array();
  for (const models::SlotTrace& slot : a.slots)
    j["slots"].push_back({{"stage", slot.stage},
                          {"pass", models::name_of(slot.slot.kind)},
                          {"microbatch", slot.slot.microbatch},
                          {"chunk", slot.slot.chunk},
                          {"start_us", static_cast<double>(slot.from) * 1e-6},
                          {"end_us", static_cast<double>(slot.to) * 1e-6}});
}

// Returns the mesh as torch prints it, and the groups of ranks along each of its axes.
ordered_json mesh_json(const models::DeviceMesh& mesh) {
  const models::RankGrid grid = mesh.grid();
  ordered_json names = ordered_json::array(), groups = ordered_json::object(), ranks = ordered_json::array();
  for (std::int64_t r = 0; r < grid.size(); ++r) ranks.push_back(r);
  // Nested from the fastest axis outwards, which torch names last.
  for (const models::Axis& axis : grid.axes()) {
    names.insert(names.begin(), axis.name);
    groups[axis.name] = grid.groups(axis.name);
    ordered_json rows = ordered_json::array();
    for (std::size_t i = 0; i < ranks.size(); i += static_cast<std::size_t>(axis.size))
      rows.push_back(ordered_json(std::vector<ordered_json>(
          ranks.begin() + static_cast<std::ptrdiff_t>(i),
          ranks.begin() + static_cast<std::ptrdiff_t>(i) + static_cast<std::ptrdiff_t>(axis.size))));
    ranks = rows;
  }
  return {{"mesh_dim_names", names}, {"mesh", ranks.at(0)}, {"groups", groups}};
}

}  // namespace

ordered_json figures_json(const Answer& a) {
  ordered_json j{{"dispatcher", a.dispatcher},
                 {"ranked", a.ranked()},
                 {"not_ranked_because",
                  a.bar == models::Bar::kNone ? ordered_json() : ordered_json(models::barred_text(a))},
                 {"time_us", estimate_json(a.time_us)},
                 {"breakdown_us", breakdown_json(a.breakdown_us)},
                 {"gpus", a.gpus},
                 {"tokens", a.tokens},
                 {"tokens_per_s_per_gpu", a.tokens_per_s_per_gpu()},
                 {"tflops_per_gpu", a.tflops_per_gpu()},
                 {"mfu", a.mfu},
                 {"outside_domain", a.outside_domain},
                 {"unmeasured", a.unmeasured_parts()},
                 {"dropped_rows", a.dropped_rows},
                 {"peak_memory_bytes",
                  {{"max", a.memory.max_bytes}, {"rank", a.memory.rank}, {"stage", a.memory.stage}}},
                 {"fits", a.memory.fits},
                 {"fits_probability", a.memory.fits_probability}};
  if (!a.memory.fits) j["missing_bytes"] = a.memory.missing_bytes;
  if (a.cost > 0) {
    j["cost"] = a.cost;
    j["cost_per_million_tokens"] = a.cost_per_million_tokens();
  }
  return j;
}

ordered_json answer_json(const Answer& a, const Scenario& s, Detail detail) {
  const SentBytes tx = sent_bytes(a);
  ordered_json j = figures_json(a);
  j.update({{"healthy_time_us", a.healthy_us},
            {"exposed_comm_us", a.exposed_comm_us},
            {"critical_rank", a.critical_rank},
            {"flop_convention", models::kFlopConvention},
            {"tx_bytes_per_rank", {{"min", tx.min}, {"mean", tx.mean}, {"max", tx.max}}},
            {"host_syncs", {{"forward", a.host_syncs_forward}, {"backward", a.host_syncs_backward}}},
            {"memory", memory_json(a)},
            {"overload", step_overload_json(a, s)},
            {"saved_bytes_per_rank", a.program().saved_bytes},
            {"rows_per_rank", a.program().computed_rows}});
  if (a.network.groups > 0)
    j["network"] = {{"timing", "flow"},
                    {"calibrated_us", a.network.calibrated_us},
                    {"groups", a.network.groups},
                    {"busiest_link", link_json(a.network.busiest)}};
  if (a.balance)
    j["balance"] = {{"busiest_rank", a.balance->busiest},
                    {"busiest_rank_without", a.balance->busiest_before},
                    {"paid_us", a.balance->paid_us},
                    {"saved_us", a.balance->saved_us},
                    {"break_even_tokens",
                     a.balance->saved_us > 0 ? ordered_json(a.balance->break_even_tokens) : ordered_json()}};
  if (!a.hang.empty()) j["hang"] = a.hang;
  if (!a.program().counters.empty()) j["counters"] = counters_json(a, s);
  if (s.is_step()) add_step(j, a);
  add_detail(j, a, detail);
  return j;
}

ordered_json decision_json(const Comparison& c) {
  using Verdict = models::Decision::Verdict;
  const models::Decision& d = c.decision;
  const bool close = d.verdict == Verdict::kSafe || d.verdict == Verdict::kOpen;
  ordered_json j{{"dispatcher", c.winner() ? ordered_json(c.winner()->dispatcher) : ordered_json()},
                 {"speedup", estimate_json(d.speedup)},
                 {"probability", or_null(d.probability())},
                 {"verdict", close ? "too_close" : name_of(d.verdict)},
                 {"among", ordered_json::array()}};
  for (const int i : d.among) j["among"].push_back(c.answers[static_cast<std::size_t>(i)].dispatcher);
  j["measure_next"] = d.settle.empty() ? ordered_json() : ordered_json(d.settle);
  return j;
}

ordered_json recommendation_json(const Comparison& c) {
  const models::Decision& d = c.decision;
  const std::optional<models::Loss> loss = d.loss();
  ordered_json j{{"dispatcher", c.winner() ? ordered_json(c.winner()->dispatcher) : ordered_json()},
                 {"verdict", name_of(d.verdict)},
                 {"probability", or_null(d.probability())},
                 {"expected_loss", loss ? ordered_json(loss->expected) : ordered_json()},
                 {"loss_at_most", loss ? ordered_json(loss->at_most) : ordered_json()},
                 {"tolerance", d.tolerance},
                 {"settle", d.settle.empty() ? ordered_json() : ordered_json(d.settle)},
                 {"alike", ordered_json::array()}};
  for (const int i : d.alike) j["alike"].push_back(c.answers[static_cast<std::size_t>(i)].dispatcher);
  return j;
}

ordered_json comparison_json(const Comparison& c, Detail detail, const CommonOptions& common) {
  const Scenario& s = *c.scenario;
  ordered_json result = envelope("compare", describe_inputs(common, s), c.warnings);
  add_model(result, s);
  result["routing"] = {{"expert_skew", c.routing.expert_skew()},
                       {"rank_imbalance", c.routing.rank_imbalance(static_cast<int>(s.parallel.ep))},
                       {"gini", c.routing.gini()}};
  result["scenarios"] = ordered_json::array();
  result["excluded"] = ordered_json::array();
  for (std::size_t i = 0; i < c.answers.size(); ++i) {
    const Answer& a = c.answers[i];
    if (!a.ok()) {
      result["excluded"].push_back({{"dispatcher", a.dispatcher}, {"rule", a.error}});
      continue;
    }
    ordered_json one = answer_json(a, s, detail);
    if (!c.decision.fastest.empty() && a.ranked()) {
      one["fastest_probability"] = c.decision.fastest[i];
      one["expected_loss"] = c.decision.losses[i].expected;
      one["loss_at_most"] = c.decision.losses[i].at_most;
    }
    result["scenarios"].push_back(std::move(one));
  }
  for (const auto& [dispatcher, rule] : c.excluded)
    result["excluded"].push_back({{"dispatcher", dispatcher}, {"rule", rule}});
  if (s.mesh.given) result["mesh"] = mesh_json(s.mesh);
  if (!c.step_collectives.empty()) {
    result["step_collectives"] = ordered_json::array();
    for (const models::TimedCollective& one : c.step_collectives)
      result["step_collectives"].push_back({{"what", one.what.what},
                                            {"op", models::name_of(one.what.kind)},
                                            {"ranks", one.what.group},
                                            {"calls", one.what.calls_per_step()},
                                            {"buffer_bytes", one.what.bytes_per_step()},
                                            {"tx_bytes", one.what.tx_per_step()},
                                            {"time_us", one.us_per_step()}});
  }
  result["winner"] = decision_json(c);
  result["recommendation"] = recommendation_json(c);
  result["answer"] = models::sentence(c);
  result["because"] = models::because(c);
  if (!c.defaults.empty()) result["defaults"] = c.defaults;
  if (c.fitting && !c.fitting->options.empty()) result["change_that_fits"] = c.fitting->options;
  result["assumed"] = ordered_json::array();
  for (const models::Assumed& one : models::assumed_of(c))
    result["assumed"].push_back(
        {{"path", one.path}, {"value", one.value}, {"alternative", one.alternative}, {"effect", one.effect}});
  return result;
}

}  // namespace moesim::tools

#include <algorithm>
#include <functional>
#include <optional>

#include <nlohmann/json.hpp>

#include "models/answers/energy.h"
#include "models/answers/sentences.h"
#include "models/hardware/cluster.h"
#include "models/question/assumed.h"
#include "models/step/training_flops.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

Columns<models::MemoryCause> columns_of(Of<models::MemoryCause>) {
  using C = models::MemoryCause;
  return {{"kind", [](const C& c) { return models::name_of(c.kind); },
           one_of({"parameters", "gradients", "optimizer", "activations", "transient", "persistent"})},
          {"what", &C::what, "trunk/branch"},
          {"bytes", &C::bytes}};
}

Columns<models::RankMemory> columns_of(Of<models::RankMemory>) {
  using R = models::RankMemory;
  return {{"parameters_bytes", &R::parameters, "", {"parameters [GB]", 2, 1e-9}},
          {"gradients_bytes", &R::gradients, "", {"gradients", 2, 1e-9}},
          {"optimizer_bytes", &R::optimizer, "", {"optimizer", 2, 1e-9}},
          {"activations_bytes", &R::activations, "", {"activations", 2, 1e-9}},
          {"transient_bytes", &R::transient, "", {"transient", 2, 1e-9}},
          {"persistent_bytes", &R::persistent, "", {"buffers", 2, 1e-9}}};
}

Columns<models::StageMemory> columns_of(Of<models::StageMemory>) {
  using S = models::StageMemory;
  return {{"total_bytes", [](const S& s) { return s.bytes.total(); }},
          {"low_bytes", &S::low_bytes, "5 % of the draws of routing"},
          {"high_bytes", &S::high_bytes, "95 % of the draws of routing"},
          {"fits_probability", &S::fits_probability},
          {"moment", &S::moment},
          {"in_flight", &S::in_flight, "passes whose activations are held"},
          {"causes", &S::causes}};
}

Columns<models::Answer::MemorySample> columns_of(Of<models::Answer::MemorySample>) {
  using S = models::Answer::MemorySample;
  return {{"time_us", &S::time_us},
          {"pass", [](const S& s) { return s.point.forward ? "forward" : "backward"; }},
          {"what", [](const S& s) { return s.point.what; }},
          {"bytes", [](const S& s) { return s.point.bytes; }}};
}

Columns<models::SlotTrace> columns_of(Of<models::SlotTrace>) {
  using S = models::SlotTrace;
  return {{"stage", &S::stage},
          {"pass", [](const S& s) { return models::name_of(s.slot.kind); }},
          {"microbatch", [](const S& s) { return s.slot.microbatch; }},
          {"chunk", [](const S& s) { return s.slot.chunk; }},
          {"start_us", [](const S& s) { return static_cast<double>(s.from) * 1e-6; }},
          {"end_us", [](const S& s) { return static_cast<double>(s.to) * 1e-6; }}};
}

Columns<models::Answer::Balance> columns_of(Of<models::Answer::Balance>) {
  using B = models::Answer::Balance;
  return {{"busiest_rank", &B::busiest, "rows of the busiest rank in balanced shares"},
          {"busiest_rank_without", &B::busiest_before},
          {"paid_us", &B::paid_us, "transfers of weights or gradients"},
          {"saved_us", &B::saved_us, "what the layer without balancing takes longer, these transfers aside"},
          {"break_even_tokens", [](const B& b) { return where(b.saved_us > 0, b.break_even_tokens); },
           "of a rank and microbatch, in proportion; null: nothing is saved"}};
}

Columns<models::TimedCollective> columns_of(Of<models::TimedCollective>) {
  using T = models::TimedCollective;
  return {{"what", [](const T& t) { return t.what.what; }, "", "per step"},
          {"op", [](const T& t) { return models::name_of(t.what.kind); }, "", "op"},
          {"ranks", [](const T& t) { return t.what.group; }, "", "ranks"},
          {"calls", [](const T& t) { return t.what.calls_per_step(); }, "", "calls"},
          {"buffer_bytes", [](const T& t) { return t.what.bytes_per_step(); }, "", {"buffer [MB]", 3, 1e-6}},
          {"tx_bytes", [](const T& t) { return t.what.tx_per_step(); }, "", {"sent [MB]", 3, 1e-6}},
          {"time_us", &T::us_per_step, "", {"time [us]", 1}}};
}

Columns<models::Assumed> columns_of(Of<models::Assumed>) {
  using A = models::Assumed;
  return {{"path", &A::path},
          {"value", &A::value},
          {"alternative", &A::alternative},
          {"effect", &A::effect, "relative change of the winner's time under the alternative"}};
}

Columns<models::Imbalance> columns_of(Of<models::Imbalance>) {
  using I = models::Imbalance;
  return {{"routing", &I::routing},
          {"us", &I::us, "of a layer's or a step's time"},
          {"share", &I::share, "of that time"},
          {"remedies", &I::remedies,
           "what makes it faster by more than 1 %, the fastest first; a capacity drops rows"}};
}

Columns<models::StepQuantiles> columns_of(Of<models::StepQuantiles>) {
  using Q = models::StepQuantiles;
  return {{"p50", &Q::p50}, {"p90", &Q::p90}, {"p99", &Q::p99}};
}

Columns<models::Energy> columns_of(Of<models::Energy>) {
  using E = models::Energy;
  return {{"node_watts", &E::node_watts, "of a node, mean over the step, with its fans and power supplies"},
          {"peak_watts", &E::peak_watts, "of all nodes, while all GPUs compute"},
          {"joules_per_token", &E::joules_per_token},
          {"kwh_per_step", &E::kwh_per_step}};
}

Columns<models::Anchor::Moved> columns_of(Of<models::Anchor::Moved>) {
  using M = models::Anchor::Moved;
  return {{"parameter", &M::parameter}, {"before", &M::before}, {"after", &M::after}};
}

Columns<models::Anchor::Suspect> columns_of(Of<models::Anchor::Suspect>) {
  using S = models::Anchor::Suspect;
  return {{"path", &S::path}, {"value", &S::value}, {"time_us", &S::us, "the forecast under it"}};
}

struct MeasuredRun {
  models::Measured run;
  models::Estimate before;
};

Columns<MeasuredRun> columns_of(Of<MeasuredRun>) {
  using M = MeasuredRun;
  return {{"dispatcher", [](const M& m) { return m.run.dispatcher; }},
          {"time_us", [](const M& m) { return m.run.us; }, "as measured"},
          {"forecast_us", &M::before, "without the run"},
          {"scope?", [](const M& m) { return where(m.run.layer, "layer"); },
           "of one layer, where the forecasts are of steps"}};
}

Columns<models::Anchor> columns_of(Of<models::Anchor>) {
  using A = models::Anchor;
  const auto runs = [](const A& a) {
    std::vector<MeasuredRun> all;
    for (std::size_t k = 0; k < a.measured.size(); ++k) all.push_back({a.measured[k], a.before[k]});
    return all;
  };
  return {{"measured", runs},
          {"explained", &A::explained,
           "false: the forecast is not in doubt about enough to explain the run; there is no answer"},
          {"effective_draws", &A::effective_draws, "as many draws as if all that are left counted alike"},
          {"moved", &A::moved, "numbers that the run told, as factors of what they were"},
          {"suspects", &A::suspects,
           "where it is not explained: other settings that would explain it, nearest first"}};
}

Columns<Around::Turned> columns_of(Of<Around::Turned>) {
  return {{"value", &Around::Turned::value}, {"dispatcher", &Around::Turned::dispatcher}};
}

Columns<Around> columns_of(Of<Around>) {
  using A = Around;
  return {{"path", &A::path},
          {"what", &A::what},
          {"now", &A::now},
          {"from", &A::from, "how far it was moved down without another dispatcher becoming the fastest"},
          {"to", &A::to, "and up"},
          {"below", &A::below, "the nearest value with another fastest dispatcher"},
          {"above", &A::above}};
}

namespace {

using models::Answer;
using models::Comparison;
using models::Scenario;
using nlohmann::ordered_json;
using sim::Category;

struct Excluded {
  std::string dispatcher, rule;
};

Columns<Excluded> columns_of(Of<Excluded>) {
  return {{"dispatcher", &Excluded::dispatcher}, {"rule", &Excluded::rule, "that excludes it"}};
}

Columns<Answer> memory_columns() {
  const auto of = [](auto member) { return [member](const Answer& a) { return a.memory.*member; }; };
  using M = models::StepMemory;
  Columns<Answer> all{{"rank", of(&M::rank)}, {"stage", of(&M::stage)}};
  all.add(columns_of(Of<models::RankMemory>{}), of(&M::worst));
  return all.add(
      {{"total_bytes", of(&M::max_bytes)},
       {"limit_bytes", of(&M::limit_bytes)},
       {"host_bytes?", [](const Answer& a) { return where(a.memory.host_bytes > 0, a.memory.host_bytes); }},
       {"first_not_fitting?",
        {{"stage", of(&M::first_stage)}, {"missing_bytes", of(&M::missing_bytes)}},
        "",
        [](const Answer& a) { return !a.memory.fits; }},
       {"stages", of(&M::stages), "by pipeline stage, when its fullest rank holds most"},
       {"curve", &Answer::memory_over_time}});
}

// Counters of one layer. Those of a step are added up over its layers and microbatches, as a job prints them
// at its end for the selected ranks; extremes and the uniform count of rows are not added.
using Counters = nlohmann::ordered_map<std::string, std::int64_t>;
std::optional<Counters> counters_of(const Told& t) {
  Counters counters;
  for (const auto& [name, count] : t.answer.program().counters) {
    const bool adds = !name.ends_with("_min") && !name.ends_with("_max") && name != "uniform_local_count";
    counters[name] = t.scenario.is_step() && adds ? count * t.answer.overload.entries : count;
  }
  return where(!counters.empty(), counters);
}

// With recomputation the hook of forward runs twice per backward, so the log's cumulative factor is
// meaningless.
bool cumulates(const Told& t) {
  const models::StepRecompute& again = t.scenario.training.recompute;
  return !t.scenario.train || (!again.moe && !again.full);
}

Columns<Told> overload_columns() {
  const auto of = [](auto member) { return [member](const Told& t) { return t.answer.overload.*member; }; };
  using O = models::StepOverload;
  const auto step = [](const Told& t) { return t.scenario.is_step(); };
  const auto report = [](const Told& t) { return t.answer.overload_report; };
  Columns<Told> all;
  all.add(columns_of(Of<models::Overload>{}), [](const Told& t) { return t.answer.overload.printed(); });
  return all.add(
      {{"metrics",
        [](const Told& t) {
          return OverloadMetrics{t.answer.overload.logged, cumulates(t)};
        },
        "as every pipeline stage logs them, by stage"},
       {"invalid?",
        {{models::kMaxCumOverload,
          [](const Told&) { return "the MoE layer is computed again in backward"; }}},
        "metrics that mean nothing under this plan, and why",
        std::not_fn(cumulates)},
       {"entries", of(&O::entries), "MoE layers x microbatches, all stages"},
       {"recorded_entries", of(&O::recorded), "of them, those that the job's log knows"},
       {"replicas", of(&O::replicas), "of the experts, with a routing of their own"},
       {"of_replicas", of(&O::of_replicas)},
       {"routings_per_layer", of(&O::routings),
        "that were drawn; further microbatches and replicas repeat them"},
       {"buffers",
        {{"forward_rows", [](const Told& t) { return t.answer.overload.rows.forward_rows; }},
         {"forward_bytes", of(&O::forward_bytes)},
         {"retained_rows", [](const Told& t) { return t.answer.overload.rows.retained_rows; }},
         {"retained_bytes", of(&O::retained_bytes)}},
        "that follow on the worst rank: of one layer in forward (max), and kept until backward (max_cum)"},
       {"stages?", [step](const Told& t) { return where(step(t), t.answer.overload.stages); }},
       {"report?",
        {{"all_reduces", [report](const Told& t) { return report(t).calls; }},
         {"time_us", [report](const Told& t) { return report(t).seconds * 1e6; }}},
        "what logging costs at the end of a step, part of time_us",
        [=](const Told& t) { return step(t) && report(t).calls > 0; }}});
}

// What is known of a step alone.
Columns<Told> step_columns() {
  const auto if_step = [](auto value) {
    return [value](const Told& t) { return where(t.scenario.is_step(), std::invoke(value, t.answer)); };
  };
  const auto goodput = [](auto member) {
    return [member](const Told& t) { return t.answer.goodput.*member; };
  };
  const auto step = [](const Told& t) { return t.scenario.is_step(); };
  using G = models::Goodput;
  return {
      {"step_time_us?", if_step(&Answer::step_time), "what half, 90 % and 99 % of the steps take at most"},
      {"bubble_us?",
       if_step([](const Answer& a) { return a.breakdown_us[static_cast<std::size_t>(Category::bubble)]; })},
      {"critical_stage?", if_step(&Answer::critical_stage)},
      {"optimizer?",
       {{"meshes", [](const Told& t) { return t.answer.optimizer_meshes; }},
        {"launches", [](const Told& t) { return t.answer.optimizer_launches; }}},
       "of a training step on its first stage: meshes whose weights one kernel can update, kernels that Adam "
       "launches",
       [=](const Told& t) { return step(t) && t.answer.optimizer_launches > 0; }},
      {"goodput?",
       {{"share", goodput(&G::share)},
        {"tokens_per_s_per_gpu",
         [](const Told& t) { return t.answer.goodput.share * t.answer.tokens_per_s_per_gpu(); }},
        {"failures_per_day", goodput(&G::failures_per_day)},
        {"checkpoint_interval_s", goodput(&G::interval_s)}},
       "",
       [=](const Told& t) { return step(t) && t.answer.goodput.failures_per_day > 0; }},
      {"energy?", [](const Told& t) { return models::energy_of(t.scenario, t.answer); },
       "of all nodes, without network and cooling"},
      {"recompute_that_fits?",
       [=](const Told& t) {
         const std::string& least = t.answer.memory.recompute_that_fits;
         return where(step(t) && !least.empty(), least);
       },
       "the cheapest recomputation with which it would fit"},
      {"slots?", [=](const Told& t) { return where(step(t) && !t.answer.slots.empty(), t.answer.slots); },
       "passes of the pipeline on its stages, with a report or a timeline"}};
}

// Figures of `compare` beside those of every verb.
Columns<Answer> more_columns() {
  return {
      {"hosts?",
       {{"tuned_us", [](const Answer& a) { return a.hosts->tuned; }},
        {"untuned_us", [](const Answer& a) { return a.hosts->untuned; }}},
       "where nothing says whether the host is tuned (framework megatron) and that decides the time; time_us "
       "holds both",
       [](const Answer& a) { return a.hosts.has_value(); }},
      {"healthy_time_us", &Answer::healthy_us, "without the scenario's faults"},
      {"exposed_comm_us", &Answer::exposed_comm_us},
      {"critical_rank", &Answer::critical_rank},
      {"flop_convention", [](const Answer&) { return models::kFlopConvention; }},
      {"tx_bytes_per_rank",
       {{"min", [](const Answer& a) { return sent_bytes(a).min; }},
        {"mean", [](const Answer& a) { return sent_bytes(a).mean; }},
        {"max", [](const Answer& a) { return sent_bytes(a).max; }}}},
      {"host_syncs", {{"forward", &Answer::host_syncs_forward}, {"backward", &Answer::host_syncs_backward}}},
      {"memory", memory_columns()}};
}

}  // namespace

Columns<Told> columns_of(Of<Told>) {
  const auto answer = [](const Told& t) -> const Answer& { return t.answer; };
  const auto network = [](auto member) {
    return [member](const Told& t) { return t.answer.network.*member; };
  };
  const auto detail = [](Detail wanted, auto of) {
    return [=](const Told& t) { return t.detail == wanted ? std::optional(of(t.answer)) : std::nullopt; };
  };
  using N = models::FlowReport;
  Columns<Told> all;
  all.add(figures(), answer).add(more_columns(), answer);
  all.add(
      {{"overload", overload_columns(),
        "over all layers, microbatches, ranks of a dispatch group, replicas of the experts and stages; at scope "
        "layer of the one"},
       {"saved_bytes_per_rank", [](const Told& t) { return t.answer.program().saved_bytes; }},
       {"rows_per_rank", [](const Told& t) { return t.answer.program().computed_rows; }},
       {"network?",
        {{"timing", [](const Told&) { return "flow"; }},
         {"calibrated_us", network(&N::calibrated_us)},
         {"groups", network(&N::groups)},
         {"busiest_link", network(&N::busiest)}},
        "",
        [](const Told& t) { return t.answer.network.groups > 0; }},
       {"balance?", [](const Told& t) { return t.answer.balance; },
        "of a dispatcher that balances: its first MoE layer against the same without"},
       {"hang?", [](const Told& t) { return where(!t.answer.hang.empty(), t.answer.hang); },
        "how ranks come to wait for each other for ever, where they can"},
       {"counters?", counters_of,
        "events that a dispatcher's program counts, by name; which ones follows from its options"}});
  all.add(step_columns());
  all.add({{"messages?", detail(Detail::kMessages, messages_of)},
           {"operations?", detail(Detail::kOperations, operations_of)},
           {"ranks?", detail(Detail::kRanks, ranks_of)}});
  return all.add(chances());
}

namespace {

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
    const auto each = static_cast<std::ptrdiff_t>(axis.size);
    for (auto row = ranks.begin(); row != ranks.end(); row += each)
      rows.emplace_back(std::vector<ordered_json>(row, row + each));
    ranks = rows;
  }
  return {{"mesh_dim_names", names}, {"mesh", ranks.at(0)}, {"groups", groups}};
}

std::vector<std::string> names_of(const Comparison& c, const std::vector<int>& some) {
  std::vector<std::string> names(some.size());
  std::ranges::transform(some, names.begin(),
                         [&](int i) { return c.answers[static_cast<std::size_t>(i)].dispatcher; });
  return names;
}

std::optional<std::string> chosen(const Comparison& c) {
  return c.winner() ? std::optional(c.winner()->dispatcher) : std::nullopt;
}

std::optional<std::string> what_settles(const Comparison& c) {
  return where(!c.decision.settle.empty(), c.decision.settle);
}

std::string_view short_verdict(const Comparison& c) {
  using Verdict = models::Decision::Verdict;
  const Verdict verdict = c.decision.verdict;
  return verdict == Verdict::kSafe || verdict == Verdict::kOpen ? "too_close" : name_of(verdict);
}

Columns<Comparison> winner_columns() {
  return {{"dispatcher", chosen, "the recommended one"},
          {"speedup", [](const Comparison& c) { return c.decision.speedup; },
           "over the one of the others that loses least"},
          {"probability", [](const Comparison& c) { return c.decision.probability(); }},
          {"verdict", short_verdict,
           one_of({"clear", "too_close", "only_one", "none_fits", "none"},
                  "too_close: safe or open in recommendation")},
          {"among", [](const Comparison& c) { return names_of(c, c.decision.among); },
           "where it is open: those that may be the fastest"},
          {"measure_next", what_settles, "recommendation.settle"}};
}

std::vector<Told> told(const Comparison& c, Detail detail) {
  std::vector<Told> all;
  for (const Answer& a : c.answers)
    if (a.ok()) all.push_back({a, *c.scenario, detail, &c});
  return all;
}

std::vector<Excluded> excluded(const Comparison& c) {
  std::vector<Excluded> all;
  for (const Answer& a : c.answers)
    if (!a.ok()) all.push_back({a.dispatcher, a.error});
  for (const auto& [dispatcher, rule] : c.excluded) all.push_back({dispatcher, rule});
  return all;
}

Columns<Comparison> routing_columns() {
  return {{"expert_skew", [](const Comparison& c) { return c.routing.expert_skew(); }},
          {"rank_imbalance",
           [](const Comparison& c) {
             return c.routing.rank_imbalance(static_cast<int>(c.scenario->parallel.ep));
           }},
          {"gini", [](const Comparison& c) { return c.routing.gini(); }}};
}

}  // namespace

Columns<Told> chances() {
  return {
      {"fastest_probability?",
       [](const Told& t) { return t.of_ranked([](const auto& d, std::size_t i) { return d.fastest[i]; }); },
       "share of the draws under which it is the fastest; with draws, of those that can be chosen"},
      {"expected_loss?",
       [](const Told& t) {
         return t.of_ranked([](const auto& d, std::size_t i) { return d.losses[i].expected; });
       },
       "time lost by running it and not the fastest, as a share of the fastest one's: mean over the draws"},
      {"loss_at_most?",
       [](const Told& t) {
         return t.of_ranked([](const auto& d, std::size_t i) { return d.losses[i].at_most; });
       },
       "the same, not exceeded with 90 %"}};
}

Columns<Answer> figures() {
  const auto memory = [](auto member) { return [member](const Answer& a) { return a.memory.*member; }; };
  using M = models::StepMemory;
  return {{"dispatcher", &Answer::dispatcher},
          {"ranked", &Answer::ranked, "it can win"},
          {"not_ranked_because",
           [](const Answer& a) { return where(a.bar != models::Bar::kNone, models::barred_text(a)); },
           "why it can not win"},
          {"time_us", &Answer::time_us},
          {"breakdown_us", [](const Answer& a) { return breakdown_of(a.breakdown_us); }},
          {"gpus", &Answer::gpus},
          {"tokens", &Answer::tokens, "that the time is for, all GPUs together"},
          {"tokens_per_s_per_gpu", &Answer::tokens_per_s_per_gpu, "", "tokens/s/GPU"},
          {"tflops_per_gpu", &Answer::tflops_per_gpu},
          {"mfu", &Answer::mfu, "model FLOP/s over peak", share_head("MFU", 1)},
          {"outside_domain", &Answer::outside_domain,
           "share of the operations' time that is priced outside of what the profile measured"},
          {"unmeasured", &Answer::unmeasured_parts, "parts that no profile measured on this machine"},
          {"dropped_rows", &Answer::dropped_rows,
           "rows of one MoE layer that capacity dropped, over the dispatch group"},
          {"peak_memory_bytes",
           {{"max", memory(&M::max_bytes)}, {"rank", memory(&M::rank)}, {"stage", memory(&M::stage)}}},
          {"fits", memory(&M::fits), "into the memory of every GPU"},
          {"fits_probability", memory(&M::fits_probability),
           "share of the draws of routing and of what the allocator adds under which every stage fits"},
          {"missing_bytes?", [](const Answer& a) { return where(!a.memory.fits, a.memory.missing_bytes); }},
          {"cost?", [](const Answer& a) { return where(a.cost > 0, a.cost); },
           "of the time on its GPUs, where prices are given"},
          {"cost_per_million_tokens?",
           [](const Answer& a) { return where(a.cost > 0, a.cost_per_million_tokens()); }}};
}

ordered_json answer_json(const Answer& a, const Scenario& s, Detail detail) {
  return json_of(Told{a, s, detail});
}

Columns<Comparison> recommendation() {
  const auto loss = [](double models::Loss::*member) {
    return [member](const Comparison& c) {
      const std::optional<models::Loss> loss = c.decision.loss();
      return loss ? std::optional((*loss).*member) : std::nullopt;
    };
  };
  return {{"dispatcher", chosen, "of least expected loss; without draws the shortest forecast"},
          {"verdict", [](const Comparison& c) { return name_of(c.decision.verdict); },
           one_of({"clear", "safe", "open", "only_one", "none_fits", "none"},
                  "clear: it is the fastest with a probability of 0.9 or more; safe: its loss is within the "
                  "tolerance with 90 %; open: neither")},
          {"probability", [](const Comparison& c) { return c.decision.probability(); },
           "that it is the fastest; null without draws"},
          {"expected_loss", loss(&models::Loss::expected), "mean over the draws; null without draws"},
          {"loss_at_most", loss(&models::Loss::at_most), "not exceeded with 90 %; null without draws"},
          {"tolerance", [](const Comparison& c) { return c.decision.tolerance; },
           "the loss that is accepted (--tolerance)"},
          {"settle", what_settles, "the command that measures what would settle it"},
          {"alike", [](const Comparison& c) { return names_of(c, c.decision.alike); },
           "those within 2 % of it that are as safe to run, itself first"}};
}

Columns<ComparisonResult> columns_of(Of<ComparisonResult>) {
  const auto comparison = [](const ComparisonResult& one) -> const Comparison& { return one.comparison; };
  Columns<Comparison> before{
      {"model?",
       [](const Comparison& c) {
         const bool has = c.scenario->model.hidden > 0;
         return has ? std::optional(models::model_summary(models::asked_model(*c.scenario))) : std::nullopt;
       },
       as_in("model-summary.schema.json")},
      {"routing", routing_columns()}};
  Columns<Comparison> after{
      {"excluded", excluded, "dispatchers that are not legal here"},
      {"mesh?",
       [](const Comparison& c) {
         return c.scenario->mesh.given ? std::optional(mesh_json(c.scenario->mesh)) : std::nullopt;
       },
       {"where the scenario has a DeviceMesh: ranks, nested as torch prints them, and of every axis the lists of "
        "ranks",
        {{"type", "object"}}}},
      {"step_collectives?",
       [](const Comparison& c) { return where(!c.step_collectives.empty(), c.step_collectives); }},
      {"winner", winner_columns()},
      {"recommendation", recommendation(),
       "the dispatcher to run and what that can cost; losses are shares of the fastest one's time"},
      {"answer", models::sentence,
       "which dispatcher to run and what that can cost, or why none is recommended: one sentence"},
      {"because", models::because, "where its time and that of the nearest other one differ: one sentence"},
      {"defaults?", [](const Comparison& c) { return where(!c.defaults.empty(), c.defaults); },
       "settings whose default differs between frameworks and that the order of the answers may hang on: what was "
       "taken, whose it is"},
      {"change_that_fits?",
       [](const Comparison& c) {
         return where(c.fitting && !c.fitting->options.empty(), c.fitting ? c.fitting->options : "");
       },
       "where nothing fits: options with which the fastest dispatcher does"},
      {"imbalance?", models::imbalance_of,
       "what the routing costs the winner against balanced tokens, without draws"},
      {"assumed", models::assumed_of,
       "settings that were not said and whose usual alternative changes the time by more than 5 %"}};
  Columns<ComparisonResult> all;
  all.add(before, comparison);
  all.add({{"scenarios", [](const ComparisonResult& one) { return told(one.comparison, one.detail); }}});
  return all.add(after, comparison)
      .add({{"anchor?", [](const ComparisonResult& one) { return one.comparison.anchor; },
             "a run of one's own, and what it told"},
            {"around?", [](const ComparisonResult& one) { return where(!one.around.empty(), one.around); },
             "with a report: which change of one number makes another dispatcher the fastest"}});
}

Columns<Answer> row_figures() {
  return figures()
      .add(more_columns().some({"tx_bytes_per_rank", "host_syncs"}))
      .add({{"overload", [](const Answer& a) { return a.overload.printed(); }}});
}

std::string comparison_csv(const Comparison& c, Detail detail) {
  if (const auto table = table_of_detail(c, detail)) return table->csv();
  const Columns<Answer> row = row_figures();
  ordered_json rows = ordered_json::array();
  for (const Answer& a : forecasts(c)) rows.push_back(row.json(a));
  return csv_of(rows);
}

ordered_json comparison_json(const Comparison& c, Detail detail, const CommonOptions& common,
                             const std::vector<Around>& around) {
  ordered_json result = envelope("compare", describe_inputs(common, *c.scenario), c.warnings);
  result.update(json_of(ComparisonResult{c, detail, around}));
  return result;
}

}  // namespace moesim::tools

// `moesim compare`: which dispatcher is fastest for this model on this cluster, by how much, how sure, and
// why.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/dispatchers/dispatcher.h"
#include "models/workload/scenario.h"
#include "replay/run/layer_comparison.h"
#include "tools/moesim/questions/inputs.h"
#include "tools/moesim/show/explain_path.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/verbs/compare_layer.h"
#include "tools/moesim/verbs/compare_step.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct CompareOptions {
  std::string scenario, model, cluster, dispatcher, routing, router_dtype, recompute, scope, detail,
      placement, sharding, faults, timeline, report, timing = "calibrated";
  TimelineOptions shown;
  StepOptions step;
  std::optional<std::int64_t> tp, cp, ep, etp, dp, pp, vpp, microbatches, micro_batch, seq, topk;
  bool inference = false, explain = false;
  int draws = 48;
};

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

void set(std::int64_t& value, const std::optional<std::int64_t>& given, const char* name) {
  if (!given) return;
  if (*given < 1 || *given > kMaxSize)
    throw InputError(fmt::format("--{}: found {}, expected 1 to 2^31", name, *given));
  value = *given;
}

models::Scenario scenario_of(const CompareOptions& o, const CommonOptions& common) {
  models::Scenario s;
  if (!o.scenario.empty()) {
    s = models::Scenario::parse(JsonNode::read(o.scenario));
    s.files.insert(s.files.begin(), o.scenario);
  }
  if (!o.model.empty()) s.set_model(o.model);
  if (!o.cluster.empty()) s.set_cluster(o.cluster);
  if (!o.dispatcher.empty()) s.set_dispatchers(o.dispatcher);
  if (s.dispatchers.empty()) s.set_dispatchers("allgather,alltoall");
  models::name_dispatchers(s);
  if (!o.routing.empty()) s.routing = models::RoutingSpec::parse(o.routing);
  if (!o.placement.empty()) s.placement = models::PlacementSpec::parse(o.placement);
  if (!o.sharding.empty()) s.sharding = models::ShardingSpec::parse(o.sharding);
  if (!o.faults.empty())
    s.faults = models::Faults::parse(o.faults.find('{') == std::string::npos
                                         ? JsonNode::read(o.faults)
                                         : JsonNode::parse(o.faults, "--faults"));
  if (!o.router_dtype.empty()) s.set_router_dtype(o.router_dtype);
  if (!o.scope.empty())
    s.scope = o.scope == "step" ? models::Scenario::Scope::kStep : models::Scenario::Scope::kLayer;
  if (!o.recompute.empty()) {
    if (s.scope == models::Scenario::Scope::kStep)
      s.training.recompute = models::StepRecompute::parse(o.recompute);
    else
      s.set_recompute(o.recompute);
  }
  o.step.apply(s);
  models::Parallel& p = s.parallel;
  set(p.tp, o.tp, "tp");
  set(p.cp, o.cp, "cp");
  set(p.ep, o.ep, "ep");
  set(p.etp, o.etp, "etp");
  set(p.dp, o.dp, "dp");
  set(p.pp, o.pp, "pp");
  set(p.vpp, o.vpp, "vpp");
  set(p.microbatches, o.microbatches, "microbatches");
  set(p.micro_batch, o.micro_batch, "micro-batch");
  set(p.seq, o.seq, "seq");
  set(s.topk, o.topk, "topk");
  s.dp_given = s.dp_given || o.dp.has_value();
  s.seq_given = s.seq_given || o.seq.has_value();
  if (o.inference) s.train = false;
  if (common.seed_given) s.seed = common.seed;
  return s;
}

int run_compare(const CompareOptions& o, const CommonOptions& common) {
  models::Scenario scenario = scenario_of(o, common);
  const bool flow = o.timing == "flow";
  if (flow && scenario.scope == models::Scenario::Scope::kStep)
    throw InputError("compare: found --timing flow with scope step, expected calibrated");
  check_report(o.report);
  if (scenario.scope == models::Scenario::Scope::kStep) {
    if (o.explain) throw InputError("compare: found --explain with scope step, expected scope layer");
    if (!o.timeline.empty())
      throw InputError(
          "compare: found --timeline with scope step, expected scope layer, or replay of a recording");
    CommonOptions with_report = common;
    with_report.report = o.report;
    return compare_step(std::move(scenario), o.draws, with_report);
  }
  const LayerDetail detail = layer_detail(o.detail);
  if (flow && (!o.timeline.empty() || detail == LayerDetail::kOperations || detail == LayerDetail::kRanks))
    throw InputError(
        "compare: found --timing flow with --timeline or --detail operations or ranks, which follow "
        "calibrated times");
  const TimelineBounds bounds = o.shown.bounds(kTimelineSlices);
  const bool trace = common.format == Format::kJson || !o.timeline.empty() || !o.report.empty() ||
                     detail != LayerDetail::kNone || o.explain;
  const replay::LayerComparison c = replay::compare_layer(
      std::move(scenario), {.draws = o.draws,
                            .breakdown = true,
                            .timing = flow ? sim::Timing::flow : sim::Timing::calibrated,
                            .trace = trace});
  for (const std::string& warning : c.warnings) warn(common, warning);
  if (!o.timeline.empty()) write_file(o.timeline, layer_timeline(c, common, bounds));
  if (!o.report.empty()) write_layer_report(o.report, c, common, bounds);
  switch (common.format) {
    case Format::kJson:
      print_json(layer_json(c, detail, common));
      break;
    case Format::kCsv:
      print(layer_csv(c, detail));
      break;
    case Format::kTable:
      print_layer(c, detail);
      if (o.explain)
        for (const replay::DispatcherForecast& forecast : c.forecasts)
          print("\n" + critical_path_text(forecast));
      break;
  }
  return 0;
}

}  // namespace

Verb compare_verb() {
  return {
      "compare", "which dispatcher is fastest for this model on this cluster, by how much, how sure, and why",
      "  moesim compare --model mixtral-8x7b --cluster dgx-h100x1 --ep 8 --dispatcher allgather,alltoall "
      "--routing zipf:1.2\n"
      "  moesim compare scenario.json --dispatcher all --detail messages --format json",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<CompareOptions>();
        app.add_option("scenario", o->scenario, "Scenario file; the options below change it");
        app.add_option("--scenario", o->scenario, "The same");
        app.add_option("--model", o->model, "Model: a name of `moesim list models`, or a JSON file");
        app.add_option("--cluster", o->cluster, "Cluster: a name of `moesim list clusters`, or a JSON file");
        app.add_option("--dispatcher", o->dispatcher, "name[:key=value...],... or all [allgather,alltoall]");
        app.add_option("--routing", o->routing, "balanced, zipf:1.2, gini:0.3, ... or a dispatching file");
        app.add_option("--router-dtype", o->router_dtype, "bf16, fp32 or fp64 [fp32]");
        app.add_option(
            "--recompute", o->recompute,
            "none, activation or full; scope step: also core_attn, mla_up_proj, layernorm, moe, mlp, joined "
            "with + [none]");
        o->step.declare(app);
        app.add_option("--scope", o->scope, "layer or step [layer]")->check(CLI::IsMember({"layer", "step"}));
        app.add_option(
               "--detail", o->detail,
               "messages, operations (of the rank that ends last), ranks or memory, beside the summary")
            ->check(CLI::IsMember({"messages", "operations", "ranks", "memory"}));
        app.add_option(
               "--timing", o->timing,
               "calibrated, or flow: on the cluster's fabric with all dispatch groups at once [calibrated]")
            ->check(CLI::IsMember({"calibrated", "flow"}));
        app.add_option("--timeline", o->timeline, "Write what every rank does when, as Chrome trace events");
        o->shown.declare(app);
        declare_report(app, o->report);
        app.add_option("--placement", o->placement,
                       "balanced[:slots=N]: experts dealt out by load, replicated to N slots [in order]");
        app.add_option("--sharding", o->sharding,
                       "ddp, zero1, fsdp or hsdp:shard=N[:shampoo]: collectives per step, memory [zero1]");
        app.add_option("--faults", o->faults,
                       "JSON object or file: {\"slow_gpus\": [{\"gpu\": 3, \"factor\": 1.2}], \"nics\": ..., "
                       "\"jitter\": 0.05, \"gpu_mtbf_hours\": 50000, ...} [a healthy machine]");
        app.add_option("--draws", o->draws, "Draws of the profile for intervals; 0 for none [48]")
            ->check(CLI::Range(0, 100000));
        app.add_option("--tp", o->tp, "Tensor-parallel size of the dense part");
        app.add_option("--cp", o->cp, "Context-parallel size");
        app.add_option("--ep", o->ep, "Expert-parallel size");
        app.add_option("--etp", o->etp, "Tensor-parallel size of the experts [1]");
        app.add_option("--dp", o->dp, "Data-parallel size [fills the cluster]");
        app.add_option("--pp", o->pp, "Pipeline stages");
        app.add_option("--vpp", o->vpp, "Virtual pipeline stages per rank");
        app.add_option("--microbatches", o->microbatches, "Microbatches per step");
        app.add_option("--micro-batch", o->micro_batch, "Sequences per microbatch");
        app.add_option("--seq", o->seq, "Tokens per sequence [4096]");
        app.add_option("--topk", o->topk, "Experts per token [the model's]");
        app.add_flag("--explain", o->explain, "What the rank that ends last does, dispatcher by dispatcher");
        app.add_flag("--inference", o->inference, "Forward only [forward and backward]");
        return [o](const CommonOptions& common) { return run_compare(*o, common); };
      }};
}

}  // namespace moesim::tools

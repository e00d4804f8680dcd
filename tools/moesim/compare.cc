// `moesim compare`: which dispatcher is fastest for this model on this cluster, by how much, how sure, and
// why.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/units.h"
#include "models/cluster.h"
#include "models/scenario.h"
#include "replay/layer_comparison.h"
#include "tools/moesim/inputs.h"
#include "tools/moesim/output.h"
#include "tools/moesim/verb.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;
using replay::DispatcherForecast;
using replay::LayerComparison;

struct CompareOptions {
  std::string scenario, model, cluster, dispatcher, routing, router_dtype, recompute, scope, detail;
  std::optional<std::int64_t> tp, cp, ep, etp, dp, pp, vpp, microbatches, micro_batch, seq, topk;
  bool inference = false;
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
  if (!o.routing.empty()) s.routing = models::RoutingSpec::parse(o.routing);
  if (!o.router_dtype.empty()) s.set_router_dtype(o.router_dtype);
  if (!o.recompute.empty()) s.set_recompute(o.recompute);
  if (!o.scope.empty())
    s.scope = o.scope == "step" ? models::Scenario::Scope::kStep : models::Scenario::Scope::kLayer;
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
  if (std::find(common.command_line.begin(), common.command_line.end(), "--seed") !=
          common.command_line.end() ||
      o.scenario.empty())
    s.seed = common.seed;
  return s;
}

ordered_json estimate_json(const models::Estimate& e) {
  return {{"value", e.value}, {"low", e.low}, {"high", e.high}};
}

struct Spread {
  std::int64_t min = 0, max = 0;
  double mean = 0;
};

Spread spread_of(const std::vector<std::int64_t>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high,
          std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())};
}

ordered_json per_rank_json(const models::Program& program, models::PerRank value) {
  ordered_json array = ordered_json::array();
  for (int r = 0; r < program.ranks(); ++r) array.push_back(program.value(value, r));
  return array;
}

ordered_json messages_json(const models::Program& program) {
  ordered_json messages = ordered_json::array();
  for (const bool forward : {true, false})
    for (const models::Op& op : forward ? program.forward() : program.backward()) {
      if (op.kind != models::OpKind::kCollective) continue;
      messages.push_back({{"pass", forward ? "forward" : "backward"},
                          {"op", models::name_of(op.comm)},
                          {"what", op.name},
                          {"group", models::name_of(op.group)},
                          {"dtype", models::name_of(op.dtype)},
                          {"in_bytes", per_rank_json(program, op.in)},
                          {"out_bytes", per_rank_json(program, op.out)},
                          {"tx_bytes", per_rank_json(program, op.tx)},
                          {"rx_bytes", per_rank_json(program, op.rx)}});
    }
  return messages;
}

ordered_json breakdown_json(const DispatcherForecast& f) {
  ordered_json parts = ordered_json::object();
  for (std::size_t i = 0; i < sim::kCategories; ++i)
    if (f.breakdown_us[i] > 0)
      parts[std::string(sim::name(static_cast<sim::Category>(i)))] = f.breakdown_us[i];
  return parts;
}

ordered_json forecast_json(const DispatcherForecast& f, bool messages) {
  const Spread tx = spread_of(f.tx_bytes);
  ordered_json j{
      {"dispatcher", f.dispatcher},
      {"time_us", estimate_json(f.time_us)},
      {"breakdown_us", breakdown_json(f)},
      {"critical_rank", f.critical_rank},
      {"tx_bytes_per_rank", {{"min", tx.min}, {"mean", tx.mean}, {"max", tx.max}}},
      {"host_syncs", {{"forward", f.host_syncs_forward}, {"backward", f.host_syncs_backward}}},
      {"peak_memory_bytes",
       {{"max", f.memory.max_bytes}, {"rank", f.memory.rank}, {"stage", f.memory.stage}}},
      {"fits", f.memory.fits},
      {"overload", {{"avg", f.overload.avg}, {"max", f.overload.max}, {"max_cum", f.overload.max_cum}}},
      {"saved_bytes_per_rank", f.program.saved_bytes},
      {"rows_per_rank", f.program.computed_rows}};
  if (!f.memory.fits) j["missing_bytes"] = f.memory.missing_bytes;
  if (!f.not_ranked.empty()) j["not_ranked"] = f.not_ranked;
  if (f.program.dropped_rows > 0) j["dropped_rows"] = f.program.dropped_rows;
  if (!f.program.counters.empty()) {
    ordered_json counters = ordered_json::object();
    for (const auto& [name, count] : f.program.counters) counters[name] = count;
    j["counters"] = counters;
  }
  if (messages) j["messages"] = messages_json(f.program);
  return j;
}

ordered_json scenario_json(const models::Scenario& s) {
  const models::Parallel& p = s.parallel;
  ordered_json dispatchers = ordered_json::array();
  for (const models::DispatcherSpec& d : s.dispatchers) dispatchers.push_back(d.text());
  return {{"model", s.model.name},
          {"parallel",
           {{"tp", p.tp},
            {"cp", p.cp},
            {"ep", p.ep},
            {"etp", p.etp},
            {"dp", p.dp},
            {"pp", p.pp},
            {"vpp", p.vpp},
            {"microbatches", p.microbatches},
            {"micro_batch", p.micro_batch},
            {"seq", p.seq}}},
          {"topk", s.topk},
          {"dispatcher", dispatchers},
          {"routing", s.routing.text},
          {"router_dtype", models::name_of(s.router_dtype)},
          {"cluster", s.cluster->name},
          {"profile", s.cluster->profile.name()},
          {"scope", "layer"},
          {"train", s.train}};
}

ordered_json result_json(const LayerComparison& c, const CompareOptions& o, const CommonOptions& common) {
  ordered_json inputs = describe_inputs(common);
  inputs["scenario"] = scenario_json(c.scenario);
  for (const std::filesystem::path& file : c.scenario.files) add_input_file(inputs, file);
  if (c.scenario.routing.kind == models::RoutingSpec::Kind::kFile)
    add_input_file(inputs, c.scenario.routing.path);
  ordered_json result = envelope("compare", inputs, c.warnings);
  result["routing"] = {{"expert_skew", c.routing.expert_skew()},
                       {"rank_imbalance", c.routing.rank_imbalance(static_cast<int>(c.scenario.parallel.ep))},
                       {"gini", c.routing.gini()}};
  result["scenarios"] = ordered_json::array();
  for (const DispatcherForecast& f : c.forecasts)
    result["scenarios"].push_back(forecast_json(f, o.detail == "messages"));
  result["excluded"] = ordered_json::array();
  for (const replay::ExcludedDispatcher& e : c.excluded)
    result["excluded"].push_back({{"dispatcher", e.dispatcher}, {"rule", e.rule}});
  result["winner"] = {{"dispatcher", c.forecasts[c.winner].dispatcher},
                      {"speedup", estimate_json(c.speedup)},
                      {"probability", c.probability}};
  result["because"] = c.because;
  return result;
}

std::string microseconds(double us) { return fmt::format("{:.1f}", us); }

Table result_table(const LayerComparison& c, bool people) {
  using sim::Category;
  static const std::vector<std::pair<const char*, std::vector<Category>>> kParts{
      {"attention", {Category::attention}},
      {"router", {Category::router}},
      {"permute", {Category::permute, Category::unpermute}},
      {"dispatch", {Category::dispatch}},
      {"expert", {Category::expert}},
      {"combine", {Category::combine}},
      {"host", {Category::host_sync}},
      {"wait", {Category::straggler_wait}}};
  std::vector<Table::Column> columns{{"dispatcher", Table::Align::kLeft}, {"time [us]"}, {"low"}, {"high"}};
  for (const auto& [name, categories] : kParts) columns.push_back({name});
  for (const char* name : {"tx/rank [MB]", "max", "syncs", "overload", "memory [GB]", "fits"})
    columns.push_back({name});
  Table table(columns);
  for (std::size_t i = 0; i < c.forecasts.size(); ++i) {
    const DispatcherForecast& f = c.forecasts[i];
    const Spread tx = spread_of(f.tx_bytes);
    std::vector<std::string> row{f.dispatcher + (people && static_cast<int>(i) == c.winner ? " *" : ""),
                                 microseconds(f.time_us.value), microseconds(f.time_us.low),
                                 microseconds(f.time_us.high)};
    for (const auto& [name, categories] : kParts) {
      double us = 0;
      for (const Category category : categories) us += f.breakdown_us[static_cast<std::size_t>(category)];
      row.push_back(microseconds(us));
    }
    row.push_back(fmt::format("{:.3f}", tx.mean * 1e-6));
    row.push_back(fmt::format("{:.3f}", static_cast<double>(tx.max) * 1e-6));
    row.push_back(fmt::format("{}+{}", f.host_syncs_forward, f.host_syncs_backward));
    row.push_back(fmt::format("{:.2f}", f.overload.max));
    row.push_back(fmt::format("{:.2f}", f.memory.max_bytes * 1e-9));
    row.push_back(f.memory.fits ? "yes" : fmt::format("no: {}", format_bytes(f.memory.missing_bytes)));
    table.row(row);
  }
  return table;
}

Table message_table(const LayerComparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"pass", Table::Align::kLeft},
               {"op", Table::Align::kLeft},
               {"what", Table::Align::kLeft},
               {"group", Table::Align::kLeft},
               {"dtype", Table::Align::kLeft},
               {"rank"},
               {"in [B]"},
               {"out [B]"},
               {"tx [B]"},
               {"rx [B]"}});
  for (const DispatcherForecast& f : c.forecasts)
    for (const bool forward : {true, false})
      for (const models::Op& op : forward ? f.program.forward() : f.program.backward()) {
        if (op.kind != models::OpKind::kCollective) continue;
        const auto cell = [&](models::PerRank v, int r) { return fmt::format("{}", f.program.value(v, r)); };
        const bool same = f.program.uniform(op.in) && f.program.uniform(op.out) && f.program.uniform(op.tx) &&
                          f.program.uniform(op.rx);
        for (int r = 0; r < (same ? 1 : f.program.ranks()); ++r)
          table.row({f.dispatcher, forward ? "forward" : "backward", std::string(models::name_of(op.comm)),
                     std::string(op.name), std::string(models::name_of(op.group)),
                     std::string(models::name_of(op.dtype)), same ? "all" : fmt::format("{}", r),
                     cell(op.in, r), cell(op.out, r), cell(op.tx, r), cell(op.rx, r)});
      }
  return table;
}

void print_people(const LayerComparison& c, const CompareOptions& o) {
  const models::Scenario& s = c.scenario;
  const models::Parallel& p = s.parallel;
  print(fmt::format("{} on {}: one MoE layer, {}; EP {} x ETP {}, TP {}, {} tokens per rank, top-{}\n",
                    s.model.name, s.cluster->name, s.train ? "forward and backward" : "forward", p.ep, p.etp,
                    p.tp, c.routing.max_tokens(), s.topk));
  print(fmt::format("routing {}: busiest expert {:.2f}x, busiest rank {:.2f}x the mean, Gini {:.3f}\n\n",
                    s.routing.text, c.routing.expert_skew(), c.routing.rank_imbalance(static_cast<int>(p.ep)),
                    c.routing.gini()));
  print(result_table(c, true).text());
  if (o.detail == "messages") print("\n" + message_table(c).text());
  for (const DispatcherForecast& f : c.forecasts)
    if (!f.not_ranked.empty()) print(fmt::format("not ranked: {}: {}\n", f.dispatcher, f.not_ranked));
  for (const replay::ExcludedDispatcher& e : c.excluded)
    print(fmt::format("not {}: {}\n", e.dispatcher, e.rule));
  print("\n");
  if (c.runner_up >= 0)
    print(
        fmt::format("{} is {:.2f}x as fast as {} ({:.2f} to {:.2f}), the fastest with probability {:.2f}.\n",
                    c.forecasts[c.winner].dispatcher, c.speedup.value, c.forecasts[c.runner_up].dispatcher,
                    c.speedup.low, c.speedup.high, c.probability));
  print(c.because + "\n");
}

int run_compare(const CompareOptions& o, const CommonOptions& common) {
  models::Scenario scenario = scenario_of(o, common);
  if (scenario.scope == models::Scenario::Scope::kStep)
    throw InputError(
        "compare: found scope step, expected layer: forecasts of a whole step are not built yet");
  const LayerComparison c = replay::compare_layer(std::move(scenario), {.draws = o.draws});
  for (const std::string& warning : c.warnings) warn(common, warning);
  switch (common.format) {
    case Format::kJson:
      print_json(result_json(c, o, common));
      break;
    case Format::kCsv:
      print(o.detail == "messages" ? message_table(c).csv() : result_table(c, false).csv());
      break;
    case Format::kTable:
      print_people(c, o);
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
        app.add_option("--recompute", o->recompute, "none, activation or full [none]");
        app.add_option("--scope", o->scope, "layer or step [layer]")->check(CLI::IsMember({"layer", "step"}));
        app.add_option("--detail", o->detail, "messages: every message with its bytes per rank")
            ->check(CLI::IsMember({"messages"}));
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
        app.add_flag("--inference", o->inference, "Forward only [forward and backward]");
        return [o](const CommonOptions& common) { return run_compare(*o, common); };
      }};
}

}  // namespace moesim::tools

#include "tools/moesim/verbs/compare_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "models/hardware/cluster.h"
#include "tools/moesim/questions/inputs.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/layer_operations.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;
using replay::DispatcherForecast;
using replay::LayerComparison;

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

ordered_json memory_json(const DispatcherForecast& f) {
  const models::RankMemory& m = f.memory.worst;
  ordered_json j{{"rank", f.memory.rank},
                 {"stage", f.memory.stage},
                 {"parameters_bytes", m.parameters},
                 {"gradients_bytes", m.gradients},
                 {"optimizer_bytes", m.optimizer},
                 {"activations_bytes", m.activations},
                 {"transient_bytes", m.transient},
                 {"persistent_bytes", m.persistent},
                 {"total_bytes", f.memory.max_bytes},
                 {"limit_bytes", f.memory.limit_bytes}};
  if (!f.memory.fits)
    j["first_not_fitting"] = {{"stage", f.memory.first_stage},
                              {"rank", f.memory.first_rank},
                              {"missing_bytes", f.memory.first_missing_bytes}};
  j["curve"] = ordered_json::array();
  for (const auto& [time_us, point] : f.memory_over_time)
    j["curve"].push_back({{"time_us", time_us},
                          {"pass", point.forward ? "forward" : "backward"},
                          {"what", point.what},
                          {"bytes", point.bytes}});
  return j;
}

ordered_json operations_json(const DispatcherForecast& f) {
  ordered_json all = ordered_json::array();
  for (const LayerOperation& row : operations_of(f))
    all.push_back({{"pass", row.forward ? "forward" : "backward"},
                   {"part", row.dense ? "dense" : "dispatcher"},
                   {"op", kind_of(*row.op)},
                   {"what", row.op->name},
                   {"category", sim::name(row.op->category)},
                   {"start_us", row.start_us},
                   {"wait_us", row.wait_us},
                   {"time_us", row.time_us}});
  return all;
}

// What each rank of the dispatch group does in the dispatcher's part of the layer.
struct RankRow {
  std::int64_t balanced = 0, computed = 0, sent = 0, received = 0;
  double expert_us = 0, transfer_us = 0, wait_us = 0;
};

std::vector<RankRow> ranks_of(const DispatcherForecast& f) {
  std::vector<RankRow> rows(static_cast<std::size_t>(f.program.ranks()));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].balanced = f.program.balanced_rows[r];
    rows[r].computed = f.program.computed_rows[r];
  }
  for (std::size_t s = 1; s < std::min<std::size_t>(f.trace.size(), 3); ++s) {
    const std::vector<models::Op>& pass = s == 1 ? f.program.forward() : f.program.backward();
    for (std::size_t i = 0; i < pass.size(); ++i)
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::size_t at = i * rows.size() + r;
        const auto us = [&](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
        const double time = us(f.trace[s].end[at] - f.trace[s].begin[at]);
        if (pass[i].kind == models::OpKind::kGemm) rows[r].expert_us += time;
        if (pass[i].kind != models::OpKind::kCollective) continue;
        rows[r].transfer_us += time;
        rows[r].wait_us += us(f.trace[s].begin[at] - f.trace[s].start[at]);
        rows[r].sent += f.program.value(pass[i].tx, static_cast<int>(r));
        rows[r].received += f.program.value(pass[i].rx, static_cast<int>(r));
      }
  }
  return rows;
}

ordered_json ranks_json(const DispatcherForecast& f) {
  ordered_json all = ordered_json::array();
  const std::vector<RankRow> rows = ranks_of(f);
  for (std::size_t r = 0; r < rows.size(); ++r)
    all.push_back({{"rank", r},
                   {"balanced_rows", rows[r].balanced},
                   {"computed_rows", rows[r].computed},
                   {"tx_bytes", rows[r].sent},
                   {"rx_bytes", rows[r].received},
                   {"expert_us", rows[r].expert_us},
                   {"transfer_us", rows[r].transfer_us},
                   {"wait_us", rows[r].wait_us}});
  return all;
}

ordered_json forecast_json(const DispatcherForecast& f, LayerDetail detail) {
  const Spread tx = spread_of(f.tx_bytes);
  ordered_json j{
      {"dispatcher", f.dispatcher},
      {"time_us", estimate_json(f.time_us)},
      {"healthy_time_us", f.healthy_us},
      {"outside_domain", f.outside_domain},
      {"breakdown_us", breakdown_json(f)},
      {"critical_rank", f.critical_rank},
      {"tx_bytes_per_rank", {{"min", tx.min}, {"mean", tx.mean}, {"max", tx.max}}},
      {"host_syncs", {{"forward", f.host_syncs_forward}, {"backward", f.host_syncs_backward}}},
      {"peak_memory_bytes",
       {{"max", f.memory.max_bytes}, {"rank", f.memory.rank}, {"stage", f.memory.stage}}},
      {"fits", f.memory.fits},
      {"memory", memory_json(f)},
      {"overload", {{"avg", f.overload.avg}, {"max", f.overload.max}, {"max_cum", f.overload.max_cum}}},
      {"saved_bytes_per_rank", f.program.saved_bytes},
      {"rows_per_rank", f.program.computed_rows}};
  if (!f.memory.fits) j["missing_bytes"] = f.memory.missing_bytes;
  if (f.network.groups > 0)
    j["network"] = {{"timing", "flow"},
                    {"calibrated_us", f.network.calibrated_us},
                    {"groups", f.network.groups},
                    {"busiest_link", link_json(f.network.busiest)}};
  if (!f.not_ranked.empty()) j["not_ranked"] = f.not_ranked;
  if (f.program.dropped_rows > 0) j["dropped_rows"] = f.program.dropped_rows;
  if (!f.program.counters.empty()) {
    ordered_json counters = ordered_json::object();
    for (const auto& [name, count] : f.program.counters) counters[name] = count;
    j["counters"] = counters;
  }
  if (detail == LayerDetail::kMessages) j["messages"] = messages_json(f.program);
  if (detail == LayerDetail::kOperations) j["operations"] = operations_json(f);
  if (detail == LayerDetail::kRanks) j["ranks"] = ranks_json(f);
  return j;
}

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
    if (static_cast<int>(i) == c.winner) table.mark_best();
  }
  return table;
}

// Where the time of each dispatcher goes, beside each other; and who has how much to compute.
std::string time_bars(const LayerComparison& c) {
  std::vector<BarRow> rows;
  for (std::size_t i = 0; i < c.forecasts.size(); ++i) {
    const DispatcherForecast& f = c.forecasts[i];
    const bool best = static_cast<int>(i) == c.winner;
    rows.push_back({f.dispatcher + (best ? " *" : ""), breakdown_parts(f.breakdown_us),
                    fmt::format("{:.1f}", f.time_us.value), best});
  }
  std::string text = bar_chart(rows);
  const std::vector<std::int64_t>& computed =
      c.forecasts[static_cast<std::size_t>(c.winner)].program.computed_rows;
  if (computed.size() > 1)
    text += fmt::format("rows of ranks 0 to {}: {}\n", computed.size() - 1,
                        sparkline(std::vector<double>(computed.begin(), computed.end())));
  return text;
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

Table operation_table(const LayerComparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"pass", Table::Align::kLeft},
               {"part", Table::Align::kLeft},
               {"op", Table::Align::kLeft},
               {"what", Table::Align::kLeft},
               {"category", Table::Align::kLeft},
               {"start [us]"},
               {"wait [us]"},
               {"time [us]"}});
  for (const DispatcherForecast& f : c.forecasts)
    for (const LayerOperation& row : operations_of(f))
      table.row({f.dispatcher, row.forward ? "forward" : "backward", row.dense ? "dense" : "dispatcher",
                 std::string(kind_of(*row.op)), std::string(row.op->name),
                 std::string(sim::name(row.op->category)), fmt::format("{:.2f}", row.start_us),
                 fmt::format("{:.2f}", row.wait_us), fmt::format("{:.2f}", row.time_us)});
  return table;
}

Table rank_table(const LayerComparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"rank"},
               {"balanced rows"},
               {"computed rows"},
               {"sent [MB]"},
               {"received [MB]"},
               {"experts [us]"},
               {"transfers [us]"},
               {"waits [us]"}});
  for (const DispatcherForecast& f : c.forecasts) {
    const std::vector<RankRow> rows = ranks_of(f);
    for (std::size_t r = 0; r < rows.size(); ++r)
      table.row({f.dispatcher, fmt::format("{}", r), fmt::format("{}", rows[r].balanced),
                 fmt::format("{}", rows[r].computed),
                 fmt::format("{:.3f}", static_cast<double>(rows[r].sent) * 1e-6),
                 fmt::format("{:.3f}", static_cast<double>(rows[r].received) * 1e-6),
                 microseconds(rows[r].expert_us), microseconds(rows[r].transfer_us),
                 microseconds(rows[r].wait_us)});
  }
  return table;
}

Table memory_table(const LayerComparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"stage"},
               {"rank"},
               {"parameters [GB]"},
               {"gradients"},
               {"optimizer"},
               {"activations"},
               {"transient"},
               {"buffers"},
               {"total"},
               {"limit"},
               {"first that does not fit", Table::Align::kLeft}});
  const auto gb = [](double bytes) { return fmt::format("{:.2f}", bytes * 1e-9); };
  for (const DispatcherForecast& f : c.forecasts) {
    const models::RankMemory& m = f.memory.worst;
    table.row({f.dispatcher, fmt::format("{}", f.memory.stage), fmt::format("{}", f.memory.rank),
               gb(m.parameters), gb(m.gradients), gb(m.optimizer), gb(m.activations), gb(m.transient),
               gb(m.persistent), gb(f.memory.max_bytes), gb(f.memory.limit_bytes),
               f.memory.fits ? "-"
                             : fmt::format("stage {} rank {}, by {}", f.memory.first_stage,
                                           f.memory.first_rank, format_bytes(f.memory.first_missing_bytes))});
  }
  return table;
}

Table step_table(const LayerComparison& c) {
  Table table({{"per step", Table::Align::kLeft},
               {"op", Table::Align::kLeft},
               {"ranks"},
               {"calls"},
               {"buffer [MB]"},
               {"sent [MB]"},
               {"time [us]"}});
  for (const replay::StepCollective& one : c.step_collectives)
    table.row({std::string(one.what.what), std::string(models::name_of(one.what.kind)),
               fmt::format("{}", one.what.group), fmt::format("{}", one.what.calls),
               fmt::format("{:.3f}", static_cast<double>(one.what.bytes) * 1e-6),
               fmt::format("{:.3f}", static_cast<double>(one.what.tx) * 1e-6), microseconds(one.time_us)});
  return table;
}

Table detail_table(const LayerComparison& c, LayerDetail detail) {
  switch (detail) {
    case LayerDetail::kMessages:
      return message_table(c);
    case LayerDetail::kOperations:
      return operation_table(c);
    case LayerDetail::kRanks:
      return rank_table(c);
    case LayerDetail::kMemory:
      return memory_table(c);
    case LayerDetail::kNone:
      break;
  }
  return result_table(c, false);
}

}  // namespace

LayerDetail layer_detail(const std::string& name) {
  if (name == "messages") return LayerDetail::kMessages;
  if (name == "operations") return LayerDetail::kOperations;
  if (name == "ranks") return LayerDetail::kRanks;
  if (name == "memory") return LayerDetail::kMemory;
  return LayerDetail::kNone;
}

nlohmann::ordered_json layer_json(const replay::LayerComparison& c, LayerDetail detail,
                                  const CommonOptions& common) {
  ordered_json inputs = describe_inputs(common);
  inputs["scenario"] = models::to_json(c.scenario);
  for (const std::filesystem::path& file : c.scenario.files) add_input_file(inputs, file);
  if (c.scenario.routing.kind == models::RoutingSpec::Kind::kFile)
    add_input_file(inputs, c.scenario.routing.path);
  ordered_json result = envelope("compare", inputs, c.warnings);
  result["routing"] = {{"expert_skew", c.routing.expert_skew()},
                       {"rank_imbalance", c.routing.rank_imbalance(static_cast<int>(c.scenario.parallel.ep))},
                       {"gini", c.routing.gini()}};
  result["scenarios"] = ordered_json::array();
  for (const DispatcherForecast& f : c.forecasts) result["scenarios"].push_back(forecast_json(f, detail));
  result["excluded"] = ordered_json::array();
  for (const replay::ExcludedDispatcher& e : c.excluded)
    result["excluded"].push_back({{"dispatcher", e.dispatcher}, {"rule", e.rule}});
  if (!c.step_collectives.empty()) {
    result["step_collectives"] = ordered_json::array();
    for (const replay::StepCollective& one : c.step_collectives)
      result["step_collectives"].push_back({{"what", one.what.what},
                                            {"op", models::name_of(one.what.kind)},
                                            {"ranks", one.what.group},
                                            {"calls", one.what.calls},
                                            {"buffer_bytes", one.what.bytes},
                                            {"tx_bytes", one.what.tx},
                                            {"time_us", one.time_us}});
  }
  result["winner"] = {{"dispatcher", c.forecasts[c.winner].dispatcher},
                      {"speedup", estimate_json(c.speedup)},
                      {"probability", c.probability}};
  result["because"] = c.because;
  return result;
}

void print_layer(const replay::LayerComparison& c, LayerDetail detail) {
  const models::Scenario& s = c.scenario;
  const models::Parallel& p = s.parallel;
  print(fmt::format("{} on {}: one MoE layer, {}; EP {} x ETP {}, TP {}, {} tokens per rank, top-{}\n",
                    s.model.name, s.cluster->name, s.train ? "forward and backward" : "forward", p.ep, p.etp,
                    p.tp, c.routing.max_tokens(), s.topk));
  print(fmt::format("routing {}: busiest expert {:.2f}x, busiest rank {:.2f}x the mean, Gini {:.3f}\n\n",
                    s.routing.text, c.routing.expert_skew(), c.routing.rank_imbalance(static_cast<int>(p.ep)),
                    c.routing.gini()));
  print(result_table(c, true).text());
  print("\n" + time_bars(c));
  if (detail != LayerDetail::kNone) print("\n" + detail_table(c, detail).text());
  if (!c.step_collectives.empty()) print("\n" + step_table(c).text());
  for (const DispatcherForecast& f : c.forecasts)
    if (f.network.groups > 0)
      print(fmt::format(
          "network, {}: {} groups at once take {:.2f}x as long as one without contention; busiest link "
          "{} -> {}, {:.0f} %\n",
          f.dispatcher, f.network.groups, f.time_us.value / f.network.calibrated_us, f.network.busiest.from,
          f.network.busiest.to, 100 * f.network.busiest.utilisation));
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
  if (c.scenario.faults.slow()) {
    const DispatcherForecast& w = c.forecasts[static_cast<std::size_t>(c.winner)];
    print(fmt::format("faults: {} instead of {} on a healthy machine ({})\n", format_us(w.time_us.value),
                      format_us(w.healthy_us), percent(w.time_us.value / w.healthy_us - 1)));
  }
  print(c.because + "\n");
}

std::string layer_csv(const replay::LayerComparison& c, LayerDetail detail) {
  return detail_table(c, detail).csv();
}

}  // namespace moesim::tools

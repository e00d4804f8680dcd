#include "tools/moesim/verbs/compare_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/units.h"
#include "models/hardware/cluster.h"
#include "models/step/training_flops.h"
#include "replay/run/portions.h"
#include "tools/moesim/questions/inputs.h"
#include "tools/moesim/questions/whatif_evaluate.h"
#include "tools/moesim/show/bars.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::StepForecast;
using nlohmann::ordered_json;
using sim::Category;

struct Comparison {
  std::vector<StepForecast> forecasts;
  std::vector<std::pair<std::string, std::string>> excluded;  // dispatcher, rule
  std::size_t winner = 0;
  std::ptrdiff_t runner_up = -1;
  models::Estimate speedup = models::Estimate::exact(1);
  double probability = 1;
  std::string because;
  std::vector<std::string> warnings;
};

std::string explain(const Comparison& c) {
  const StepForecast& w = c.forecasts[c.winner];
  if (c.runner_up < 0) return fmt::format("{} is the only dispatcher that was compared.", w.dispatcher);
  const StepForecast& o = c.forecasts[static_cast<std::size_t>(c.runner_up)];
  static const std::vector<replay::Portion> kParts{
      {"dispatch and combine", {Category::dispatch, Category::combine}},
      {"permutation", {Category::permute, Category::unpermute}},
      {"the experts", {Category::expert}},
      {"waiting for slower ranks", {Category::straggler_wait}},
      {"host synchronisation and launches", {Category::host_sync}},
      {"the bubble", {Category::bubble}}};
  std::string most;
  double saved = 0, mine = 0, theirs = 0;
  for (const replay::Portion& part : replay::comparable(kParts, o.breakdown_us, w.breakdown_us)) {
    const double a = part.us(w.breakdown_us), b = part.us(o.breakdown_us);
    if (b - a > saved) saved = b - a, most = part.name, mine = a, theirs = b;
  }
  if (most.empty()) return fmt::format("{} and {} take the same time.", w.dispatcher, o.dispatcher);
  return fmt::format("{} wins over {} by {} a step, most of it in {} ({} against {}).", w.dispatcher,
                     o.dispatcher, format_us(o.time_us.value - w.time_us.value), most, format_us(mine),
                     format_us(theirs));
}

void decide(Comparison& c) {
  std::vector<std::size_t> order(c.forecasts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return c.forecasts[a].time_us.value < c.forecasts[b].time_us.value;
  });
  c.winner = order.front();
  if (order.size() > 1) {
    c.runner_up = static_cast<std::ptrdiff_t>(order[1]);
    const StepForecast &w = c.forecasts[c.winner], &o = c.forecasts[order[1]];
    const double ratio = o.time_us.value / w.time_us.value;
    c.speedup = models::Estimate::exact(ratio);
    // What the profile does not know hits both alike, so the ratio varies with the draws alone.
    if (!w.draws_us.empty()) {
      std::vector<double> ratios;
      double wins = 0;
      for (std::size_t d = 0; d < w.draws_us.size(); ++d) {
        ratios.push_back(o.draws_us[d] / w.draws_us[d]);
        bool fastest = true;
        for (const StepForecast& f : c.forecasts) fastest = fastest && f.draws_us[d] >= w.draws_us[d];
        wins += fastest ? 1 : 0;
      }
      c.speedup = models::Estimate::from_samples(ratio, ratios);
      c.probability = wins / static_cast<double>(ratios.size());
    }
  }
  c.because = explain(c);
}

std::string memory_text(const models::StepMemory& m) {
  if (m.fits) return "yes";
  return fmt::format("no: {} on stage {}", format_bytes(m.missing_bytes), m.stage);
}

Table step_table(const Comparison& c, bool people) {
  static const std::vector<replay::Portion> kParts{
      {"attention", {Category::attention}},
      {"experts", {Category::expert}},
      {"router+permute", {Category::router, Category::permute, Category::unpermute}},
      {"dispatch+combine", {Category::dispatch, Category::combine}},
      {"dense+loss", {Category::other, Category::embedding, Category::loss}},
      {"host", {Category::host_sync}},
      {"wait", {Category::straggler_wait}},
      {"p2p", {Category::p2p}},
      {"bubble", {Category::bubble}},
      {"grads", {Category::grad_sync}},
      {"optimizer", {Category::optimizer}}};
  std::vector<Table::Column> columns{{"dispatcher", Table::Align::kLeft},
                                     {"step [ms]"},
                                     {"low"},
                                     {"high"},
                                     {"tokens/s/GPU"},
                                     {"TFLOP/s/GPU"},
                                     {"MFU"}};
  for (const replay::Portion& part : kParts) columns.push_back({part.name});
  for (const char* name : {"memory [GB]", "fits"}) columns.push_back({name});
  Table table(columns);
  for (std::size_t i = 0; i < c.forecasts.size(); ++i) {
    const StepForecast& f = c.forecasts[i];
    std::vector<std::string> row{f.dispatcher + (people && i == c.winner ? " *" : ""),
                                 fmt::format("{:.1f}", f.time_us.value * 1e-3),
                                 fmt::format("{:.1f}", f.time_us.low * 1e-3),
                                 fmt::format("{:.1f}", f.time_us.high * 1e-3),
                                 fmt::format("{:.0f}", f.tokens_per_s_per_gpu),
                                 fmt::format("{:.1f}", f.tflops_per_gpu),
                                 fmt::format("{:.1f} %", f.mfu * 100)};
    for (const replay::Portion& part : kParts)
      row.push_back(fmt::format("{:.1f}", part.us(f.breakdown_us) * 1e-3));
    row.push_back(fmt::format("{:.1f}", f.memory.max_bytes * 1e-9));
    row.push_back(memory_text(f.memory));
    table.row(row);
    if (i == c.winner) table.mark_best();
  }
  return table;
}

}  // namespace

ordered_json step_json(const StepForecast& f) {
  ordered_json parts = ordered_json::object();
  for (std::size_t i = 0; i < sim::kCategories; ++i)
    if (f.breakdown_us[i] > 0) parts[std::string(sim::name(static_cast<Category>(i)))] = f.breakdown_us[i];
  const models::RankMemory& m = f.memory.worst;
  ordered_json j{{"dispatcher", f.dispatcher},
                 {"time_us", estimate_json(f.time_us)},
                 {"tokens_per_s_per_gpu", f.tokens_per_s_per_gpu},
                 {"tflops_per_gpu", f.tflops_per_gpu},
                 {"mfu", f.mfu},
                 {"flop_convention", models::kFlopConvention},
                 {"healthy_time_us", f.healthy_us},
                 {"outside_domain", f.outside_domain},
                 {"breakdown_us", parts},
                 {"bubble_us", f.bubble_us},
                 {"exposed_comm_us", f.exposed_comm_us},
                 {"critical_stage", f.critical_stage},
                 {"gpus", f.gpus},
                 {"tokens", f.tokens},
                 {"peak_memory_bytes", {{"max", f.memory.max_bytes}, {"stage", f.memory.stage}}},
                 {"memory_bytes",
                  {{"parameters", m.parameters},
                   {"gradients", m.gradients},
                   {"optimizer", m.optimizer},
                   {"activations", m.activations},
                   {"transient", m.transient},
                   {"persistent", m.persistent}}},
                 {"memory_limit_bytes", f.memory.limit_bytes},
                 {"fits", f.memory.fits}};
  if (f.goodput.failures_per_day > 0)
    j["goodput"] = {{"share", f.goodput.share},
                    {"tokens_per_s_per_gpu", f.goodput.share * f.tokens_per_s_per_gpu},
                    {"failures_per_day", f.goodput.failures_per_day},
                    {"checkpoint_interval_s", f.goodput.interval_s}};
  if (!f.memory.fits) j["missing_bytes"] = f.memory.missing_bytes;
  if (!f.memory.recompute_that_fits.empty()) j["recompute_that_fits"] = f.memory.recompute_that_fits;
  return j;
}

int compare_step(models::Scenario scenario, int draws, const CommonOptions& common) {
  scenario.resolve();
  Comparison c;
  for (const models::DispatcherSpec& spec : scenario.dispatchers) {
    try {
      const models::StepForecaster forecaster(scenario, spec);
      c.forecasts.push_back(forecaster.forecast(draws));
    } catch (const InputError& error) {
      if (!scenario.all_dispatchers) throw;
      c.excluded.emplace_back(spec.text(), error.what());
      continue;
    }
    add_new(c.warnings, c.forecasts.back().warnings);
  }
  if (c.forecasts.empty())
    throw InputError("compare: found no legal dispatcher, expected one; " +
                     (c.excluded.empty() ? std::string("none was named") : c.excluded.front().second));
  decide(c);
  for (const std::string& warning : c.warnings) warn(common, warning);
  const StepForecast& w = c.forecasts[c.winner];
  if (wants_result(common)) {
    ordered_json inputs = describe_inputs(common);
    inputs["scenario"] = models::to_json(scenario);
    for (const std::filesystem::path& file : scenario.files) add_input_file(inputs, file);
    ordered_json result = envelope("compare", inputs, c.warnings);
    result["scenarios"] = ordered_json::array();
    for (const StepForecast& f : c.forecasts) result["scenarios"].push_back(step_json(f));
    result["excluded"] = ordered_json::array();
    for (const auto& [dispatcher, rule] : c.excluded)
      result["excluded"].push_back({{"dispatcher", dispatcher}, {"rule", rule}});
    result["winner"] = {
        {"dispatcher", w.dispatcher}, {"speedup", estimate_json(c.speedup)}, {"probability", c.probability}};
    result["because"] = c.because;
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(step_table(c, false).csv());
    return 0;
  }
  const models::Parallel& p = scenario.parallel;
  print(fmt::format(
      "{} on {}: one training step of {:.3g} tokens on {} GPUs; TP {} CP {} PP {} x VPP {} EP {} ETP {} "
      "DP {}, {} microbatches of {} x {}, {}, {}, recompute {}\n\n",
      scenario.model.name, scenario.cluster->name, w.tokens, w.gpus, p.tp, p.cp, p.pp, p.vpp, p.ep, p.etp,
      p.dp, p.microbatches, p.micro_batch, p.seq, scenario.training.precision,
      name_of(scenario.training.pipeline), scenario.training.recompute.text()));
  print(step_table(c, true).text());
  std::vector<BarRow> bars;
  for (std::size_t i = 0; i < c.forecasts.size(); ++i) {
    const StepForecast& f = c.forecasts[i];
    bars.push_back({f.dispatcher + (i == c.winner ? " *" : ""), breakdown_parts(f.breakdown_us),
                    fmt::format("{:.1f}", f.time_us.value * 1e-3), i == c.winner});
  }
  print("\n" + bar_chart(bars));
  for (const auto& [dispatcher, rule] : c.excluded) print(fmt::format("not {}: {}\n", dispatcher, rule));
  print(fmt::format("\nexposed communication {} and bubble {} of the step; TFLOP/s: {}\n",
                    format_us(w.exposed_comm_us), format_us(w.bubble_us), models::kFlopConvention));
  if (scenario.faults.slow())
    print(fmt::format("faults: {} instead of {} on a healthy machine ({})\n", format_us(w.time_us.value),
                      format_us(w.healthy_us), percent(w.time_us.value / w.healthy_us - 1)));
  if (w.goodput.failures_per_day > 0)
    print(
        fmt::format("failures: {:.2f} a day on {} GPUs; with a checkpoint every {:.0f} s, {:.1f} % of the "
                    "time is work that "
                    "counts: {:.0f} tokens/s/GPU\n",
                    w.goodput.failures_per_day, w.gpus, w.goodput.interval_s, w.goodput.share * 100,
                    w.goodput.share * w.tokens_per_s_per_gpu));
  if (!w.memory.fits)
    print(fmt::format("does not fit: stage {} misses {}{}\n", w.memory.stage,
                      format_bytes(w.memory.missing_bytes),
                      w.memory.recompute_that_fits.empty()
                          ? "; no recomputation makes it fit"
                          : "; --recompute " + w.memory.recompute_that_fits + " would make it fit"));
  if (c.runner_up >= 0)
    print(fmt::format(
        "{} is {:.2f}x as fast as {} ({:.2f} to {:.2f}), the fastest with probability {:.2f}.\n",
        w.dispatcher, c.speedup.value, c.forecasts[static_cast<std::size_t>(c.runner_up)].dispatcher,
        c.speedup.low, c.speedup.high, c.probability));
  print(c.because + "\n");
  return 0;
}

}  // namespace moesim::tools

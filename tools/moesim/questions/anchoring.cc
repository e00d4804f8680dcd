#include "tools/moesim/questions/anchoring.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/statistics.h"
#include "base/text.h"
#include "base/units.h"
#include "calibration/fit/next_rows.h"
#include "models/answers/sentences.h"
#include "models/hardware/cluster.h"
#include "models/step/training_flops.h"
#include "replay/run/run_summary.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/read/training_log.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

using nlohmann::ordered_json;

namespace {

constexpr const char* kUnexplained =
    "The run cannot be explained: it lies outside of all that the forecast holds possible. No dispatcher is "
    "recommended.";

// Before a dispatcher of --measured: the time is that of one MoE layer, forward and backward.
constexpr std::string_view kOfLayer = "layer:";

// Reads a time, or what frameworks print in its place: "240TFLOP/s/GPU" (training_flops.h), "45%MFU" of the
// dense bf16 peak, "6325tokens/s/GPU", "12samples/s" (of the whole job).
double measured_seconds(std::string_view text, const models::Scenario& s) {
  const models::Parallel& p = s.parallel;
  const double samples = step_work(TrainingLog::Unit::kSamplesPerSecond, s);
  const double tokens = step_work(TrainingLog::Unit::kTokensPerSecondAndGpu, s);  // of a GPU
  const double flops = tokens * models::training_flops_per_token(s.model, p.seq, s.topk, s.training.lora);
  const double peak = s.cluster->profile.device().peak_flops[static_cast<std::size_t>(models::DType::kBf16)];
  const std::pair<std::string_view, double> rates[] = {
      {"TFLOP/s/GPU", flops * 1e-12}, {"TFLOPS", flops * 1e-12},
      {"TFLOP/s", flops * 1e-12},     {"%MFU", 100 * flops / peak},
      {"tokens/s/GPU", tokens},       {"tokens/s", samples * static_cast<double>(p.seq)},
      {"samples/s", samples}};
  for (const auto& [unit, work] : rates) {
    if (!text.ends_with(unit)) continue;
    const auto rate = parse_number(trim(text.substr(0, text.size() - unit.size())));
    if (!rate || !(*rate > 0))
      throw InputError(fmt::format("--measured: found {}, expected a rate", in_quotes(text)));
    if (!s.is_step())
      throw InputError(
          fmt::format("--measured: found {} with scope layer, expected a time", in_quotes(text)));
    return work / *rate;
  }
  return parse_seconds(text);
}

double logged_us(const std::string& file, const models::Scenario& scenario) {
  const TrainingLog log = read_training_log(read_file(file, kMaxTrainingLogBytes), file);
  return quantile_of(steady(step_seconds(log, scenario)), 0.5) * kUsPerSecond;
}

// Returns the iteration of a recording of all ranks.
double recorded_us(const std::string& folder, const models::Cluster& cluster) {
  Recordings recordings;
  recordings.add(folder);
  const replay::RecordedJob& run = recordings.jobs().front();
  if (!run.realistic)
    throw InputError(SourcePlace{folder}, "a scaling recording, in which nothing travelled",
                     "a realistic one, whose iteration was a whole step");
  return replay::summarize(run, cluster.gpus_per_node).iteration_us;
}

}  // namespace

void Anchoring::declare(CLI::App& app, bool tolerance) {
  constexpr const char* kGroup = "Question";
  app.add_option(
         "--measured", measured_,
         "What a run of this job took, which all forecasts are anchored to: 1.9s, 240TFLOP/s/GPU, "
         "6325tokens/s/GPU, 40%MFU, or alltoall=1.9s,allgather=2.2s; of one layer of it, as scope layer has "
         "it: layer:alltoall=3ms")
      ->type_name("[[layer:]DISPATCHER=]TIME,...")
      ->group(kGroup);
  app.add_option("--log", log_,
                 "The same from a training log (the median of its steady steps) or a realistic recording")
      ->type_name("PATH")
      ->group(kGroup);
  if (!tolerance) return;
  app.add_option_function(
         "--tolerance", [this](const std::string& text) { say_tolerance(text); },
         "Loss against the fastest dispatcher that a safe choice may have with 90 % [10%]")
      ->type_name("PERCENT")
      ->group(kGroup);
}

void Anchoring::say_tolerance(const std::string& share) {
  tolerance_ = parse_fraction(share);
  if (!(tolerance_ >= 0 && tolerance_ <= 1))
    throw InputError(fmt::format("--tolerance: found {}, expected 0% to 100%", share));
}

std::vector<models::Measured> Anchoring::of(const models::Scenario& scenario) const {
  std::vector<models::Measured> all;
  if (!measured_.empty())
    for (const std::string_view part : split(measured_, ',')) {
      const std::size_t equals = part.rfind('=');
      const std::string_view time = trim(equals == std::string_view::npos ? part : part.substr(equals + 1));
      const double us = measured_seconds(time, scenario) * kUsPerSecond;
      if (!(us > 0 && std::isfinite(us)))
        throw InputError(
            fmt::format("--measured: found {}, expected a time above 0, such as 1.9s", in_quotes(time)));
      std::string_view dispatcher =
          equals == std::string_view::npos ? std::string_view() : trim(part.substr(0, equals));
      const bool layer = dispatcher.starts_with(kOfLayer);
      if (layer) dispatcher.remove_prefix(kOfLayer.size());
      // As answers name it: "alltoall:pad" is alltoall:pad=true.
      all.push_back({dispatcher.empty() ? "" : models::DispatcherSpec::parse(std::string(dispatcher)).text(),
                     us, layer && scenario.is_step()});
    }
  if (!log_.empty()) {
    if (!scenario.is_step())
      throw InputError("--log: found with scope layer, expected step: a log has whole steps");
    all.push_back({"", std::filesystem::is_directory(log_) ? recorded_us(log_, *scenario.cluster)
                                                           : logged_us(log_, scenario)});
  }
  return all;
}

void Anchoring::refuse_measured(const std::string& question) const {
  if (measured())
    throw InputError(
        fmt::format("{}: found with {}, which anchors no forecast, expected neither or another question",
                    measured_.empty() ? "--log" : "--measured", question));
}

std::string anchor_text(const models::Comparison& c) {
  const models::Anchor& anchor = *c.anchor;
  const auto range = [](const models::Estimate& e) {
    return fmt::format("{} ({} to {})", format_us(e.value), format_us(e.low), format_us(e.high));
  };
  std::string text;
  for (std::size_t k = 0; k < anchor.measured.size(); ++k)
    text += fmt::format("measured: {}{} takes {}; the forecast was {}\n",
                        anchor.measured[k].layer ? "a layer with " : "", anchor.measured[k].dispatcher,
                        format_us(anchor.measured[k].us), range(anchor.before[k]));
  if (!anchor.explained) {
    for (const models::Anchor::Suspect& one : anchor.suspects)
      text += fmt::format("  with {} {} it would take {}: say so if the run had it\n", one.path, one.value,
                          format_us(one.us));
    if (anchor.suspects.empty())
      text += "  no other setting that moesim tries explains it: check the model, the plan and the cluster\n";
    return text;
  }
  for (std::size_t i = 0; i < c.answers.size(); ++i)
    if (const models::Answer& a = c.answers[i]; a.ok() && a.time_us.value > 0 && i < anchor.forecasts.size())
      if (anchor.known(a.dispatcher) < 0)
        text += fmt::format("anchored: {} {}; before {}\n", a.dispatcher, range(a.time_us),
                            range(anchor.forecasts[i]));
  for (const models::Anchor::Moved& one : anchor.moved)
    text += fmt::format("learned: {}: x{:.2f} ({:.2f} to {:.2f}), before x{:.2f} ({:.2f} to {:.2f})\n",
                        one.parameter, one.after.value, one.after.low, one.after.high, one.before.value,
                        one.before.low, one.before.high);
  return text + fmt::format("{:.0f} of {} draws explain the run\n", anchor.effective_draws, anchor.drawn);
}

ordered_json unexplained_json(const char* verb, const models::Comparison& c, const CommonOptions& common) {
  ordered_json result = envelope(verb, describe_inputs(common, *c.scenario), c.warnings);
  result["answer"] = kUnexplained;
  result["anchor"] = json_of(*c.anchor);
  return result;
}

ordered_json schema_of_unexplained() {
  const Columns<models::Comparison> figures{
      {"answer", [](const models::Comparison&) { return kUnexplained; }},
      {"anchor", [](const models::Comparison& c) { return *c.anchor; }}};
  ordered_json schema = figures.schema();
  schema["narrow"]["anchor"]["properties"]["explained"]["const"] = false;
  return schema;
}

bool print_unexplained(const char* verb, const models::Comparison& c, const CommonOptions& common) {
  if (!c.anchor || c.anchor->explained) return false;
  if (common.format == Format::kJson) {
    print_json(unexplained_json(verb, c, common));
  } else {
    print(fmt::format("{}\n{}", anchor_text(c), kUnexplained));
  }
  return true;
}

void name_measurement(models::Comparison& comparison, models::AnswerOptions options) {
  if (comparison.anchor) return;  // its draws are no longer those of the profile
  std::string next = calibration::first_measurement(comparison);
  const bool open = comparison.decision.verdict == models::Decision::Verdict::kOpen;
  if (next.empty() && open && 0 < options.draws && options.draws < calibration::kPlanDraws) {
    options.draws = calibration::kPlanDraws;
    options.trace = options.suggest = false;
    models::Comparison more = ask(*comparison.scenario, options);
    // The question remains that of the answer shown.
    more.decision = comparison.decision;
    next = calibration::first_measurement(more);
  }
  comparison.decision.settle = std::move(next);
}

}  // namespace moesim::tools

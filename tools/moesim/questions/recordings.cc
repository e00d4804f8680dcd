#include "tools/moesim/questions/recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <tuple>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/answers/invariants.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/ownership.h"
#include "replay/run/forecast_recording.h"
#include "tools/moesim/show/result_json.h"
#include "traces/cmd_reader.h"

namespace moesim::tools {

using replay::RecordingForecast;

namespace {

constexpr const char *kCalibrated = "calibrated", *kFlow = "flow";

// Whether a replay takes a setting; its parts are taken with it, but of the model only the experts.
bool is_taken(std::string_view path) {
  const std::string_view top = path.substr(0, path.find('.'));
  const auto& known = replay::kRecordedSettings;
  return std::ranges::find(known, path) != known.end() ||
         (top != "model" && std::ranges::find(known, top) != known.end());
}

// Returns the dispatching file beside a recording, in its folder or the one above; empty: none.
std::string beside(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path recording = fs::path(folder).lexically_normal() / "";
  for (const fs::path& place : {recording.parent_path(), recording.parent_path().parent_path()})
    if (std::string file = (place / "dispatching.json").string(); is_file(file)) return file;
  return {};
}

// Takes the file beside the recording where nothing else says the routing: dispatchers are compared under the
// same tokens, and dispatched rows contain more than the rows that each rank received.
void take_routing_beside(const Recordings& recordings, replay::RecordingQuestion& question) {
  if (question.changes("routing")) return;
  const std::string file = beside(recordings.recording(0).source);
  if (file.empty()) return;
  question.routing_beside = models::RoutingSpec::parse(file);
  if (question.resizes() || !question.changes("dispatcher")) return;
  question.said.routing = *question.routing_beside;
  question.said.give("routing", Origin::file(file));
}

}  // namespace

void refuse_other_sizes(const std::string& folder, const traces::NamedTopology& sizes,
                        const traces::NamedTopology& other, const std::string& where) {
  using T = traces::NamedTopology;
  for (const auto& [member, words] : {std::pair{&T::experts, "{} experts"},
                                      {&T::hidden, "hidden size {}"},
                                      {&T::layers, "{} layers"},
                                      {&T::seq, "sequences of {}"}})
    if (sizes.*member && other.*member && sizes.*member != other.*member)
      throw InputError(SourcePlace{folder},
                       "a recording of " + fmt::format(fmt::runtime(words), *(sizes.*member)),
                       "one of " + fmt::format(fmt::runtime(words), *(other.*member)) + where);
}

void Recordings::add(const std::string& folder) {
  recordings_.push_back(traces::read_cmd(folder));
  const traces::Recording& recording = recordings_.back();
  jobs_.push_back(replay::interpret(recording));
  const auto& first = jobs_.front().topology;
  const auto& last = jobs_.back().topology;
  if (first.str() != last.str())
    throw InputError(SourcePlace{folder}, "a recording of " + last.str(),
                     "one of " + first.str() + " as in " + recordings_.front().source);
  refuse_other_sizes(folder, recording.named, recordings_.front().named,
                     " as in " + recordings_.front().source);
}

std::vector<std::string> Recordings::warnings() const {
  std::vector<std::string> all;
  const auto add_new = [&](const std::vector<std::string>& some) {
    for (const std::string& warning : some)
      if (std::find(all.begin(), all.end(), warning) == all.end()) all.push_back(warning);
  };
  for (const auto& job : jobs_)
    if (!job.unknown_calls.empty()) add_new({job.unknown_calls});
  for (const auto& recording : recordings_) add_new(recording.warnings);
  for (const auto& job : jobs_) add_new(job.warnings);
  return all;
}

std::optional<std::string> replay_refusal(const traces::Recording& recording, bool whole) {
  try {
    const replay::RecordedJob job = replay::interpret(recording);
    if (!whole) return std::nullopt;
    replay::RecordingQuestion question;
    question.recorded_there = true;
    // On the GPUs named in its files, so that nothing is scaled.
    const auto machine = replay::recorded_machine(std::span(&job, 1), recording.named,
                                                  replay::cluster_of(question, job.topology), question);
    // Without its number of nodes a cluster holds any job.
    if (!machine.cluster.empty()) {
      question.said.set_cluster(machine.cluster.substr(0, machine.cluster.rfind('x')));
      question.said.give("cluster", Origin::file(machine.cluster));
    }
    replay::forecast_recording(std::span(&job, 1), recording.named, question);
  } catch (const InputError& error) {
    return error.what();
  }
  return std::nullopt;
}

void declare_recorded_on(CLI::App& app, std::string& cluster) {
  app.add_option(
      "--recorded-on", cluster,
      "cluster whose GPUs made the recording, where its files do not say; computing is scaled from "
      "them to those of --cluster");
}

void RecordingOptions::declare(CLI::App& app) {
  static constexpr QuestionOptions::Told kOfJobAndMachine[] = {
      {"cluster", "built-in name or file [as many H800 nodes as the job needs]"},
      {"parallel.microbatches", "per rank and step, of a scaling recording"},
      {"prices", nullptr}};
  settings_.declare_fields(app, true, kOfJobAndMachine);
  app.add_option("--timing", timing_, "flow: transfers of a scaling recording share links [calibrated]")
      ->check(CLI::IsMember({kCalibrated, kFlow}));
  app.add_option("--draws", draws_, "forecasts drawn for the 90 % interval; 0: run-to-run noise only")
      ->check(CLI::Range(0, 10000).description(""))
      ->capture_default_str();
  declare_job(app);
}

void RecordingOptions::declare_job(CLI::App& app) {
  const auto declare = [&](const char* flag, const char* path, const std::string& help) {
    return app.add_option_function(
        flag, [this, path](const std::string& text) { say(path, text); }, help);
  };
  declare("--dispatcher", "dispatcher", "name[:options] in place of the recorded one [as-recorded]");
  declare("--routing", "routing",
          "who routes to whom: a name or a dispatching file; default: as-recorded, and under another "
          "dispatcher the dispatching.json beside the recording");
  declare("--model", "model", "the recorded model, where its sizes do not tell it");
  declare_recorded_on(app, recorded_on_);
  for (const auto& [flag, path, help] : {std::tuple{"--seq", "parallel.seq", "tokens of a sequence"},
                                         {"--ep", "parallel.ep", "expert-parallel size"},
                                         {"--experts", "model.experts", "experts of a layer"},
                                         {"--dp", "parallel.dp", "data-parallel size, experts included"},
                                         {"--pp", "parallel.pp", "pipeline stages"},
                                         {"--nodes", "cluster.nodes", "nodes of the cluster"}})
    declare(flag, path, std::string(help) + ", other than recorded")->type_name("INT");
  app.add_flag("--ranks-missing", ranks_missing_,
               "of a real run: ranks that were not recorded are filled by symmetry");
}

void RecordingOptions::say(const std::string& name, const std::string& text) {
  if (name == "timing") {
    if (text != kCalibrated && text != kFlow)
      throw InputError(
          fmt::format("--timing: found {}, expected {} or {}", in_quotes(text), kCalibrated, kFlow));
    timing_ = text;
  } else if (name == "recorded-on") {
    recorded_on_ = text;
  } else if (name == "routing" && (text == kAsRecorded || text == kMeasuredRouting)) {
    routing_ = text;
  } else if (name == "dispatcher" && text == kAsRecorded) {
    return;
  } else if (models::find_field(name) != nullptr) {
    settings_.say(name, text);
  } else {
    settings_.set(name, text);
  }
}

std::vector<std::pair<std::string, std::string>> RecordingOptions::said() const {
  std::vector<std::pair<std::string, std::string>> all = settings_.all_said();
  const auto add = [&](const char* name, const std::string& text) {
    if (!text.empty()) all.emplace_back(name, text);
  };
  add("timing", timing_ == kCalibrated ? "" : timing_);
  add("recorded-on", recorded_on_);
  add("routing", routing_);
  add("draws", draws_ == 0 ? "" : std::to_string(draws_));
  add("ranks-missing", ranks_missing_ ? "true" : "");
  return all;
}

replay::RecordingQuestion RecordingOptions::question(const Recordings& recordings, models::Question asked,
                                                     const Recordings* measured) const {
  replay::RecordingQuestion out;
  out.said = std::move(asked.said);
  for (const auto& [path, origin] : out.said.origins.all())
    if (origin.kind != Origin::Kind::kRecording && !is_taken(path))
      throw InputError(fmt::format("{}: found with a recording, expected one of {}", path,
                                   fmt::join(replay::kRecordedSettings, ", ")));
  if (out.changes("dispatcher")) models::name_dispatchers(out.said);
  if (const models::Architecture* model = out.model(); model && model->experts == 0)
    throw InputError(fmt::format("model {}: found no experts, expected a mixture of experts", model->name));
  if (const models::Architecture* model = out.model()) {
    traces::NamedTopology said;
    said.hidden = model->hidden;
    if (!out.changes("model.experts")) said.experts = model->experts;
    refuse_other_sizes(recordings.recording(0).source, recordings.recording(0).named, said,
                       " as --model has it");
  }
  out.recorded_on = recorded_on_;
  out.ranks_missing = ranks_missing_;
  out.draws = draws_;
  out.flow = timing_ == kFlow;
  if (routing_ == kMeasuredRouting) {
    if (!measured)
      throw InputError("--routing: found measured, expected a name or a file: replay has one recording only");
    const replay::CleanJob shown = replay::denoise(measured->jobs());
    out.received.emplace();
    for (int e = 0; e < shown.topology.expert; ++e)
      out.received->push_back(shown.places.at({0, 0, e}).received_rows);
  }
  if (routing_.empty() && !measured) take_routing_beside(recordings, out);
  return out;
}

void RecordingOptions::read_inputs(const CommonOptions& common) const {
  models::Question any;  // with a model and a machine, parts of which may change
  any.said.set_model("mixtral-8x7b");
  any.said.set_cluster("echo-h800x1");
  any.said.give("scope", {Origin::Kind::kRecording, ""});
  models::Scenario said = settings_.over(std::move(any), common).said;
  models::name_dispatchers(said);
  if (is_file(said.routing.path)) read_file(said.routing.path);
  const std::string on = recorded_on_.empty() ? "" : models::Cluster::load(recorded_on_).fabric;
  for (const std::string& fabric : {said.cluster->fabric, on})
    if (is_file(fabric)) read_file(fabric);
}

models::ScenarioPath recording_axis(std::string_view text) {
  if (is_recording_option(text)) return {std::string(text), models::FieldType::kText, ""};
  const models::ScenarioPath found = models::find_path(text);
  if (!is_taken(found.path))
    throw InputError(fmt::format("sweep replay: found the axis {}, expected one of {}, {}", in_quotes(text),
                                 fmt::join(replay::kRecordedSettings, ", "),
                                 fmt::join(kRecordingOptions, ", ")));
  const bool object = found.type == models::FieldType::kObject;
  return {std::string(text), object ? models::FieldType::kText : found.type, found.about};
}

models::Question question_of(const Recordings& recordings) {
  models::Question question;
  question.said = replay::recorded_settings(recordings.jobs().front(), recordings.recording(0).named);
  return question;
}

replay::RecordingForecast ask_recording(const Recordings& recordings,
                                        const replay::RecordingQuestion& question) {
  replay::RecordingForecast answer =
      replay::forecast_recording(recordings.jobs(), recordings.recording(0).named, question);
  models::check_possible("replay", impossible(answer));
  return answer;
}

double tokens_per_s(const models::Forecast& forecast) { return forecast.tokens / forecast.seconds(); }

namespace {

std::optional<double> known_tokens_per_s(const models::Forecast& f) {
  return where(f.tokens > 0, tokens_per_s(f));
}

}  // namespace

Columns<replay::RecordedOverload> columns_of(Of<replay::RecordedOverload>) {
  using O = replay::RecordedOverload;
  Columns<O> all;
  return all.add(columns_of(Of<models::Overload>{}), [](const O& o) { return o.stages.back(); })
      .add({{"metrics", [](const O& o) { return OverloadMetrics{o.logged}; },
             "as every pipeline stage logs them, by stage"},
            {"entries", &O::entries},
            {"replicas", &O::replicas}});
}

Columns<RecordingForecast::Before> columns_of(Of<RecordingForecast::Before>) {
  using B = RecordingForecast::Before;
  return {{"iteration_us", [](const B& b) { return b.time_us.value; }},
          {"what", &B::what},
          {"tokens_per_s?", known_tokens_per_s}};
}

Columns<RecordingForecast> job_columns() {
  using F = RecordingForecast;
  return {
      {"iteration_us", &F::time_us},
      {"measured_iteration_us?", &F::measured_us},
      {"microbatches", &F::microbatches},
      {"topology", [](const F& f) { return f.iteration.topology.str(); }},
      {"tokens_per_s?", known_tokens_per_s, "that all ranks together train on"},
      {"cost_per_million_tokens?",
       {{"value", [](const F& f) { return *cost_per_million_tokens(f); }},
        {"currency", [](const F& f) { return f.settings.prices.currency; }}},
       "",
       [](const F& f) { return cost_per_million_tokens(f).has_value(); }},
      {"before?", &F::before, "the job as it was recorded, where anything differs"},
      {"synthetic", &F::synthetic, "made by the models, measured on no machine"},
      {"recorded_on",
       {{"gpu", [](const F& f) { return f.recorded_on.gpu; }},
        {"told_by", [](const F& f) { return name(f.recorded_on.told); },
         one_of({"user", "files", "times", "nobody"})},
        {"mode", [](const F& f) { return f.recorded_on.mode; },
         one_of({"realistic", "scaling", "fake process group"},
                "a real run, ranks played in turn, or a rank of a script on torch's fake process group")},
        {"same_machine", [](const F& f) { return replay::made_on(f.recorded_on, f.cluster); },
         "the machine of the answer, as far as user or files say"}},
       "whose GPUs made the recording, and who says so: its user, its files, the times of its experts, or "
       "nobody"},
      {"changes?", [](const F& f) { return where(!f.changes.empty(), f.changes); }}};
}

std::optional<double> cost_per_million_tokens(const replay::RecordingForecast& f) {
  const models::PriceTable& prices = f.settings.prices;
  if (f.tokens == 0 || !prices.given()) return std::nullopt;
  return f.per_million_tokens(models::hour_cost(prices, {}, f.cluster, f.gpus).of(f.seconds()));
}

models::Architecture mixture_named(const std::string& name_or_path) {
  models::Architecture model = models::Architecture::load(name_or_path);
  if (model.experts == 0)
    throw InputError(fmt::format("model {}: found no experts, expected a mixture of experts", model.name));
  return model;
}

namespace {

using models::adds_up;

bool amount(double value) { return value >= 0 && std::isfinite(value); }

std::string impossible_iteration(const replay::Iteration& iteration) {
  const double total = iteration.us();
  for (std::size_t r = 0; r < iteration.timeline.rank_count(); ++r) {
    double sum = 0;
    for (const sim::Time part : iteration.timeline.ranks()[r].breakdown) {
      if (part.us() < 0) return fmt::format("a part of {} us of rank {}", part.us(), r);
      sum += part.us();
    }
    if (!adds_up(sum, total))
      return fmt::format("parts of {} us of rank {} in an iteration of {} us", sum, r, total);
  }
  return "";
}

std::string impossible_attribution(const replay::Attribution& attribution, double total) {
  double sum = 0;
  for (const replay::TimeShare& share : attribution.shares) sum += share.us;
  if (!attribution.shares.empty() && !adds_up(sum, total))
    return fmt::format("causes of {} us of an iteration of {} us", sum, total);
  for (const auto* waits : {&attribution.ranks, &attribution.layers})
    for (const replay::Waiting& wait : *waits)
      if (!amount(wait.us)) return fmt::format("a wait of {} us", wait.us);
  return "";
}

std::string impossible_summary(const replay::RunSummary& summary) {
  if (!amount(summary.iteration_us)) return fmt::format("an iteration of {} us", summary.iteration_us);
  for (const replay::StepMean& step : summary.steps)
    if (!amount(step.mean_us)) return fmt::format("an operation of {} us", step.mean_us);
  return amount(summary.p2p_us) ? "" : fmt::format("sends and receives of {} us", summary.p2p_us);
}

}  // namespace

std::string impossible(const replay::RecordingForecast& f) {
  if (std::string part = models::impossible(f); !part.empty()) return part;
  if (!adds_up(f.summary.iteration_us, f.time_us.value))
    return fmt::format("an iteration of {} us and of {} us", f.summary.iteration_us, f.time_us.value);
  if (f.measured_us && !(*f.measured_us > 0 && std::isfinite(*f.measured_us)))
    return fmt::format("a measured time of {} us", *f.measured_us);
  if (std::string part = impossible_iteration(f.iteration); !part.empty()) return part;
  if (f.as_recorded) {
    if (std::string part = models::impossible(*f.as_recorded); !part.empty()) return part;
    if (std::string part = impossible_iteration(f.as_recorded->iteration); !part.empty()) return part;
  }
  if (std::string part = impossible_attribution(f.attribution, f.iteration.us()); !part.empty()) return part;
  if (std::string part = impossible_summary(f.summary); !part.empty()) return part;
  for (const replay::RunSummary& drawn : f.drawn)
    if (std::string part = impossible_summary(drawn); !part.empty()) return part;
  if (f.overload)
    for (const models::Overload& o : f.overload->stages)
      if (!(amount(o.avg) && amount(o.max) && amount(o.max_cum)))
        return fmt::format("an overload of {}, {} and {}", o.avg, o.max, o.max_cum);
  return "";
}

std::string impossible(const replay::Validation& validation) {
  const auto of = [](const replay::Comparison& c) -> std::string {
    if (!(c.measured_us > 0 && std::isfinite(c.measured_us)))
      return fmt::format("a measured {} of {} us", c.name, c.measured_us);
    return models::impossible(models::Estimate{c.forecast_us, c.low_us, c.high_us});
  };
  if (std::string what = of(validation.iteration); !what.empty()) return what;
  for (const replay::Comparison& component : validation.components)
    if (std::string what = of(component); !what.empty()) return what;
  return "";
}

}  // namespace moesim::tools

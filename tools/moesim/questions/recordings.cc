#include "tools/moesim/questions/recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/answers/invariants.h"
#include "replay/run/forecast_recording.h"
#include "traces/cmd_reader.h"

namespace moesim::tools {

namespace {

constexpr std::int64_t kMostOfASize = 1 << 22;

struct JobText {
  const char* option;
  std::string JobOptions::*text;
  const char* help;
};
constexpr JobText kJobTexts[] = {
    {"dispatcher", &JobOptions::dispatcher, "name[:options] in place of the recorded one [as-recorded]"},
    {"routing", &JobOptions::routing,
     "who routes to whom: a name or a dispatching file; default: as-recorded, and under another dispatcher "
     "the "
     "dispatching.json beside the recording"},
    {"model", &JobOptions::model, "the recorded model, where its sizes do not tell it"},
    {"recorded-on", &JobOptions::recorded_on,
     "cluster whose GPUs made the recording, where its files do not say; computing is scaled from "
     "them to those of --cluster"},
};

struct JobSize {
  const char* option;
  const char* help;
};
constexpr JobSize kJobSizes[] = {
    {"seq", "tokens of a sequence"},   {"ep", "expert-parallel size"},
    {"experts", "experts of a layer"}, {"dp", "data-parallel size, experts included"},
    {"pp", "pipeline stages"},         {"nodes", "nodes of the cluster"}};

}  // namespace

void Recordings::add(const std::string& folder) {
  recordings_.push_back(traces::read_cmd(folder));
  const traces::Recording& recording = recordings_.back();
  jobs_.push_back(replay::interpret(recording));
  const auto& first = jobs_.front().topology;
  const auto& last = jobs_.back().topology;
  if (first.str() != last.str())
    throw InputError(SourcePlace{folder}, "a recording of " + last.str(),
                     "one of " + first.str() + " as in " + recordings_.front().source);
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

std::string routing_beside(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path recording = fs::path(folder).lexically_normal() / "";
  for (const fs::path& place : {recording.parent_path(), recording.parent_path().parent_path()})
    if (const std::string file = (place / "dispatching.json").string(); is_file(file)) return file;
  return {};
}

std::optional<std::string> replay_refusal(const traces::Recording& recording, bool whole) {
  try {
    const replay::RecordedJob job = replay::interpret(recording);
    if (!whole) return std::nullopt;
    replay::RecordingQuestion question;
    question.job.recorded_there = true;
    // On the GPUs named in its files, so that nothing is scaled.
    const auto machine = replay::recorded_machine(
        std::span(&job, 1), recording.named, replay::cluster_of(question.job, job.topology), question.job);
    // Without its number of nodes a cluster holds any job.
    if (!machine.cluster.empty())
      question.job.cluster = machine.cluster.substr(0, machine.cluster.rfind('x'));
    replay::forecast_recording(std::span(&job, 1), recording.named, question);
  } catch (const InputError& error) {
    return error.what();
  }
  return std::nullopt;
}

bool JobOptions::say(const std::string& name, const std::string& text) {
  for (const JobText& one : kJobTexts)
    if (name == one.option) {
      this->*one.text = text;
      return true;
    }
  for (const JobSize& one : kJobSizes)
    if (name == one.option) {
      sizes[name] = whole_between("--" + name, text, 1, kMostOfASize);
      return true;
    }
  return false;
}

std::vector<std::string> JobOptions::text_names() {
  std::vector<std::string> names;
  for (const JobText& one : kJobTexts) names.emplace_back(one.option);
  return names;
}

std::vector<std::string> JobOptions::size_names() {
  std::vector<std::string> names;
  for (const JobSize& one : kJobSizes) names.emplace_back(one.option);
  return names;
}

void JobOptions::declare(CLI::App& app) {
  for (const JobText& one : kJobTexts)
    app.add_option(std::string("--") + one.option, this->*one.text, one.help);
  for (const JobSize& size : kJobSizes) {
    sizes[size.option] = 0;
    app.add_option(std::string("--") + size.option, sizes[size.option],
                   std::string(size.help) + ", other than recorded")
        ->check(CLI::Range(std::int64_t{1}, kMostOfASize).description(""));
  }
}

std::int64_t whole_between(const std::string& what, const std::string& text, std::int64_t low,
                           std::int64_t high) {
  const auto value = parse_int(text);
  if (!value || *value < low || *value > high)
    throw InputError(
        fmt::format("{}: found {}, expected a whole number from {} to {}", what, in_quotes(text), low, high));
  return *value;
}

replay::JobRequest JobOptions::request(const std::string& cluster, std::uint64_t seed) const {
  replay::JobRequest request;
  const auto given = [&](const char* option) {
    const auto at = sizes.find(option);
    return at != sizes.end() && at->second > 0 ? std::optional(at->second) : std::nullopt;
  };
  request.change.seq = given("seq");
  request.change.ep = given("ep");
  request.change.experts = given("experts");
  request.change.dp = given("dp");
  request.change.pp = given("pp");
  request.nodes = given("nodes");
  request.change.seed = seed;
  if (!routing.empty() && routing != kMeasuredRouting && routing != kAsRecorded)
    request.change.routing = models::RoutingSpec::parse(routing);
  request.routing_as_recorded = routing == kAsRecorded;
  request.dispatcher = dispatcher;
  if (request.changes_dispatcher())
    models::parse_dispatchers(dispatcher);  // reports a wrong name before reading
  request.cluster = cluster;
  request.recorded_on = recorded_on;
  request.ranks_missing = ranks_missing;
  if (!model.empty()) request.architecture = mixture_named(model);
  return request;
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

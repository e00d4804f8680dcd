#include "tools/moesim/questions/replay_question.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/answers/invariants.h"
#include "models/hardware/cluster.h"
#include "models/hardware/ownership.h"
#include "models/workload/architecture.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/options.h"

namespace moesim::tools {

namespace {

constexpr int kMostMicrobatches = 1 << 20;
constexpr const char *kCalibrated = "calibrated", *kFlow = "flow";

}  // namespace

void ReplayQuestion::declare(CLI::App& app) {
  app.add_option("--cluster", cluster_,
                 "built-in name or file; default: as many H800 nodes as the job needs");
  app.add_option("--timing", timing_, "flow: transfers of a scaling recording share links [calibrated]")
      ->check(CLI::IsMember({kCalibrated, kFlow}));
  job_.declare(app);
  app.add_option("--prices", prices_,
                 "JSON object: gpu_hour or node_hour, a number or one per profile; currency");
  app.add_flag("--ranks-missing", job_.ranks_missing,
               "of a real run: ranks that were not recorded are filled by symmetry");
  app.add_option("--microbatches", microbatches_, "per rank and step, of a scaling recording")
      ->check(CLI::Range(1, kMostMicrobatches).description(""));
  app.add_option("--draws", draws_, "forecasts drawn for the 90 % interval; 0: run-to-run noise only")
      ->check(CLI::Range(0, 10000).description(""))
      ->capture_default_str();
}

std::vector<std::string> ReplayQuestion::text_names() {
  std::vector<std::string> names = JobOptions::text_names();
  names.insert(names.begin(), {"cluster", "timing"});
  return names;
}

std::vector<std::string> ReplayQuestion::number_names() {
  std::vector<std::string> names = JobOptions::size_names();
  names.emplace_back("microbatches");
  return names;
}

void ReplayQuestion::say(const std::string& name, const std::string& text) {
  if (name == "cluster") {
    cluster_ = text;
  } else if (name == "timing") {
    if (text != kCalibrated && text != kFlow)
      throw InputError(
          fmt::format("--timing: found {}, expected {} or {}", in_quotes(text), kCalibrated, kFlow));
    timing_ = text;
  } else if (name == "microbatches") {
    microbatches_ = static_cast<int>(whole_between("--microbatches", text, 1, kMostMicrobatches));
  } else if (!job_.say(name, text)) {
    throw InputError("replay: found " + in_quotes(name) + ", expected an option of replay");
  }
}

replay::RecordingQuestion ReplayQuestion::question(std::uint64_t seed) const {
  if (job_.routing == kMeasuredRouting)
    throw InputError("--routing: found measured, expected a name or a file: replay has one recording only");
  replay::RecordingQuestion question;
  question.job = job_.request(cluster_, seed);
  question.microbatches = microbatches_;
  question.seed = seed;
  question.draws = draws_;
  question.flow = timing_ == kFlow;
  return question;
}

models::PriceTable ReplayQuestion::prices() const {
  return prices_.empty() ? models::PriceTable{}
                         : models::PriceTable::parse(JsonNode::parse(prices_, "--prices"));
}

void ReplayQuestion::read_inputs() const {
  if (is_file(job_.routing)) read_file(job_.routing);
  if (!job_.model.empty()) models::Architecture::load(job_.model);
  for (const std::string& cluster : {cluster_, job_.recorded_on})
    if (!cluster.empty())  // and the file that it names
      if (const std::string fabric = models::Cluster::load(cluster).fabric; is_file(fabric))
        read_file(fabric);
}

std::vector<std::pair<std::string, std::string>> ReplayQuestion::said() const {
  std::vector<std::pair<std::string, std::string>> all{{"cluster", cluster_},
                                                       {"timing", timing_ == kCalibrated ? "" : timing_},
                                                       {"dispatcher", job_.dispatcher},
                                                       {"routing", job_.routing},
                                                       {"model", job_.model},
                                                       {"recorded-on", job_.recorded_on},
                                                       {"prices", prices_}};
  for (const auto& [name, value] : job_.sizes) all.emplace_back(name, std::to_string(value));
  all.emplace_back("microbatches", std::to_string(microbatches_));
  all.emplace_back("draws", std::to_string(draws_));
  if (job_.ranks_missing) all.emplace_back("ranks-missing", "true");
  std::erase_if(all, [](const auto& one) { return one.second.empty() || one.second == "0"; });
  return all;
}

replay::RecordingForecast ask_recording(const Recordings& recordings, const replay::RecordingQuestion& q) {
  replay::RecordingQuestion asked = q;
  // Dispatchers are compared under the same tokens: dispatched rows contain more than the rows that each rank
  // received.
  std::string beside;
  if (!q.job.change.routing && !q.job.change.received && !q.job.routing_as_recorded &&
      !q.job.change.resizes())
    beside = routing_beside(recordings.recording(0).source);
  if (!beside.empty()) {
    asked.job.routing_beside = models::RoutingSpec::parse(beside);
    if (q.job.changes_dispatcher()) asked.job.change.routing = asked.job.routing_beside;
  }
  replay::RecordingForecast answer =
      replay::forecast_recording(recordings.jobs(), recordings.recording(0).named, asked);
  if (asked.job.change.routing && !beside.empty()) {
    const std::string said = "another routing";
    if (const std::size_t at = answer.changes.find(said); at != std::string::npos)
      answer.changes.replace(at, said.size(), "the routing of " + beside + " beside the recording");
  }
  models::check_possible("replay", impossible(answer));
  return answer;
}

double tokens_per_s(const models::Forecast& forecast) { return forecast.tokens / forecast.seconds(); }

std::optional<double> cost_per_million_tokens(const models::Forecast& forecast,
                                              const models::Cluster& cluster,
                                              const models::PriceTable& prices) {
  if (forecast.tokens == 0 || !prices.given()) return std::nullopt;
  return forecast.per_million_tokens(
      models::hour_cost(prices, {}, cluster, forecast.gpus).of(forecast.seconds()));
}

}  // namespace moesim::tools

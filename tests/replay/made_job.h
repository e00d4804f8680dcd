// A recording that the models make, for tests without recordings of machines, and what is asked of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "models/hardware/cluster.h"
#include "replay/job/synthesize.h"
#include "replay/run/forecast.h"
#include "replay/run/requested_job.h"

namespace moesim::replay::testing {

// Mixtral in eight layers on 16 GPUs: four stages of four expert ranks, one replica of each rank.
inline SynthesisSpec deep_job() {
  SynthesisSpec spec;
  spec.model = models::Architecture::load("mixtral-8x7b");
  spec.cluster = models::Cluster::load("echo-h800x2");
  spec.topology = {.expert = 4, .pp = 4};
  spec.layers = 8;
  spec.microbatches = 16;
  spec.routing = models::RoutingSpec::parse("zipf:0.8");
  spec.noise = 0;
  return spec;
}

// That model on all layers with two stages and two replicas of each rank.
inline SynthesisSpec replicated_job() {
  SynthesisSpec spec;
  spec.model = models::Architecture::load("mixtral-8x7b");
  spec.cluster = models::Cluster::load("echo-h800x2");
  spec.topology.pp = 2;
  spec.topology.expert = 4;
  spec.topology.expert_dp = 2;
  spec.routing = models::RoutingSpec::parse("zipf:1.2");
  return spec;
}

// Sets a setting as a user would; 0 and "as-recorded" take it back.
inline void say(RecordingQuestion& question, const std::string& path, const std::string& text) {
  models::Scenario& said = question.said;
  said.origins.erase(path);
  if (text == "0" || text == "as-recorded") return;
  const models::Origin origin = models::Origin::said(path);
  if (path == "model.experts") {
    said.model.experts = std::stoll(text);
    said.origins.set(path, origin);
  } else if (path == "cluster.nodes") {
    const models::Cluster cluster = said.cluster ? *said.cluster : models::Cluster::load("echo-h800x1");
    said.cluster = std::make_shared<const models::Cluster>(cluster.holding(8 * std::stoll(text)));
    said.origins.set(path, origin);
  } else {
    models::set_field(*models::find_field(path), said, text, &origin);
  }
}
inline void say(RecordingQuestion& question, const std::string& path, std::int64_t size) {
  say(question, path, std::to_string(size));
}

inline double forecast_us(const CleanJob& recorded, const traces::NamedTopology& named,
                          const RecordingQuestion& request, int microbatches = 8) {
  const RequestedJob job = requested_job(recorded, named, request);
  ForecastOptions options;
  options.microbatches = microbatches;
  options.architecture = request.model();
  return forecast(job.clean, job.named, job.cluster, Effects(job.cluster.profile), options).iteration.us();
}

// A made job recorded in both ways, the scaling recording cleaned, and a request that changes nothing.
struct MadeJob {
  explicit MadeJob(const SynthesisSpec& from = deep_job()) : spec(from), made(synthesize(spec)) {
    say(request, "model", "mixtral-8x7b");
  }
  MadeJob(const MadeJob&) = delete;
  MadeJob& operator=(const MadeJob&) = delete;

  const traces::NamedTopology& named() const { return made.scaling.named; }

  SynthesisSpec spec;
  SyntheticRecordings made;
  RecordedJob job = interpret(made.scaling);
  CleanJob clean = denoise(std::span(&job, 1));
  RecordingQuestion request;
};

}  // namespace moesim::replay::testing

#include "replay/run/requested_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "replay/job/layer_model.h"
#include "replay/job/rescale.h"
#include "replay/job/substitute.h"
#include "replay/recording/gradients.h"
#include "replay/run/forecast.h"
#include "replay/run/recorded_run.h"

namespace moesim::replay {

namespace {

// Returns the same machine with room for all ranks of a job.
models::Cluster with_room(const models::Cluster& cluster, const Topology& topology) {
  return cluster.ranks() < topology.world() ? cluster.holding(topology.world()) : cluster;
}

// Returns the dispatcher shown by a step of the recording.
models::DispatcherSpec recorder_of(const JobModel& job, const models::Cluster& cluster,
                                   const CleanJob& clean) {
  const CleanPlace& place = clean.places.begin()->second;
  for (const Step& step : place.steps)
    if (step.kind == StepKind::forward) return recorded_dispatcher(job, cluster, step);
  throw InputError("found no forward step in the recording, expected one");
}

// Refuses what a run was not: its waiting and schedule belong to its sizes and its machine. The one cluster of a
// question is what its user says that it ran on.
void check_run(const RecordingQuestion& q, const models::Cluster& cluster, const Topology& topology) {
  const bool part = std::ranges::any_of(q.said.origins.all(), [](const auto& one) {
    return one.first.starts_with("cluster.") && one.second.kind != models::Origin::Kind::kRecording;
  });
  const bool other = std::ranges::any_of(
      q.beside, [own = cluster.to_json()](const models::Cluster& one) { return one.to_json() != own; });
  const bool few = cluster.ranks() < topology.world();
  if (few || part || other || q.resizes() || !q.recorded_on.empty())
    throw InputError(fmt::format(
        "found {} for a realistic recording, expected a scaling recording: a run's waiting and schedule belong "
        "to its own sizes and machine (--dispatcher and --routing work on both)",
        few ? fmt::format("{} GPUs and {} ranks", cluster.ranks(), topology.world())
            : "other sizes or another machine"));
}

void add_warnings(RequestedJob& out, const LayerModel& wanted) {
  for (std::string& warning : wanted.warnings()) out.warnings.push_back(std::move(warning));
}

// Says that another dispatcher takes the place of the recorded one, unless it is the recorded one.
void say_substitution(RequestedJob& out, const models::DispatcherSpec& recorded,
                      const models::DispatcherSpec& asked, const LayerModel& wanted) {
  out.changes +=
      fmt::format("{}{} instead of {}", out.changes.empty() ? "" : ", ", asked.text(), recorded.text());
  add_warnings(out, wanted);
  if (asked.text() != recorded.text())
    out.substitution = {recorded.text(), asked.text(), wanted.report().unmeasured()};
}

std::string describe(const JobModel& from, const JobModel& to, const std::string& routing) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (from.topology.str() != to.topology.str())
    add(fmt::format("{} instead of {}", to.topology.str(), from.topology.str()));
  if (from.seq != to.seq) add(fmt::format("sequences of {} instead of {}", to.seq, from.seq));
  if (from.architecture.experts != to.architecture.experts)
    add(fmt::format("{} experts instead of {}", to.architecture.experts, from.architecture.experts));
  if (to.routing_given) add(routing);
  return text;
}

// Says which routing takes the place of the recorded one.
std::string routing_text(const RecordingQuestion& question) {
  const models::Origin* origin = question.said.origins.find("routing");
  const bool beside =
      origin && origin->kind == models::Origin::Kind::kFile && origin->where == question.said.routing.path;
  return beside ? "the routing of " + origin->where + " beside the recording" : "another routing";
}

// Returns the job with times of the expert ranks that were not recorded.
CleanJob with_all_experts(CleanJob job, const traces::NamedTopology& named, RecordingQuestion question) {
  if (job.unrecorded.empty()) return job;
  if (question.routing_beside && !question.changes("routing")) {
    question.said.routing = *question.routing_beside;
    question.said.give("routing", models::Origin::file(question.routing_beside->path));
  }
  models::Cluster machine = question.recorded_on.empty()
                                ? with_room(cluster_of(question, job.topology), job.topology)
                                : on_its_machine(question.recorded_on, job.topology);
  if (question.drawn_profile && question.drawn_profile->name() == machine.profile.name())
    machine.profile = *question.drawn_profile;
  const JobModel model = job_model(job, named, question);
  complete_experts(job, LayerModel(model, recorder_of(model, machine, job), machine), machine);
  return job;
}

}  // namespace

models::Cluster cluster_of(const RecordingQuestion& question, const Topology& topology) {
  models::Cluster cluster =
      question.changes("cluster")
          ? *question.said.cluster
          : models::Cluster::load(fmt::format("echo-h800x{}", std::max(1, (topology.world() + 7) / 8)));
  if (cluster.node_count == models::Cluster::NodeCount::kOpen)
    cluster = cluster.holding(std::max(1, topology.world()));
  if (question.drawn_profile) cluster.profile = *question.drawn_profile;
  return cluster;
}

models::Cluster on_its_machine(const std::string& cluster, const Topology& topology) {
  return with_room(models::Cluster::load(cluster), topology);
}

models::DispatcherSpec dispatcher_of(const RecordingQuestion& question, const JobModel& job,
                                     const models::Cluster& cluster, const CleanJob& clean) {
  if (!question.changes("dispatcher")) return recorder_of(job, cluster, clean);
  const std::vector<models::DispatcherSpec>& specs = question.said.dispatchers;
  if (specs.size() != 1)
    throw InputError(fmt::format("--dispatcher: found {} dispatchers, expected one", specs.size()));
  return models::parse_dispatchers(specs.front().text()).front();
}

RequestedJob requested_job(const CleanJob& measured_job, const traces::NamedTopology& named,
                           const RecordingQuestion& question) {
  RequestedJob out;
  out.named = named;
  const CleanJob recorded = with_all_experts(measured_job, named, question);
  if (!question.changes_job()) {
    out.clean = recorded;
    out.cluster = cluster_of(question, recorded.topology);
    return out;
  }
  const JobModel from = job_model(recorded, named, question);
  RecordingQuestion filled = question;
  if (question.changes("cluster.nodes") && !question.changes("parallel.dp")) {
    const models::Cluster cluster = cluster_of(question, recorded.topology);
    const std::int64_t pp = question.size("parallel.pp").value_or(from.topology.pp);
    const std::int64_t ep = question.size("parallel.ep").value_or(from.topology.expert);
    if (pp < 1 || ep < 1 || cluster.ranks() % (pp * ep) != 0)
      throw InputError(
          fmt::format("found {} nodes of {} GPUs, expected a multiple of pp {} x ep {}: set --dp",
                      cluster.nodes, cluster.gpus_per_node, pp, ep));
    filled.said.parallel.dp = cluster.ranks() / pp;
    filled.said.give("parallel.dp", models::Origin::said("cluster.nodes"));
  }
  const JobModel to = changed_job(from, filled, out.warnings);
  out.cluster = cluster_of(question, to.topology);
  models::Cluster source = question.recorded_on.empty() ? with_room(out.cluster, from.topology)
                                                        : on_its_machine(question.recorded_on, from.topology);
  const bool same_gpus = source.profile.name() == out.cluster.profile.name();
  if (same_gpus) source.profile = out.cluster.profile;
  const models::DispatcherSpec recorder = recorder_of(from, source, recorded);
  const bool other_dispatcher = question.changes("dispatcher");
  const models::DispatcherSpec spec = dispatcher_of(question, from, source, recorded);
  const LayerModel measured(from, recorder, source);
  const LayerModel same(to, recorder, out.cluster);
  // Nothing is scaled where sizes and GPUs stay; tensor parallelism cannot be scaled.
  if (from.topology.tp == 1)
    out.clean = rescaled(recorded, measured, same, source, same_gpus);
  else if (question.changes("cluster.nodes") || !same_gpus)
    throw InputError(
        fmt::format("found another machine for a recording of tp {}, expected tp 1", from.topology.tp));
  else
    out.clean = other_dispatcher ? recorded : substituted(recorded, measured, same, out.cluster);
  out.named = names_of(to, named);
  out.changes = describe(from, to, routing_text(question));
  if (!same_gpus)
    out.changes += fmt::format("{}{} instead of {}", out.changes.empty() ? "" : ", ",
                               out.cluster.profile.gpu(), source.profile.gpu());
  if (other_dispatcher) {
    const LayerModel wanted(to, spec, out.cluster);
    out.clean = substituted(out.clean, from.topology.tp == 1 ? same : measured, wanted, out.cluster);
    say_substitution(out, recorder, spec, wanted);
  }
  if (const RoutedLayers routed = routed_layers(to, question); !routed.jobs.empty()) {
    const LayerModel made(to, spec, out.cluster);
    route_layers(out.clean, made, routed, spec, out.cluster);
  }
  return out;
}

JobDraw drawn_jobs(const CleanJob& recorded, const traces::NamedTopology& named,
                   const RecordingQuestion& question) {
  if (!question.changes_job() && recorded.unrecorded.empty()) return {};
  const bool other_experts = question.changes("parallel.ep") || question.changes("model.experts") ||
                             question.changes("parallel.seq");
  return {[&recorded, &named, question](const models::Profile& profile, std::uint64_t seed) {
            RecordingQuestion drawn = question;
            drawn.drawn_profile = profile;
            drawn.split_seed = seed;
            return requested_job(recorded, named, drawn).clean;
          },
          std::hypot(other_experts ? kOtherSizes : 0, recorded.unrecorded.empty() ? 0 : kOneExpertRank)};
}

RequestedJob requested_run(const RecordedJob& job, const traces::NamedTopology& named,
                           const RecordingQuestion& question) {
  RequestedJob out;
  out.named = named;
  out.cluster = cluster_of(question, job.topology);
  check_run(question, out.cluster, job.topology);
  const int gpus_per_node = out.cluster.gpus_per_node;
  out.plans = question.ranks_missing ? plans_by_symmetry(job, gpus_per_node, out.warnings)
                                     : recorded_plans(job, gpus_per_node);
  if (!question.changes_job()) return out;
  CleanJob clean = denoise(std::span(&job, 1));
  const JobModel from = job_model(clean, named, question);
  const JobModel to = changed_job(from, question, out.warnings);
  const models::DispatcherSpec recorder = recorder_of(from, out.cluster, clean);
  const models::DispatcherSpec spec = dispatcher_of(question, from, out.cluster, clean);
  const LayerModel measured(from, recorder, out.cluster);
  const LayerModel wanted(to, spec, out.cluster);
  out.changes = describe(from, to, routing_text(question));
  if (const RoutedLayers routed = routed_layers(to, question); !routed.jobs.empty()) {
    route_layers(out.plans, clean, measured, routed, spec, out.cluster);
  } else {
    substitute(out.plans, clean, measured, wanted, out.cluster);
    clean.routing = to.routing;
    out.clean = std::move(clean);
  }
  if (question.changes("dispatcher"))
    say_substitution(out, recorder, spec, wanted);
  else
    add_warnings(out, wanted);
  return out;
}

models::Scenario recorded_settings(const RecordedJob& job, const traces::NamedTopology& named) {
  const models::Origin origin{models::Origin::Kind::kRecording, job.ranks.front().recording->file};
  models::Scenario s;
  s.scope = models::Scenario::Scope::kStep;
  s.cluster = std::make_shared<const models::Cluster>(cluster_of({}, job.topology));
  s.parallel = job.topology.parallel();
  s.parallel.seq = named.seq.value_or(s.parallel.seq);
  s.parallel.micro_batch = named.micro_batch.value_or(1);
  s.parallel.microbatches = job.realistic ? microbatches_of(job) : default_microbatches(job.topology, named);
  for (const char* path : {"scope", "cluster", "parallel.tp", "parallel.ep", "parallel.etp", "parallel.dp",
                           "parallel.pp", "parallel.seq", "parallel.micro_batch", "parallel.microbatches"})
    s.give(path, origin);
  try {
    const CleanJob clean = denoise(std::span(&job, 1));
    if (const ModelFacts facts = model_facts(named, clean, nullptr); facts.model) {
      s.model = *facts.model;
      s.give("model", origin);
    }
    s.dispatchers = {recorder_of(job_model(clean, named), *s.cluster, clean)};
    s.give("dispatcher", origin);
  } catch (const InputError&) {  // a replay as recorded needs neither
  }
  return s;
}

}  // namespace moesim::replay

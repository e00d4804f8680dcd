#include "replay/run/requested_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/input_error.h"
#include "replay/job/layer_model.h"
#include "replay/job/rescale.h"
#include "replay/job/substitute.h"
#include "replay/run/recorded_run.h"

namespace moesim::replay {

namespace {

models::Cluster with_nodes(models::Cluster cluster, std::int64_t nodes) {
  if (nodes < 1 || nodes > (1 << 20))
    throw InputError(fmt::format("found --nodes {}, expected 1 to 1048576", nodes));
  if (nodes == cluster.nodes) return cluster;
  while (!cluster.name.empty() && cluster.name.back() >= '0' && cluster.name.back() <= '9')
    cluster.name.pop_back();
  cluster.name += (cluster.name.ends_with('x') ? "" : " x ") + std::to_string(nodes);
  cluster.nodes = static_cast<int>(nodes);
  return cluster;
}

// Returns the same machine with room for all ranks of a job.
models::Cluster with_room(const models::Cluster& cluster, const Topology& topology) {
  const std::int64_t nodes = (topology.world() + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
  return with_nodes(cluster, std::max<std::int64_t>(cluster.nodes, nodes));
}

models::DispatcherSpec one_dispatcher(const std::string& text) {
  const auto specs = models::parse_dispatchers(text);
  if (specs.size() != 1)
    throw InputError(
        fmt::format("--dispatcher: found {} dispatchers in \"{}\", expected one", specs.size(), text));
  return specs.front();
}

// Returns the dispatcher shown by a step of the recording.
models::DispatcherSpec recorder_of(const JobModel& job, const models::Cluster& cluster,
                                   const CleanJob& clean) {
  const CleanPlace& place = clean.places.begin()->second;
  for (const Step& step : place.steps)
    if (step.kind == StepKind::forward) return recorded_dispatcher(job, cluster, step);
  throw InputError("found no forward step in the recording, expected one");
}

// Returns nullopt where the dispatcher asked for is the recorded one.
std::optional<DispatcherChange> substitution(const models::DispatcherSpec& recorded,
                                             const models::DispatcherSpec& asked, const LayerModel& wanted) {
  if (asked.text() == recorded.text()) return std::nullopt;
  return DispatcherChange{recorded.text(), asked.text(), wanted.report().unmeasured()};
}

std::string describe(const JobModel& from, const JobModel& to) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (from.topology.str() != to.topology.str())
    add(fmt::format("{} instead of {}", to.topology.str(), from.topology.str()));
  if (from.seq != to.seq) add(fmt::format("sequences of {} instead of {}", to.seq, from.seq));
  if (from.architecture.experts != to.architecture.experts)
    add(fmt::format("{} experts instead of {}", to.architecture.experts, from.architecture.experts));
  if (to.routing_given) add("another routing");
  return text;
}

}  // namespace

models::Cluster cluster_of(const JobRequest& request, const Topology& topology) {
  models::Cluster cluster = models::Cluster::load(
      request.cluster.empty() ? fmt::format("echo-h800x{}", std::max(1, (topology.world() + 7) / 8))
                              : request.cluster);
  if (cluster.node_count == models::Cluster::NodeCount::kOpen)
    cluster = cluster.holding(std::max(1, topology.world()));
  if (request.drawn_profile) cluster.profile = *request.drawn_profile;
  return request.nodes ? with_nodes(cluster, *request.nodes) : cluster;
}

models::Cluster on_its_machine(const std::string& cluster, const Topology& topology) {
  return with_room(models::Cluster::load(cluster), topology);
}

ModelledJob modelled_job(const CleanJob& recorded, const traces::NamedTopology& named,
                         const models::Cluster& cluster, const JobRequest& request) {
  JobChange change = request.change;
  if (!change.routing && !change.resizes()) change.routing = request.routing_beside;
  const JobModel from =
      job_model(recorded, named, request.architecture ? &*request.architecture : nullptr, change);
  std::vector<std::string> told_elsewhere;
  ModelledJob out{changed_job(from, change, told_elsewhere), {}};
  out.dispatcher = request.changes_dispatcher() ? one_dispatcher(request.dispatcher)
                                                : recorder_of(from, cluster, recorded);
  return out;
}

RequestedJob requested_job(const CleanJob& recorded, const traces::NamedTopology& named,
                           const JobRequest& request) {
  RequestedJob out;
  out.named = named;
  if (!request.changes_job()) {
    out.clean = recorded;
    out.cluster = cluster_of(request, recorded.topology);
    return out;
  }
  const JobModel from =
      job_model(recorded, named, request.architecture ? &*request.architecture : nullptr, request.change);
  JobChange change = request.change;
  if (request.nodes && !change.dp) {
    const models::Cluster cluster = cluster_of(request, recorded.topology);
    const std::int64_t pp = change.pp.value_or(from.topology.pp);
    const std::int64_t ep = change.ep.value_or(from.topology.expert);
    if (pp < 1 || ep < 1 || cluster.ranks() % (pp * ep) != 0)
      throw InputError(
          fmt::format("found {} nodes of {} GPUs, expected a multiple of pp {} x ep {}: set --dp",
                      *request.nodes, cluster.gpus_per_node, pp, ep));
    change.dp = cluster.ranks() / pp;
  }
  const JobModel to = changed_job(from, change, out.warnings);
  out.cluster = cluster_of(request, to.topology);
  models::Cluster source = with_room(
      request.recorded_on.empty() ? out.cluster : models::Cluster::load(request.recorded_on), from.topology);
  const bool same_gpus = source.profile.name() == out.cluster.profile.name();
  if (same_gpus) source.profile = out.cluster.profile;
  const models::DispatcherSpec recorder = recorder_of(from, source, recorded);
  const LayerModel measured(from, recorder, source);
  const LayerModel same(to, recorder, out.cluster);
  // Nothing is scaled where sizes and GPUs stay; tensor parallelism cannot be scaled.
  if (from.topology.tp == 1)
    out.clean = rescaled(recorded, measured, same, source, same_gpus);
  else if (request.nodes || !same_gpus)
    throw InputError(
        fmt::format("found another machine for a recording of tp {}, expected tp 1", from.topology.tp));
  else
    out.clean = request.changes_dispatcher() ? recorded : substituted(recorded, measured, same, out.cluster);
  out.named = names_of(to, named);
  out.changes = describe(from, to);
  if (!same_gpus)
    out.changes += fmt::format("{}{} instead of {}", out.changes.empty() ? "" : ", ",
                               out.cluster.profile.gpu(), source.profile.gpu());
  if (request.changes_dispatcher()) {
    const models::DispatcherSpec spec = one_dispatcher(request.dispatcher);
    const LayerModel wanted(to, spec, out.cluster);
    out.clean = substituted(out.clean, from.topology.tp == 1 ? same : measured, wanted, out.cluster);
    out.changes +=
        fmt::format("{}{} instead of {}", out.changes.empty() ? "" : ", ", spec.text(), recorder.text());
    for (std::string& warning : wanted.warnings()) out.warnings.push_back(std::move(warning));
    out.substitution = substitution(recorder, spec, wanted);
  }
  if (const RoutedLayers routed = routed_layers(to, change); !routed.jobs.empty()) {
    const models::DispatcherSpec spec =
        request.changes_dispatcher() ? one_dispatcher(request.dispatcher) : recorder;
    const LayerModel made(to, spec, out.cluster);
    route_layers(out.clean, made, routed, spec, out.cluster);
  }
  return out;
}

JobDraw drawn_jobs(const CleanJob& recorded, const traces::NamedTopology& named, const JobRequest& request) {
  if (!request.changes_job()) return {};
  const bool other_experts = request.change.ep || request.change.experts || request.change.seq;
  return {[&recorded, &named, request](const models::Profile& profile, std::uint64_t seed) {
            JobRequest drawn = request;
            drawn.drawn_profile = profile;
            drawn.change.split_seed = seed;
            return requested_job(recorded, named, drawn).clean;
          },
          other_experts ? kOtherSizes : 0};
}

RequestedSchedules requested_plans(const RecordedJob& job, const traces::NamedTopology& named,
                                   const models::Cluster& cluster, const JobRequest& request) {
  RequestedSchedules out;
  out.plans = request.ranks_missing ? plans_by_symmetry(job, cluster.gpus_per_node, out.warnings)
                                    : recorded_plans(job, cluster.gpus_per_node);
  if (!request.changes_job()) return out;
  if (request.change.resizes() || request.nodes || !request.recorded_on.empty())
    throw InputError(
        "found other sizes or another machine for a realistic recording, expected a scaling recording: a "
        "run's "
        "waiting and schedule belong to its own sizes (--dispatcher and --routing work on both)");
  CleanJob clean = denoise(std::span(&job, 1));
  const JobModel from =
      job_model(clean, named, request.architecture ? &*request.architecture : nullptr, request.change);
  const JobModel to = changed_job(from, request.change, out.warnings);
  const models::DispatcherSpec recorder = recorder_of(from, cluster, clean);
  const models::DispatcherSpec spec =
      request.changes_dispatcher() ? one_dispatcher(request.dispatcher) : recorder;
  const LayerModel measured(from, recorder, cluster);
  const LayerModel wanted(to, spec, cluster);
  if (const RoutedLayers routed = routed_layers(to, request.change); !routed.jobs.empty()) {
    route_layers(out.plans, clean, measured, routed, spec, cluster);
  } else {
    substitute(out.plans, clean, measured, wanted, cluster);
    clean.routing = to.routing;
    out.clean = std::move(clean);
  }
  out.changes = describe(from, to);
  if (request.changes_dispatcher()) {
    out.changes +=
        fmt::format("{}{} instead of {}", out.changes.empty() ? "" : ", ", spec.text(), recorder.text());
    out.substitution = substitution(recorder, spec, wanted);
  }
  for (std::string& warning : wanted.warnings()) out.warnings.push_back(std::move(warning));
  return out;
}

}  // namespace moesim::replay

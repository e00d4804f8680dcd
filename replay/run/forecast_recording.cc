#include "replay/run/forecast_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "base/input_error.h"
#include "models/answers/doubt.h"
#include "models/recipes/framework_recipe.h"
#include "replay/recording/denoise.h"
#include "replay/recording/recorded_routing.h"
#include "replay/run/forecast.h"
#include "replay/run/model_pricing.h"
#include "replay/run/recorded_run.h"
#include "traces/recording_facts.h"

namespace moesim::replay {

namespace {

void check(std::span<const RecordedJob> jobs, const RecordingQuestion& q) {
  if (jobs.front().realistic) {
    if (q.flow)
      throw InputError(
          "found --timing flow with a realistic recording, expected a scaling recording: a run keeps the "
          "times that its transfers had");
    if (jobs.size() > 1)
      throw InputError(
          "found several realistic recordings, expected one (scaling passes are pooled, runs are not)");
    if (q.changes("parallel.microbatches"))
      throw InputError(
          "found --microbatches with a realistic recording, expected a scaling recording: a run is replayed "
          "with the microbatches it had");
  }
  if (q.ranks_missing && !jobs.front().realistic)
    throw InputError(
        "found --ranks-missing with a scaling recording, expected a realistic one: a scaling recording is "
        "filled by symmetry anyway");
  if (q.flow && q.changes("dispatcher"))
    throw InputError(
        "found --timing flow with --dispatcher, expected the recorded dispatcher (compare --timing flow sees "
        "others, for a layer)");
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Returns the tokens of an iteration over all ranks; 0: the recording does not contain the sequence length.
double tokens_of(const traces::NamedTopology& named, const Topology& topology, int microbatches) {
  return static_cast<double>(named.seq.value_or(0)) * static_cast<double>(named.micro_batch.value_or(1)) *
         microbatches * topology.dp();
}

// Without draws: the interval contains run-to-run noise alone.
void set_time(models::Forecast& out, double us, double tokens, const Topology& topology) {
  out.time_us = interval(us, {});
  out.healthy_us = us;
  out.tokens = tokens;
  out.gpus = topology.world();
}

void set_iteration(IterationForecast& out, Iteration iteration, double tokens) {
  set_time(out, iteration.us(), tokens, iteration.topology);
  const sim::RankId rank = iteration.timeline.critical_rank();
  const sim::RankSummary& critical = iteration.timeline.rank(rank);
  out.critical_rank = static_cast<int>(rank.value());
  out.critical_stage = iteration.topology.of(out.critical_rank).pp;
  std::ranges::transform(critical.breakdown, out.breakdown_us.begin(), &sim::Time::us);
  out.exposed_comm_us = critical.exposed_comm.us();
  out.iteration = std::move(iteration);
}

// Sets the memory of ranks under the requested dispatcher and the recorded one; and the overload where the calls do not
// show the rows, but a file beside the recording does.
void set_memory(RecordingForecast& out, const std::function<CleanJob()>& clean,
                const traces::NamedTopology& named, const RecordingQuestion& question,
                std::span<const RankSteps> plans) {
  const auto held = [&](RecordingQuestion asked) {
    if (asked.routing_beside && !asked.changes("routing") && !asked.resizes()) {
      asked.said.routing = *asked.routing_beside;
      asked.said.give("routing", models::Origin::file(asked.routing_beside->path));
    }
    const CleanJob recorded = clean();
    const JobModel from = job_model(recorded, named, asked);
    std::vector<std::string> told_elsewhere;
    const JobModel job = changed_job(from, asked, told_elsewhere);
    if (!out.overload && routed_layers(job, asked).jobs.empty()) {
      CleanJob routed;
      routed.topology = job.topology;
      routed.routing = job.routing;
      out.overload = recorded_overload(job.topology, plans, &routed);
    }
    return recorded_memory(job, dispatcher_of(asked, from, out.cluster, recorded), out.cluster,
                           out.microbatches);
  };
  try {
    out.held = held(question);
    if (question.changes("dispatcher")) out.held_as_recorded = held(question.as_recorded());
  } catch (const InputError& error) {
    out.held.reset();
    out.not_held = error.what();
  }
}

double share_of(const models::Forecast& f, std::initializer_list<sim::Category> categories) {
  double us = 0;
  for (const sim::Category one : categories) us += f.breakdown_us[static_cast<std::size_t>(one)];
  return us / f.time_us.value;
}

// Adds the doubt that answer() adds to a dispatcher's draws; the times of the rest were recorded.
void add_doubt(models::Forecast& f, const std::string& dispatcher) {
  using enum sim::Category;
  models::add_doubt(f, {.dispatcher = dispatcher, .exchanges = share_of(f, {dispatch, combine})});
  f.time_us = interval(f.time_us.value, f.draws_us);
}

// Likewise for the dispatcher that takes the place of the recorded one.
void doubt(models::Forecast& f, const DispatcherChange& substitution) {
  using enum sim::Category;
  const double layers = share_of(f, {dispatch, combine, permute, unpermute, router, expert});
  f.unmeasured = substitution.unmeasured;
  for (models::DomainReport::Unmeasured& one : f.unmeasured) one.share *= layers;
  add_doubt(f, substitution.asked);
}

// A realistic recording: as it ran, with the dispatcher or the routing replaced.
class RealisticForecast {
 public:
  // `machine`: the recording's.
  RealisticForecast(const RecordedJob& job, const traces::NamedTopology& named, const RecordingQuestion& q,
                    const RecordedMachine& machine)
      : job_(job), named_(named), q_(q), machine_(machine) {}

  RecordingForecast run() {
    RecordingForecast out;
    out.realistic = true;
    out.recorded_on = machine_;
    RequestedJob prepared = requested_run(job_, named_, q_);
    out.cluster = prepared.cluster;
    const Effects effects(out.cluster.profile);
    out.microbatches = microbatches_of(job_);
    const double tokens = tokens_of(named_, job_.topology, out.microbatches);
    set_iteration(out, simulated(prepared.plans, effects), tokens);
    out.changes = std::move(prepared.changes);
    out.substitution = std::move(prepared.substitution);
    out.warnings = std::move(prepared.warnings);
    const double recorded_us = summarize(job_, out.cluster.gpus_per_node).iteration_us;
    if (out.changes.empty()) {
      out.measured_us = recorded_us;
    } else {
      set_time(out.before.emplace(), recorded_us, tokens, job_.topology);
      out.before->what = job_.topology.str() + ", as recorded";
    }
    out.overload = recorded_overload(job_.topology, prepared.plans,
                                     prepared.clean.places.empty() ? nullptr : &prepared.clean);
    if (q_.memory)
      set_memory(
          out, [&] { return denoise(std::span(&job_, 1)); }, named_, q_, prepared.plans);
    if (q_.changes("dispatcher"))
      set_iteration(out.as_recorded.emplace(),
                    simulated(requested_run(job_, named_, q_.as_recorded()).plans, effects), tokens);
    // The recorded dispatcher was measured; the other one's draws hold its doubt alone.
    if (out.substitution && q_.draws > 0) {
      const auto draws = static_cast<std::size_t>(q_.draws);
      out.draws_us.assign(draws, out.time_us.value);
      out.as_recorded->draws_us.assign(draws, out.as_recorded->time_us.value);
      doubt(out, *out.substitution);
    }
    if (q_.attribution) {
      const int layers = static_cast<int>(named_.layers.value_or(0) / out.iteration.topology.pp);
      out.attribution = attribute(out.iteration, prepared.plans, layers,
                                  [&] { return std::make_unique<RecordedPricing>(added(effects)); });
    }
    out.summary = summarize(out.iteration);
    return out;
  }

 private:
  // The effects must outlive it.
  static std::function<double(const Instance&)> added(const Effects& effects) {
    return [&effects](const Instance& instance) { return added_call_us(effects, instance); };
  }

  Iteration simulated(const std::vector<RankSteps>& plans, const Effects& effects) const {
    RecordedPricing pricing(added(effects));
    return simulate(job_.topology, plans, pricing);
  }

  const RecordedJob& job_;
  const traces::NamedTopology& named_;
  const RecordingQuestion& q_;
  const RecordedMachine& machine_;
};

// Passes of a scaling recording: the cleaned microbatch, repeated for the whole job.
class ScalingModeForecast {
 public:
  ScalingModeForecast(const CleanJob& recorded, const traces::NamedTopology& named,
                      const RecordingQuestion& q, const RecordedMachine& machine)
      : named_(named),
        q_(q),
        machine_(machine),
        recorded_(recorded),
        requested_(requested_job(recorded_, named, q)) {}

  RecordingForecast run() {
    RecordingForecast out;
    out.cluster = requested_.cluster;
    out.recorded_on = machine_;
    out.changes = requested_.changes;
    out.substitution = requested_.substitution;
    out.effects.emplace(out.cluster.profile);
    out.microbatches = static_cast<int>(q_.size("parallel.microbatches").value_or(0));
    if (out.microbatches == 0) {
      out.microbatches = default_microbatches(requested_.clean.topology, requested_.named);
      out.warnings.push_back(fmt::format(
          "a scaling recording does not say how many microbatches a step has: {} per rank, for a global "
          "batch of 64; set --microbatches",
          out.microbatches));
    }
    options_.architecture = q_.model();
    options_.microbatches = out.microbatches;
    options_.seed = q_.said.seed;
    options_.threads = q_.threads;
    ScalingForecast made = forecast_job(requested_, *out.effects, options_);
    const double calibrated_us = made.iteration.us();
    if (q_.flow) {
      const sim::Fabric fabric = models::cluster_fabric(out.cluster);
      ForecastOptions sharing = options_;
      sharing.fabric = &fabric;
      made = forecast_job(requested_, *out.effects, sharing);
      const auto groups = static_cast<int>(made.iteration.topology.groups(GroupKind::expert).size());
      out.network = {calibrated_us, groups, models::busiest_link(made.iteration.timeline, fabric)};
    }
    const double tokens = tokens_of(requested_.named, made.iteration.topology, out.microbatches);
    set_iteration(out, std::move(made.iteration), tokens);
    out.overload = recorded_overload(requested_.clean.topology, made.plans, &requested_.clean);
    if (q_.memory)
      set_memory(
          out, [&] { return recorded_; }, named_, q_, made.plans);
    append(out.warnings, requested_.warnings);
    append(out.warnings, made.warnings);
    if (q_.changes("dispatcher")) {
      const RecordingQuestion same = q_.as_recorded();
      const RequestedJob job = requested_job(recorded_, named_, same);
      set_iteration(out.as_recorded.emplace(), forecast_job(job, *out.effects, options_).iteration, tokens);
      if (out.substitution) {
        JobDraw drawn_job = drawn_jobs(recorded_, named_, same);
        // A job of its own, so that both dispatchers take the same numbers of a draw.
        if (!drawn_job.job) drawn_job.job = [&](const models::Profile&, std::uint64_t) { return job.clean; };
        for (const RunSummary& one : drawn(job, std::move(drawn_job), *out.effects))
          out.as_recorded->draws_us.push_back(one.iteration_us);
      }
    }
    if (q_.attribution) {
      const int layers = static_cast<int>(requested_.named.layers.value_or(0) / out.iteration.topology.pp);
      out.attribution = attribute(out.iteration, made.plans, layers, [&] {
        return std::make_unique<ModelPricing>(out.cluster, requested_.clean, *out.effects);
      });
    }
    out.summary = summarize(out.iteration);
    if (!out.changes.empty() && q_.attribution) out.before = before(*out.effects);
    draw(out, calibrated_us);
    if (out.substitution) {
      doubt(out, *out.substitution);
      add_doubt(*out.as_recorded, out.substitution->recorded);
    }
    if (q_.effect_gains)
      for (std::size_t k = 0; k < kEffects; ++k)
        out.effect_gains_us.push_back(
            calibrated_us -
            forecast_job(requested_, out.effects->without(static_cast<EffectKind>(k)), options_)
                .iteration.us());
    return out;
  }

 private:
  static ScalingForecast forecast_job(const RequestedJob& job, const Effects& effects,
                                      const ForecastOptions& options) {
    return forecast(job.clean, job.named, job.cluster, effects, options);
  }

  // Returns the unchanged job on the recording's machine, with its own number of microbatches.
  RecordingForecast::Before before(const Effects& effects) const {
    RecordingQuestion same;
    same.said = q_.said;
    for (const char* path : {"parallel", "model.experts", "dispatcher", "routing", "cluster.nodes"})
      same.said.origins.erase(path);
    if (!q_.recorded_on.empty()) same.said.origins.erase("cluster");
    RequestedJob job = requested_job(recorded_, named_, same);
    if (!q_.recorded_on.empty()) job.cluster = on_its_machine(q_.recorded_on, recorded_.topology);
    ForecastOptions options = options_;
    options.microbatches = default_microbatches(recorded_.topology, named_);
    RecordingForecast::Before out;
    set_time(out, forecast_job(job, effects, options).iteration.us(),
             tokens_of(named_, recorded_.topology, options.microbatches), recorded_.topology);
    out.what = fmt::format("{}, {} microbatches, on {}", recorded_.topology.str(), options.microbatches,
                           job.cluster.name);
    return out;
  }

  std::vector<RunSummary> drawn(const RequestedJob& job, JobDraw drawn_job, const Effects& effects) const {
    drawn_job.sigma = std::hypot(drawn_job.sigma, machine_.sigma);
    return draw_forecasts(job.clean, job.named, job.cluster, effects, options_, q_.draws, drawn_job);
  }

  void draw(RecordingForecast& out, double calibrated_us) const {
    out.drawn = drawn(requested_, drawn_jobs(recorded_, named_, q_), *out.effects);
    // The share added by contention is assumed to be the same under every drawn profile.
    const double contention = out.time_us.value / calibrated_us;
    for (const RunSummary& one : out.drawn) out.draws_us.push_back(one.iteration_us * contention);
    out.time_us = interval(out.time_us.value, out.draws_us);
  }

  const traces::NamedTopology& named_;
  const RecordingQuestion& q_;
  const RecordedMachine& machine_;
  const CleanJob& recorded_;
  RequestedJob requested_;
  ForecastOptions options_;
};

bool same_gpus(const std::string& cluster, const models::Cluster& target) {
  return models::Cluster::load(cluster).profile.name() == target.profile.name();
}

bool is_synthetic(const RecordedJob& job) {
  return std::ranges::any_of(
      job.ranks, [](const RankSteps& rank) { return traces::synthetic_of(*rank.recording).has_value(); });
}

}  // namespace

RecordingForecast forecast_recording(std::span<const RecordedJob> jobs, const traces::NamedTopology& named,
                                     const RecordingQuestion& question) {
  check(jobs, question);
  const bool realistic = jobs.front().realistic;
  const models::RoutingSpec* routing = question.routing();
  const models::Cluster cluster = cluster_of(question, jobs.front().topology);
  const std::optional<CleanJob> clean = realistic ? std::nullopt : std::optional(denoise(jobs, routing));
  const RecordedMachine machine = recorded_machine(jobs, named, cluster, question, clean ? &*clean : nullptr);
  RecordingQuestion known = question;
  known.recorded_on = machine.cluster.empty() || same_gpus(machine.cluster, cluster) ? "" : machine.cluster;
  if (realistic && machine.told == RecordedMachine::Told::by_files) known.recorded_on.clear();
  RecordingForecast out = realistic ? RealisticForecast(jobs.front(), named, known, machine).run()
                                    : ScalingModeForecast(*clean, named, known, machine).run();
  out.recorded_on.mode = realistic                                                      ? "realistic"
                         : traces::on_fake_group(*jobs.front().ranks.front().recording) ? "fake process group"
                                                                                        : "scaling";
  models::Scenario& settings = out.settings = question.said;
  const models::Parallel recorded_sizes = std::exchange(settings.parallel, out.iteration.topology.parallel());
  settings.parallel.seq = recorded_sizes.seq;
  settings.parallel.micro_batch = recorded_sizes.micro_batch;
  settings.parallel.microbatches = out.microbatches;
  settings.cluster = std::make_shared<const models::Cluster>(out.cluster);
  out.synthetic = is_synthetic(jobs.front());
  if (out.synthetic)
    out.notes.emplace_back("SYNTHETIC recording: made by the models, measured on no machine");
  if (clean && !clean->unrecorded.empty())
    out.notes.push_back(fmt::format(
        "expert ranks {} were not recorded: their experts take what the recorded rank with the nearest rows took, "
        "plus the modelled difference of the rows in {}",
        fmt::join(clean->unrecorded, ", "), routing->path));
  if (!jobs.front().unknown_calls.empty()) out.notes.push_back(jobs.front().unknown_calls);
  if (std::string note = machine_note(machine, out.cluster, !known.recorded_on.empty(), realistic);
      !note.empty())
    out.notes.push_back(std::move(note));
  if (clean) out.removed = clean->removed;
  return out;
}

namespace {

models::Answer answer_of(const models::Forecast& forecast, const std::string& dispatcher,
                         const std::optional<RecordedMemory>& held) {
  models::Answer answer(forecast);
  answer.dispatcher = dispatcher;
  if (held) answer.memory = held->step;
  return answer;
}

}  // namespace

std::optional<models::Comparison> compared(std::span<const RecordingForecast> forecasts) {
  models::Comparison c;
  for (const RecordingForecast& f : forecasts) {
    if (!f.substitution || !f.as_recorded) continue;
    if (c.answers.empty())
      c.answers.push_back(answer_of(*f.as_recorded, f.substitution->recorded, f.held_as_recorded));
    c.answers.push_back(answer_of(f, f.substitution->asked, f.held));
  }
  if (c.answers.empty()) return std::nullopt;
  c.scenario = std::make_shared<const models::Scenario>(forecasts.front().settings);
  // A job that Megatron ran, with a legacy dispatcher too, cannot take those of other frameworks.
  models::FrameworkRecipe megatron = models::FrameworkRecipe::find("megatron-lm");
  for (const char* before : {"allgather-legacy", "alltoall-legacy"})
    megatron.runs.dispatchers.emplace_back(before);
  models::rank(c.answers, false,
               megatron.runs_dispatcher(c.answers.front().dispatcher) ? &megatron : nullptr);
  c.decision = models::decide(c.answers, forecasts.front().tolerance);
  return c;
}

}  // namespace moesim::replay

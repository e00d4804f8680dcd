#include "replay/job/synthesize.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/random.h"
#include "base/units.h"
#include "models/costs/kernels.h"
#include "models/workload/layer_stack.h"
#include "replay/job/job_model.h"
#include "replay/job/layer_model.h"
#include "replay/recording/effects.h"
#include "replay/recording/gradients.h"
#include "replay/run/forecast.h"
#include "traces/recording_facts.h"

namespace moesim::replay {

namespace {

constexpr double kFirstStampMs = 1000000.0;  // host clocks count from boot; any origin works

// Returns the job of the recording. Throws InputError for sizes that no recorder has.
JobModel job_of(const SynthesisSpec& spec) {
  const Topology& t = spec.topology;
  const auto refuse = [](const std::string& found, const std::string& expected) {
    throw InputError(SourcePlace{}, found, expected);
  };
  for (const models::LayerKind& layer : models::layer_stack(spec.model))
    if (!models::is_attention(layer.mixer) || spec.model.attention.index_topk > 0)
      refuse(fmt::format("layers without attention over all tokens in {}", spec.model.name),
             "a model of layers with attention for a synthetic recording");
  for (const auto& [what, size] : {std::pair{"tokens", spec.seq},
                                   {"hidden elements", spec.model.hidden},
                                   {"elements of an expert's inner size", spec.model.expert_ffn}})
    if (size % t.tp != 0) refuse(fmt::format("{} {} with tp {}", size, what, t.tp), "a multiple of tp");
  if (spec.layers < 1 || spec.layers % t.pp != 0)
    refuse(fmt::format("{} layers with pp {}", spec.layers, t.pp), "a multiple of pp");
  if (spec.model.experts % t.expert != 0)
    refuse(fmt::format("ep {} with {} experts", t.expert, spec.model.experts),
           "an ep that divides the experts");
  JobModel job;
  job.architecture = spec.model;
  job.architecture.layers = spec.layers;
  job.topology = t;
  job.seq = spec.seq;
  job.routing =
      models::make_routing(spec.routing, job.ranks(), job.tokens(), static_cast<int>(spec.model.experts),
                           static_cast<int>(spec.model.topk), spec.seed);
  return job;
}

class Synthesizer {
 public:
  explicit Synthesizer(const SynthesisSpec& spec)
      : spec_(spec),
        job_(job_of(spec)),
        model_(job_, models::DispatcherSpec::parse("alltoall-legacy"), spec.cluster),
        launch_us_(spec.cluster.profile.launch().kernel * kUsPerSecond),
        random_(spec.seed) {}

  SyntheticRecordings run() {
    SyntheticRecordings out;
    out.scaling = scaling();
    out.realistic = realistic(out.scaling);
    return out;
  }

 private:
  double noisy(double us) { return us * std::max(0.2, 1.0 + spec_.noise * random_.normal()); }

  traces::Recording empty(const char* side) const {
    traces::Recording recording;
    recording.source = side;
    auto& named = recording.named;
    const auto& t = spec_.topology;
    named.world = t.world();
    named.tp = t.tp;
    named.pp = t.pp;
    named.ep = t.expert;
    named.experts = spec_.model.experts;
    named.dp = t.dp();
    named.layers = spec_.layers;
    named.hidden = spec_.model.hidden;
    named.seq = spec_.seq;
    named.micro_batch = 1;
    return recording;
  }

  std::vector<std::string> header(const char* side) const {
    return {std::string(traces::kSyntheticHeader) +
                "made by `moesim trace synthesize` from cost models, measured on no machine",
            fmt::format(
                " side={} model={} cluster={} profile={} {} layers={} seq={} routing={} seed={} noise={:g}",
                side, spec_.model.name, spec_.cluster.name, spec_.cluster.profile.name(),
                spec_.topology.str(), spec_.layers, spec_.seq, spec_.routing.text, spec_.seed, spec_.noise)};
  }

  traces::SubOperation sub(traces::Pool& pool, const char* source, const char* dtype,
                           std::vector<std::int64_t> dims, const char* func_name, const char* comm,
                           double duration_us, double end_us, const char* group) const {
    traces::SubOperation made;
    made.source = pool.name(source);
    made.duration = traces::Decimal::from_ms(duration_us / kUsPerMs);
    made.timestamp = traces::Decimal::from_ms(kFirstStampMs + end_us / kUsPerMs);
    made.shape = pool.shape(dims);
    made.dtype = pool.name(dtype);
    if (func_name != nullptr) made.func_name = pool.name(func_name);
    made.group = pool.name(group);
    made.comm_func = pool.name(comm);
    return made;
  }

  traces::Operation line(traces::Pool& pool, const char* name, int stage, int batch, const char* state,
                         double duration_us, double end_us, const char* description,
                         const char* group) const {
    traces::Operation made;
    made.name = pool.name(name);
    made.stage_id = stage;
    made.batch_id = batch;
    made.state = pool.name(state);
    made.duration = traces::Decimal::from_ms(duration_us / kUsPerMs);
    made.timestamp = traces::Decimal::from_ms(kFirstStampMs + end_us / kUsPerMs);
    made.description = pool.name(description);
    made.group_kind = pool.name(group);
    made.shape = pool.shape_none();
    made.dtype = pool.name("None");
    return made;
  }

  // Returns the segments of one pass of a stage's layers between the calls.
  std::vector<double> pass_segments(const Coordinates& at, Pass pass) {
    using Dense = LayerModel::Dense;
    const auto layers = static_cast<std::size_t>(job_.layers_per_stage());
    const std::size_t calls = model_.calls(pass);
    const bool forward = pass == Pass::forward;
    std::vector<double> segments(layers * calls + 1, 0.0);
    for (std::size_t s = 0; s <= calls; ++s) {
      double us = model_.segment_us(pass, s, LayerModel::Part::dispatcher, at.expert, launch_us_) +
                  model_.segment_us(pass, s, LayerModel::Part::experts, at.expert, launch_us_);
      // Attention comes before the exchange in forward and after it in backward.
      if (s == (forward ? 0 : calls)) us += model_.dense_us(Dense::layer, pass, launch_us_);
      for (std::size_t layer = 0; layer < layers; ++layer) segments[layer * calls + s] += us;
    }
    double &start = forward ? segments.front() : segments.back(),
           &end = forward ? segments.back() : segments.front();
    if (at.pp == 0) start += model_.dense_us(Dense::embedding, pass, launch_us_);
    if (at.pp == spec_.topology.pp - 1) end += model_.dense_us(Dense::head, pass, launch_us_);
    for (double& us : segments) us = noisy(us);
    return segments;
  }

  // Returns a call of the program as the recorder writes it.
  traces::SubOperation recorded(traces::Pool& pool, const Call& call, double us, double end_us) const {
    const std::int64_t elements = call.rows * call.row_elements;
    const bool gathers = call.op == sim::CollectiveOp::all_gather, inside_tp = call.group == GroupKind::tp;
    if (gathers && !inside_tp)
      return sub(pool, "_gather_along_first_dim_expert_parallel", "torch.int64", {elements},
                 "gather_along_first_dim_expert_parallel", "allgather", us, end_us, "exp");
    const std::int64_t row = call.row_elements > 1 ? call.row_elements : job_.architecture.hidden;
    const bool exchanges = call.op == sim::CollectiveOp::all_to_all;
    return sub(pool,
               exchanges ? "_profiled_all_to_all_single"
               : gathers ? "_gather_along_last_dim"
                         : "_reduce_scatter_along_first_dim",
               "torch.bfloat16", {elements / row, row}, nullptr,
               exchanges ? "all_to_all"
               : gathers ? "allgather"
                         : "reduce_scatter",
               us, end_us, inside_tp ? "tp" : "exp");
  }

  traces::Recording scaling() {
    traces::Recording recording = empty("scaling");
    const auto& t = spec_.topology;
    for (int r = 0; r < t.world(); ++r) {
      const Coordinates at = t.of(r);
      traces::RankRecording rank;
      rank.rank = r;
      rank.header = header("scaling");
      double now = 0;
      auto& pool = recording.pool;
      const auto simple = [&](const char* name, double us, const char* description, const char* group) {
        now += us;
        rank.add(line(pool, name, at.pp, 0, "None", us, now, description, group));
      };
      const auto add_pass = [&](const char* name, Pass pass) {
        const double start = now;
        std::vector<traces::SubOperation> subs;
        const auto segments = pass_segments(at, pass);
        for (std::size_t s = 0; s < segments.size(); ++s) {
          now += segments[s];
          if (s + 1 < segments.size())
            subs.push_back(recorded(pool, model_.call(pass, s % model_.calls(pass), r), 0, now));
        }
        rank.add(line(pool, name, at.pp, 0, "None", now - start, now, "simulation", "None"), subs);
      };
      if (at.pp == 0 || at.pp == t.pp - 1) simple("get_batch", 300, "simulation", "tp");
      add_pass("forward_step", Pass::forward);
      if (at.pp == t.pp - 1)
        simple("loss_func", 280, "simulation: loss_func, calculate and DP allreduce for the last stage",
               "None");
      add_pass("backward_step", Pass::backward);
      const GradientSizes sizes = elements(at);
      const auto reduction = [&](const char* name, std::int64_t elements, const char* group) {
        auto made = line(pool, name, at.pp, 0, "finalize", 10, now += 10, "simulation", group);
        made.shape = pool.shape(std::vector<std::int64_t>{elements});
        made.dtype = pool.name("torch.float32");
        rank.add(made);
      };
      reduction("dp_allreduce", sizes.dense, "dp");
      reduction("exp_dp_allreduce", sizes.expert, "exp_dp");
      simple("optimizer_step", noisy(optimizer_us(static_cast<double>(sizes.parameters()))), "simulation",
             "None");
      recording.ranks.push_back(std::move(rank));
    }
    return recording;
  }

  GradientSizes elements(const Coordinates& at) const {
    return stage_elements(job_.architecture, job_.topology, at.pp == 0, at.pp == job_.topology.pp - 1);
  }

  double optimizer_us(double parameters) const {
    // Adam in float32: weight, gradient and two moments read, three written, and a bf16 copy.
    return kUsPerSecond * models::KernelModel(spec_.cluster.profile)
                              .seconds(models::KernelClass::kElementwise, 16 * parameters, 14 * parameters);
  }

  // Writes the simulated iteration as a recorder would.
  traces::Recording realistic(const traces::Recording& scaling) {
    const RecordedJob job = interpret(scaling);
    const CleanJob clean = denoise(std::span(&job, 1));
    const Effects effects(spec_.cluster.profile);
    const ForecastOptions options{spec_.microbatches, &spec_.model};
    const ScalingForecast made = forecast(clean, scaling.named, spec_.cluster, effects, options);
    const Iteration& iteration = made.iteration;
    traces::Recording recording = empty("realistic");
    auto& pool = recording.pool;
    for (int r = 0; r < spec_.topology.world(); ++r) {
      traces::RankRecording rank;
      rank.rank = r;
      rank.header = header("realistic");
      recording.ranks.push_back(std::move(rank));
    }
    for (std::size_t i = 0; i < iteration.spans.size(); ++i) {
      const StepSpan& span = iteration.spans[i];
      const bool second =
          i > 0 && iteration.spans[i - 1].fused_with_next && iteration.spans[i - 1].rank == span.rank;
      const StepSpan& pair = second                 ? iteration.spans[i - 1]
                             : span.fused_with_next ? iteration.spans[i + 1]
                                                    : span;
      const double start = std::min(span.start_us, pair.start_us);
      const double end = std::max(span.end_us, pair.end_us);
      auto& rank = recording.ranks[static_cast<std::size_t>(span.rank)];
      const int stage = spec_.topology.of(span.rank).pp;
      auto written =
          line(pool, recorded_name(span.kind), stage, span.microbatch,
               is_gradient_sync(span.kind) || span.kind == StepKind::optimizer ? "finalize" : "steady",
               end - start, end, "None", group_of(span.kind));
      if (is_p2p(span.kind)) {
        written.shape = pool.shape(std::vector<std::int64_t>{spec_.seq, 1, spec_.model.hidden});
        written.dtype = pool.name("torch.bfloat16");
      } else if (is_gradient_sync(span.kind)) {
        const GradientSizes sizes = elements(spec_.topology.of(span.rank));
        written.shape = pool.shape(
            std::vector<std::int64_t>{span.kind == StepKind::dp_all_reduce ? sizes.dense : sizes.expert});
        written.dtype = pool.name("torch.float32");
      }
      rank.add(written, calls_of(iteration, span, pool));
    }
    return recording;
  }

  std::vector<traces::SubOperation> calls_of(const Iteration& iteration, const StepSpan& span,
                                             traces::Pool& pool) const {
    std::vector<traces::SubOperation> subs;
    if (span.kind != StepKind::forward && span.kind != StepKind::backward) return subs;
    const Pass pass = span.kind == StepKind::forward ? Pass::forward : Pass::backward;
    std::size_t next = 0;
    for (sim::TaskId task = span.first;; task = iteration.graph.next_on_stream(task)) {
      if (iteration.graph.kind(task) == sim::TaskKind::member) {
        const double start = iteration.timeline.start(task).us();
        const double end = iteration.timeline.end(task).us();
        subs.push_back(
            recorded(pool, model_.call(pass, next++ % model_.calls(pass), span.rank), end - start, end));
      }
      if (task == span.last) break;
    }
    return subs;
  }

  static const char* recorded_name(StepKind kind) {
    static constexpr const char* kNames[] = {
        "get_batch",    "forward_step",   "loss_func",     "backward_step", "send_forward",
        "recv_forward", "send_backward",  "recv_backward", "dp_allreduce",  "exp_dp_allreduce",
        "ep_allreduce", "optimizer_step", "optimizer_step"};
    return kNames[static_cast<std::size_t>(kind)];
  }

  static const char* group_of(StepKind kind) {
    if (is_p2p(kind)) return "pp";
    if (kind == StepKind::dp_all_reduce) return "dp";
    if (kind == StepKind::expert_all_reduce) return "exp_dp";
    return "None";
  }

  const SynthesisSpec& spec_;
  JobModel job_;
  LayerModel model_;
  double launch_us_;
  Random random_;
};

}  // namespace

SyntheticRecordings synthesize(const SynthesisSpec& spec) { return Synthesizer(spec).run(); }

}  // namespace moesim::replay

#include "replay/job/synthesize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/input_error.h"
#include "base/random.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/workload/layer_stack.h"
#include "replay/recording/effects.h"
#include "replay/run/forecast.h"
#include "traces/recording_facts.h"

namespace moesim::replay {

namespace {

constexpr double kUs = 1e6;  // microseconds in a second
constexpr double kMsPerUs = 1e-3;
constexpr double kFirstStampMs = 1000000.0;   // host clocks count from boot; any origin will do
constexpr double kAttentionEfficiency = 0.4;  // of the peak rate, causal flash attention at training lengths

// Computing times of one layer and of the ends of the model, in microseconds.
class LayerTimes {
 public:
  explicit LayerTimes(const SynthesisSpec& spec)
      : spec_(spec),
        gemm_(spec.cluster.profile),
        kernels_(spec.cluster.profile),
        tokens_(spec.seq),
        tp_(spec.topology.tp) {}

  double attention(bool backward) const {
    const auto& model = spec_.model;
    const std::int64_t weights = model.attention.parameters(model.hidden) / model.hidden / tp_;
    const double products = gemm_.seconds({tokens_, weights, model.hidden}, models::DType::kBf16);
    const double flops = 2.0 * static_cast<double>(tokens_) * static_cast<double>(tokens_) *
                         static_cast<double>(model.attention.heads * model.attention.output_dim()) / share();
    const double peak =
        spec_.cluster.profile.device().peak_flops[static_cast<std::size_t>(models::DType::kBf16)];
    const double core = flops / (kAttentionEfficiency * peak);
    const double norms = kernels_.seconds(models::KernelClass::kReduce, 4 * row_bytes() / share(),
                                          2 * row_bytes() / share(), 6);
    return kUs * (backward ? 2 * products + 2.5 * core + 2 * norms : products + core + norms);
  }
  double permute() const {
    return kUs *
           kernels_.seconds(models::KernelClass::kGatherRows, topk() * row_bytes(), topk() * row_bytes(), 3);
  }
  double unpermute() const {
    return kUs * kernels_.seconds(models::KernelClass::kScatterAdd, 2 * topk() * row_bytes(),
                                  topk() * row_bytes(), 2);
  }
  double experts(std::span<const std::int64_t> rows, bool backward) const {
    const auto& model = spec_.model;
    const std::int64_t ffn = model.expert_ffn / tp_, up = (model.gated ? 2 : 1) * ffn;
    const auto time = [&](std::int64_t n, std::int64_t k, models::GemmPass pass) {
      return gemm_.grouped_seconds(rows, n, k, models::DType::kBf16, pass);
    };
    using enum models::GemmPass;
    double total = 0;
    for (const std::int64_t count : rows) total += static_cast<double>(count);
    const double activation =
        kernels_.seconds(models::KernelClass::kElementwise, total * static_cast<double>(up) * 2,
                         total * static_cast<double>(ffn) * 2);
    if (!backward)
      return kUs * (time(up, model.hidden, kForward) + time(model.hidden, ffn, kForward) + activation);
    return kUs * (time(up, model.hidden, kDgrad) + time(up, model.hidden, kWgrad) +
                  time(model.hidden, ffn, kDgrad) + time(model.hidden, ffn, kWgrad) + 2 * activation);
  }
  double head(bool backward) const {
    return kUs * (backward ? 2 : 1) *
           gemm_.seconds({tokens_, spec_.model.vocabulary / tp_, spec_.model.hidden}, models::DType::kBf16);
  }
  double optimizer(double parameters) const {
    // Adam in float32: weight, gradient and two moments read, three written, and a bf16 copy.
    return kUs * kernels_.seconds(models::KernelClass::kElementwise, 16 * parameters, 14 * parameters);
  }

 private:
  double row_bytes() const { return static_cast<double>(tokens_ * spec_.model.hidden) * 2; }
  // Rows of all tokens, whose columns tensor-parallel ranks divide.
  double share() const { return static_cast<double>(tp_); }
  double topk() const { return static_cast<double>(spec_.model.topk) / share(); }

  const SynthesisSpec& spec_;
  models::GemmModel gemm_;
  models::KernelModel kernels_;
  std::int64_t tokens_, tp_;
};

class Synthesizer {
 public:
  explicit Synthesizer(const SynthesisSpec& spec) : spec_(spec), times_(spec), random_(spec.seed) {}

  SyntheticRecordings run() {
    check_sizes();
    const auto& t = spec_.topology;
    routing_ = models::make_routing(spec_.routing, t.tp * t.expert, spec_.seq / t.tp,
                                    static_cast<int>(spec_.model.experts), static_cast<int>(spec_.model.topk),
                                    spec_.seed);
    SyntheticRecordings out;
    out.scaling = scaling();
    out.realistic = realistic(out.scaling);
    return out;
  }

 private:
  void check_sizes() const {
    const auto& t = spec_.topology;
    const auto refuse = [](const std::string& found, const std::string& expected) {
      throw InputError(SourcePlace{}, found, expected);
    };
    if (t.cp != 1) refuse(fmt::format("cp {}", t.cp), "1 for a synthetic recording");
    for (const models::LayerKind& layer : models::layer_stack(spec_.model))
      if (!models::is_attention(layer.mixer) || spec_.model.attention.index_topk > 0)
        refuse(fmt::format("layers without attention over all tokens in {}", spec_.model.name),
               "a model of layers with attention for a synthetic recording");
    for (const auto& [what, size] : {std::pair{"tokens", spec_.seq},
                                     {"hidden elements", spec_.model.hidden},
                                     {"elements of an expert's inner size", spec_.model.expert_ffn}})
      if (size % t.tp != 0) refuse(fmt::format("{} {} with tp {}", size, what, t.tp), "a multiple of tp");
    if (spec_.layers < 1 || spec_.layers % t.pp != 0)
      refuse(fmt::format("{} layers with pp {}", spec_.layers, t.pp), "a multiple of pp");
    if (spec_.model.experts % t.expert != 0)
      refuse(fmt::format("ep {} with {} experts", t.expert, spec_.model.experts),
             "an ep that divides the experts");
    if (spec_.cluster.ranks() < t.world())
      refuse(fmt::format("{} ranks", t.world()),
             fmt::format("at most the {} GPUs of {}", spec_.cluster.ranks(), spec_.cluster.name));
  }

  std::vector<std::int64_t> expert_rows(int expert_rank) const {
    const int local = routing_.experts() / spec_.topology.expert;
    const auto totals = routing_.expert_totals();
    return {totals.begin() + expert_rank * local, totals.begin() + (expert_rank + 1) * local};
  }

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
    made.duration = traces::Decimal::from_ms(duration_us * kMsPerUs);
    made.timestamp = traces::Decimal::from_ms(kFirstStampMs + end_us * kMsPerUs);
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
    made.duration = traces::Decimal::from_ms(duration_us * kMsPerUs);
    made.timestamp = traces::Decimal::from_ms(kFirstStampMs + end_us * kMsPerUs);
    made.description = pool.name(description);
    made.group_kind = pool.name(group);
    made.shape = pool.shape_none();
    made.dtype = pool.name("None");
    return made;
  }

  // Segments of one pass of a stage's layers, as they lie between the calls.
  std::vector<double> pass_segments(int stage, int expert_rank, bool backward) {
    const auto& t = spec_.topology;
    const std::vector<std::int64_t> rows = expert_rows(expert_rank);
    const int layers = spec_.layers / t.pp;
    const bool last = stage == t.pp - 1;
    std::vector<double> segments;
    double open = backward && last ? times_.head(true) : 0.0;
    for (int layer = 0; layer < layers; ++layer) {
      if (!backward) {
        segments.push_back(noisy(open + times_.attention(false)));
        segments.push_back(noisy(times_.permute()));
        segments.push_back(noisy(times_.experts(rows, false)));
        open = times_.unpermute();
        if (t.tp > 1) segments.push_back(noisy(std::exchange(open, 0.0)));
      } else {
        if (t.tp > 1) segments.push_back(noisy(std::exchange(open, 0.0)));
        segments.push_back(noisy(open + times_.unpermute()));
        segments.push_back(noisy(times_.experts(rows, true)));
        open = times_.permute() + times_.attention(true);
        if (t.tp == 1) continue;
        segments.push_back(noisy(times_.permute()));
        open = times_.attention(true);
      }
    }
    segments.push_back(noisy(open + (!backward && last ? times_.head(false) : 0.0)));
    return segments;
  }

  // A call of a layer as the recorder writes it.
  struct RecordedCall {
    const char* source;
    const char* dtype;
    std::vector<std::int64_t> shape;
    const char* func_name;
    const char* comm;
    const char* group;
  };

  // Of a layer: the calls behind each of its segments. With tensor parallelism rows have H/TP columns between
  // the experts' ranks; calls of the tensor-parallel group stand beside the exchange they belong to.
  std::vector<std::vector<RecordedCall>> calls_of_layer(int expert_rank, bool backward) const {
    const std::int64_t tp = spec_.topology.tp, hidden = spec_.model.hidden, columns = hidden / tp;
    const std::int64_t sent = spec_.seq * spec_.model.topk;
    std::int64_t received = 0;
    for (const std::int64_t rows : expert_rows(expert_rank)) received += rows;
    const char *exchange = "_profiled_all_to_all_single", *bf16 = "torch.bfloat16";
    const char* counted = "gather_along_first_dim_expert_parallel";
    const RecordedCall counts{"_gather_along_first_dim_expert_parallel",
                              "torch.int64",
                              {spec_.model.experts},
                              counted,
                              "allgather",
                              "exp"};
    const RecordedCall there{exchange, bf16, {sent, columns}, nullptr, "all_to_all", "exp"};
    const RecordedCall back{exchange, bf16, {received, columns}, nullptr, "all_to_all", "exp"};
    const RecordedCall tokens{exchange, bf16, {spec_.seq / tp, hidden}, nullptr, "all_to_all", "tp"};
    const RecordedCall gather{
        "_gather_along_last_dim", bf16, {received, columns}, nullptr, "allgather", "tp"};
    const RecordedCall scatter{
        "_reduce_scatter_along_first_dim", bf16, {received, hidden}, nullptr, "reduce_scatter", "tp"};
    if (tp == 1 && backward) return {{there}, {back}};
    if (tp == 1) return {{counts}, {there}, {back}};
    if (backward) return {{tokens}, {there, gather}, {scatter, back}, {tokens}};
    return {{counts, tokens}, {there, gather}, {scatter, back}, {tokens}};
  }

  traces::SubOperation made_call(traces::Pool& pool, const RecordedCall& call, double us,
                                 double end_us) const {
    return sub(pool, call.source, call.dtype, call.shape, call.func_name, call.comm, us, end_us, call.group);
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
      const auto pass = [&](const char* name, bool backward) {
        const double start = now;
        std::vector<traces::SubOperation> subs;
        const auto segments = pass_segments(at.pp, at.expert, backward);
        const auto calls = calls_of_layer(at.expert, backward);
        for (std::size_t s = 0; s < segments.size(); ++s) {
          now += segments[s];
          if (s + 1 == segments.size()) break;
          for (const RecordedCall& call : calls[s % calls.size()])
            subs.push_back(made_call(pool, call, 0, now));
        }
        rank.add(line(pool, name, at.pp, 0, "None", now - start, now, "simulation", "None"), subs);
      };
      if (at.pp == 0 || at.pp == t.pp - 1) simple("get_batch", 300, "simulation", "tp");
      pass("forward_step", false);
      if (at.pp == t.pp - 1)
        simple("loss_func", 280, "simulation: loss_func, calculate and DP allreduce for the last stage",
               "None");
      pass("backward_step", true);
      const auto [dense, expert] = parameters(at);
      const auto reduction = [&](const char* name, std::int64_t elements, const char* group) {
        auto made = line(pool, name, at.pp, 0, "finalize", 10, now += 10, "simulation", group);
        made.shape = pool.shape(std::vector<std::int64_t>{elements});
        made.dtype = pool.name("torch.float32");
        rank.add(made);
      };
      reduction("dp_allreduce", dense, "dp");
      reduction("exp_dp_allreduce", expert, "exp_dp");
      simple("optimizer_step", noisy(times_.optimizer(static_cast<double>(dense + expert))), "simulation",
             "None");
      recording.ranks.push_back(std::move(rank));
    }
    return recording;
  }

  // Dense and expert parameters of a rank.
  std::pair<std::int64_t, std::int64_t> parameters(const Coordinates& at) const {
    const auto& model = spec_.model;
    const std::int64_t layers = spec_.layers / spec_.topology.pp;
    const std::int64_t tp = spec_.topology.tp, table = model.vocabulary * model.hidden / tp;
    std::int64_t dense = layers * (model.attention.parameters(model.hidden) / tp + 2 * model.hidden +
                                   model.experts * model.hidden);
    if (at.pp == 0) dense += table;
    if (at.pp == spec_.topology.pp - 1) dense += table + model.hidden;
    const std::int64_t matrices = model.gated ? 3 : 2;
    return {dense, layers * (model.experts / spec_.topology.expert) * matrices * model.hidden *
                       model.expert_ffn / tp};
  }

  // The simulated iteration, written down as a recorder would have.
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
        const auto [dense, expert] = parameters(spec_.topology.of(span.rank));
        written.shape =
            pool.shape(std::vector<std::int64_t>{span.kind == StepKind::dp_all_reduce ? dense : expert});
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
    const Topology& t = spec_.topology;
    std::vector<RecordedCall> of_layer;  // calls in groups of one are no members of anything
    for (const auto& stop : calls_of_layer(t.of(span.rank).expert, span.kind == StepKind::backward))
      for (const RecordedCall& call : stop)
        if ((std::string_view(call.group) == "tp" ? t.tp : t.expert) > 1) of_layer.push_back(call);
    std::size_t next = 0;
    for (sim::TaskId task = span.first;; task = iteration.graph.next_on_stream(task)) {
      if (iteration.graph.kind(task) == sim::TaskKind::member) {
        const double start = iteration.timeline.start(task).us();
        const double end = iteration.timeline.end(task).us();
        subs.push_back(made_call(pool, of_layer[next++ % of_layer.size()], end - start, end));
      }
      if (task == span.last) break;
    }
    return subs;
  }

  static const char* recorded_name(StepKind kind) {
    switch (kind) {
      case StepKind::get_batch:
        return "get_batch";
      case StepKind::forward:
        return "forward_step";
      case StepKind::loss:
        return "loss_func";
      case StepKind::backward:
        return "backward_step";
      case StepKind::send_forward:
        return "send_forward";
      case StepKind::recv_forward:
        return "recv_forward";
      case StepKind::send_backward:
        return "send_backward";
      case StepKind::recv_backward:
        return "recv_backward";
      case StepKind::dp_all_reduce:
        return "dp_allreduce";
      case StepKind::expert_all_reduce:
        return "exp_dp_allreduce";
      case StepKind::embedding_all_reduce:
        return "ep_allreduce";
      default:
        return "optimizer_step";
    }
  }

  static const char* group_of(StepKind kind) {
    if (is_p2p(kind)) return "pp";
    if (kind == StepKind::dp_all_reduce) return "dp";
    if (kind == StepKind::expert_all_reduce) return "exp_dp";
    return "None";
  }

  const SynthesisSpec& spec_;
  LayerTimes times_;
  Random random_;
  models::Routing routing_;
};

}  // namespace

SyntheticRecordings synthesize(const SynthesisSpec& spec) { return Synthesizer(spec).run(); }

}  // namespace moesim::replay

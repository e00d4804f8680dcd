#include "replay/job/rescale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "base/check.h"
#include "base/input_error.h"
#include "replay/job/substitute.h"
#include "replay/recording/gradients.h"

namespace moesim::replay {

namespace {

using Part = LayerModel::Part;
using Dense = LayerModel::Dense;

// The segments at the ends of a stage and between its layers. "End" is the end of the model where the pass
// starts (head) or ends (tail): the embedding or the output head.
enum class Edge : std::uint8_t { head_end, head, between, tail, tail_end };
constexpr std::size_t kEdges = 5;

// Mean of measured times; empty where the recording has no such segment.
struct Mean {
  double sum = 0;
  int count = 0;
  void add(double us) { sum += us, ++count; }
  std::optional<double> value() const { return count > 0 ? std::optional(sum / count) : std::nullopt; }
};

bool starts_model(Pass pass, int stage, int stages) {
  return pass == Pass::forward ? stage == 0 : stage == stages - 1;
}
bool ends_model(Pass pass, int stage, int stages) {
  return pass == Pass::forward ? stage == stages - 1 : stage == 0;
}

// Finds the host time of a launch for which a monotonic `us_of(launch)` is `us`.
double launch_for(double us, const std::function<double(double)>& us_of) {
  double low = 0, high = us;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (us_of(middle) < us ? low : high) = middle;
  }
  return (low + high) / 2;
}

// A measured time after a change, and the remaining share of its host's jitter.
struct Scaled {
  double us = 0;
  double jitter = 1;
};

// Scales `us`, measured for `from`, to `to`; both return the modelled time by launch time. Time that the GPU
// does not explain is the host's: its time per launch is the one with which the model gives the measured
// time, and may hide where the GPU has more to do.
Scaled scaled(double us, double launch_us, const std::function<double(double)>& from,
              const std::function<double(double)>& to) {
  constexpr double kDeviceBound = 0.9;
  const double device = from(0);
  if (device <= 0 || us <= 0) return {us, 1};
  if (device >= kDeviceBound * us) return {us * to(launch_us) / from(launch_us), 1};
  Scaled out;
  out.us = to(launch_for(us, from));
  out.jitter = std::clamp((1 - to(0) / out.us) / (1 - device / us), 0.0, 1.0);
  return out;
}

// Returns the dispatcher's own work in a segment. Unfused code moves twice the compulsory bytes
// (models/costs/recipe.cc), which shows where the GPU is the bound.
double dispatcher_us(const LayerModel& model, Pass pass, std::size_t segment, int rank, double launch) {
  const double us = model.segment_us(pass, segment, Part::dispatcher, rank, launch) +
                    model.segment_us(pass, segment, Part::dispatcher, rank, 0);
  // PyTorch sorts up to 4,096 keys in one kernel; more take buffers and several passes: 0.49 ms before the
  // dispatch of 2,048 choices became 0.74 ms of 8,192, of which 0.05 are further bytes.
  constexpr std::int64_t kKeysOfOneKernel = 4096;
  constexpr int kSortLaunches = 6;
  const JobModel& job = model.job();
  const bool sorts = pass == Pass::forward && segment > 0 && segment + 2 == model.calls(pass);
  return sorts && job.tokens() * job.architecture.topk > kKeysOfOneKernel ? us + kSortLaunches * launch : us;
}

// The segments between the calls of a layer, measured for one job and scaled to another.
class InnerSegments {
 public:
  InnerSegments(const CleanJob& job, const LayerModel& from, const LayerModel& to,
                const models::Cluster& recorded_on)
      : from_(from),
        to_(to),
        recorded_rows_(from.job().received()),
        wanted_rows_(to.job().received()),
        inner_(layer_segments(job, from)),
        launch_us_(recorded_launch_us(from, recorded_on, inner_[0])) {
    for (int e = 0; e < job.topology.expert; ++e)
      if (!job.unrecorded.contains(e)) recorded_.push_back(e);
  }

  double launch_us() const { return launch_us_; }
  std::int64_t wanted_rows(int expert) const { return wanted_rows_.at(static_cast<std::size_t>(expert)); }
  // Takes modelled differences where no slope was found.
  void take_differences() { differences_ = true; }

  // Returns the recorded expert rank with the nearest number of rows, by ratio.
  int nearest(int expert) const {
    const auto distance = [&](int other) {
      return ratio_apart(recorded_rows_.at(static_cast<std::size_t>(other)),
                         wanted_rows_.at(static_cast<std::size_t>(expert)));
    };
    return *std::ranges::min_element(recorded_, {}, distance);
  }

  // Fits measured against modelled time of the experts over the recorded ranks, which differ in rows only:
  // the slope is the measured time per modelled difference. The rest is the same on all ranks and stays,
  // where a plain ratio would scale it too.
  void find_slopes(Pass pass, double fewest_ranks) {
    constexpr double kLeastSpread = 0.2;  // standard deviation of the modelled times over their mean
    for (std::size_t s = 1; s < from_.calls(pass); ++s) {
      if (!from_.has_experts(pass, s)) continue;
      double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
      for (const int e : recorded_) {
        const double x = modelled_inner(from_, pass, s, e)(launch_us_);
        const double y = inner_[static_cast<std::size_t>(pass)][s].at(static_cast<std::size_t>(e));
        n += 1, sx += x, sy += y, sxx += x * x, sxy += x * y;
      }
      const double spread = n * sxx - sx * sx;
      if (n < fewest_ranks || spread < kLeastSpread * kLeastSpread * sx * sx) continue;
      slopes_[static_cast<std::size_t>(pass)] = std::clamp((n * sxy - sx * sy) / spread, 0.5, 2.0);
    }
  }

  // Returns the time of a segment between two calls of a layer on an expert rank.
  Scaled us(Pass pass, std::size_t segment, int expert) const {
    const int source = nearest(expert);
    const double measured =
        inner_[static_cast<std::size_t>(pass)][segment].at(static_cast<std::size_t>(source));
    const auto from = modelled_inner(from_, pass, segment, source);
    const auto to = modelled_inner(to_, pass, segment, expert);
    const auto& fitted = slopes_[static_cast<std::size_t>(pass)];
    if (!from_.has_experts(pass, segment) || (!fitted && !differences_))
      return scaled(measured, launch_us_, from, to);
    // Not faster than the GPU, as far as it is modelled.
    const double faster = std::min(1.0, from(0) > 0 ? measured / from(0) : 1.0);
    const double slope = fitted.value_or(faster);
    return {std::max(measured + slope * (to(launch_us_) - from(launch_us_)), to(0) * faster), 1};
  }

 private:
  // Returns the modelled time of a segment between two calls of a layer, by launch time.
  static std::function<double(double)> modelled_inner(const LayerModel& model, Pass pass, std::size_t segment,
                                                      int rank) {
    return [&model, pass, segment, rank](double launch) {
      return dispatcher_us(model, pass, segment, rank, launch) +
             model.segment_us(pass, segment, Part::experts, rank, launch);
    };
  }

  const LayerModel& from_;
  const LayerModel& to_;
  std::vector<std::int64_t> recorded_rows_, wanted_rows_;  // that each rank of an expert group receives
  LayerSegments inner_;
  std::vector<int> recorded_;                    // expert ranks
  std::array<std::optional<double>, 2> slopes_;  // of the experts, by pass
  bool differences_ = false;
  double launch_us_ = 0;
};

std::int64_t local_experts(const LayerModel& model) {
  return model.job().architecture.experts / model.job().topology.expert;
}

class Rescaler {
 public:
  Rescaler(const CleanJob& job, const LayerModel& from, const LayerModel& to,
           const models::Cluster& recorded_on, bool same_gpus)
      : job_(job), from_(from), to_(to), inner_(job, from, to, recorded_on), launch_us_(inner_.launch_us()) {
    constexpr double kFewestRanks = 3;
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      collect(pass);
      if (same_gpus && local_experts(from) == local_experts(to)) inner_.find_slopes(pass, kFewestRanks);
    }
    if (same_gpus) inner_.take_differences();
    find_ends();
  }

  CleanJob run() {
    CleanJob out;
    out.topology = to_.job().topology;
    out.samples = job_.samples;
    out.warnings = job_.warnings;
    for (int pp = 0; pp < out.topology.pp; ++pp)
      for (int e = 0; e < out.topology.expert; ++e) {
        CleanPlace place = make_place(pp, e);
        place.received_rows = inner_.wanted_rows(e);
        out.places.emplace(PlaceKey{pp, 0, e}, std::move(place));
      }
    if (to_.job().routing_given) out.routing = to_.job().routing;
    fit_expert_slope(out);
    return out;
  }

 private:
  static const Step& step_of(const CleanPlace& place, Pass pass) {
    const Step* step = place.find(pass == Pass::forward ? StepKind::forward : StepKind::backward);
    if (step == nullptr)
      throw InputError("found a recording without forward and backward steps, expected both");
    return *step;
  }

  void collect(Pass pass) {
    std::array<Mean, kEdges> means;
    const int stages = job_.topology.pp;
    for (const auto& [key, place] : job_.places) {
      const Step& step = step_of(place, pass);
      const std::size_t calls = from_.calls(pass);
      for (std::size_t s = 0; s < step.segments_us.size(); s += calls) {
        Edge edge = Edge::between;
        if (s == 0) edge = starts_model(pass, key.pp, stages) ? Edge::head_end : Edge::head;
        if (s + 1 == step.segments_us.size())
          edge = ends_model(pass, key.pp, stages) ? Edge::tail_end : Edge::tail;
        means[static_cast<std::size_t>(edge)].add(step.segments_us[s]);
      }
    }
    auto& edges = edges_[static_cast<std::size_t>(pass)];
    for (std::size_t i = 0; i < kEdges; ++i) edges[i] = means[i].value();
    auto& between = edges[static_cast<std::size_t>(Edge::between)];
    const auto& head = edges[static_cast<std::size_t>(Edge::head)];
    const auto& tail = edges[static_cast<std::size_t>(Edge::tail)];
    // One layer per stage: between two layers lies the end of one and the start of the next.
    if (!between && head && tail) between = *head + *tail;
  }

  // Returns the end of the model alone: the additional time of a stage at it.
  static double modelled_end(const LayerModel& model, Pass pass, Edge edge, double launch) {
    const bool embedding = (edge == Edge::head_end) == (pass == Pass::forward);
    return model.dense_us(embedding ? Dense::embedding : Dense::head, pass, launch);
  }

  double modelled(const LayerModel& model, Pass pass, Edge edge, double launch) const {
    const std::size_t last = model.calls(pass);
    const double head = dispatcher_us(model, pass, 0, 0, launch);
    const double tail = dispatcher_us(model, pass, last, 0, launch);
    const double layer = model.dense_us(Dense::layer, pass, launch);
    // Attention comes before the exchange in forward and after it in backward.
    const double before = pass == Pass::forward ? layer : 0;
    const double after = pass == Pass::forward ? 0 : layer;
    switch (edge) {
      case Edge::head_end:
        return modelled_end(model, pass, edge, launch) + before + head;
      case Edge::head:
        return before + head;
      case Edge::between:
        return tail + layer + head;
      case Edge::tail:
        return tail + after;
      case Edge::tail_end:
        return tail + after + modelled_end(model, pass, edge, launch);
    }
    check_failed("unknown edge");
  }

  const std::optional<double>& measured_edge(Pass pass, Edge edge) const {
    return edges_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(edge)];
  }

  Scaled edge_us(Pass pass, Edge edge) const {
    const auto& measured = measured_edge(pass, edge);
    if (!measured)
      throw InputError(
          fmt::format("found a recording of pp {} with {} layers in a stage, expected one that shows {}",
                      job_.topology.pp, from_.job().layers_per_stage(),
                      edge == Edge::between ? "two layers in a row, or a stage without the model's ends"
                                            : "a stage without the model's ends"));
    // An end of the model has its own bound, where the recording shows it separately.
    if (edge == Edge::head_end || edge == Edge::tail_end) {
      const Edge without = edge == Edge::head_end ? Edge::head : Edge::tail;
      const auto& plain = measured_edge(pass, without);
      if (plain && *measured > *plain) {
        const Scaled rest = edge_us(pass, without);
        const Scaled end = scaled(
            *measured - *plain, launch_us_,
            [&](double launch) { return modelled_end(from_, pass, edge, launch); },
            [&](double launch) { return modelled_end(to_, pass, edge, launch); });
        const double us = rest.us + end.us;
        return {us, (rest.us * rest.jitter + end.us * end.jitter) / us};
      }
    }
    return scaled(
        *measured, launch_us_, [&](double launch) { return modelled(from_, pass, edge, launch); },
        [&](double launch) { return modelled(to_, pass, edge, launch); });
  }

  Step make_step(Pass pass, int stage, int expert, const Step& prototype) const {
    Step step;
    step.kind = prototype.kind;
    step.line = nullptr;
    const auto add = [&step](const Scaled& segment, double products_us = 0) {
      step.segments_us.push_back(segment.us);
      step.bounds.push_back({segment.jitter, products_us * (1 - segment.jitter)});
    };
    const double layer_us = sustained(pass, expert) * to_.products_us(Dense::layer, pass);
    const std::size_t calls = from_.calls(pass);
    const int layers = to_.job().layers_per_stage();
    const int stages = to_.job().topology.pp;
    for (int layer = 0; layer < layers; ++layer) {
      const Edge edge = layer > 0                           ? Edge::between
                        : starts_model(pass, stage, stages) ? Edge::head_end
                                                            : Edge::head;
      add(edge_us(pass, edge), layer > 0 ? layer_us : 0);
      for (std::size_t c = 0; c < calls; ++c) {
        Call call = prototype.calls.at(c);
        call.rows = to_.call_rows(
            pass, c, expert,
            static_cast<std::uint64_t>(call.row_elements) * static_cast<std::uint64_t>(call.element_bytes));
        step.calls.push_back(call);
        if (c + 1 < calls) add(inner_.us(pass, c + 1, expert));
      }
    }
    const bool last = ends_model(pass, stage, stages);
    const double tail_us = pass == Pass::backward ? layer_us
                           : last ? sustained(pass, expert) * to_.products_us(Dense::head, pass)
                                  : 0;
    add(edge_us(pass, last ? Edge::tail_end : Edge::tail), tail_us);
    return step;
  }

  // Returns 1 for a rank that its group waits for: its GPU never rests, and what follows the experts runs at their
  // sustained clock; 0 for one that waits for a millisecond, as ranks of three runs at 4,096 tokens show.
  double sustained(Pass pass, int expert) const {
    constexpr double kRecoveryUs = 1000;
    double longest = 0, own = 0;
    for (std::size_t s = 1; s < to_.calls(pass); ++s)
      for (int e = 0; to_.has_experts(pass, s) && e < to_.job().topology.expert; ++e) {
        const double us = inner_.us(pass, s, e).us;
        longest = std::max(longest, us);
        if (e == expert) own = us;
      }
    return std::max(0.0, 1 - (longest - own) / kRecoveryUs);
  }

  // Finds the gradient elements at the ends of the model: those of the recorded buffers besides the layers.
  void find_ends() {
    const int last = job_.topology.pp - 1;
    const auto dense_of = [&](int stage) {
      const CleanPlace& place = job_.places.at({stage, 0, 0});
      std::int64_t dense = 0, expert = 0;
      for (const Step& step : place.steps) {
        if (step.kind == StepKind::dp_all_reduce) dense = step.elements;
        if (step.kind == StepKind::expert_all_reduce) expert = step.elements;
      }
      const GradientSizes layers = stage_elements(from_.job().architecture, job_.topology);
      // Early recordings write one line with the sum.
      return dense - layers.dense - (expert > 0 ? 0 : layers.expert);
    };
    const std::int64_t norm = from_.job().architecture.hidden;
    if (last == 0) {
      embedding_ = (dense_of(0) - norm) / 2;
      head_ = embedding_ + norm;
    } else {
      embedding_ = dense_of(0);
      head_ = dense_of(last);
    }
    if (embedding_ < 0 || head_ < 0)
      throw InputError(
          fmt::format("found gradient buffers smaller than the layers of {}, expected --model with "
                      "the recorded one",
                      from_.job().architecture.name));
  }

  GradientSizes elements(const JobModel& job, int stage) const {
    GradientSizes all = stage_elements(job.architecture, job.topology);
    if (stage == 0) all.dense += embedding_;
    if (stage == job.topology.pp - 1) all.dense += head_;
    return all;
  }

  CleanPlace make_place(int stage, int expert) const {
    const JobModel& to = to_.job();
    const int stages = to.topology.pp;
    // A recorded place at the same end of the pipeline supplies the lines besides forward and backward.
    const int recorded_stages = job_.topology.pp;
    const int like = stage == stages - 1 ? recorded_stages - 1 : stage == 0 ? 0 : recorded_stages / 2;
    const CleanPlace& source = job_.places.at({like, 0, inner_.nearest(expert)});
    const bool batches = stage == 0 || stage == stages - 1;
    const GradientSizes before = elements(from_.job(), like);
    const GradientSizes after = elements(to, stage);
    CleanPlace place;
    const bool has_expert_line = source.find(StepKind::expert_all_reduce) != nullptr;
    for (const Step& recorded : source.steps) {
      Step step = recorded;
      step.line = nullptr;
      switch (recorded.kind) {
        case StepKind::forward:
        case StepKind::backward:
          step = make_step(recorded.kind == StepKind::forward ? Pass::forward : Pass::backward, stage, expert,
                           recorded);
          break;
        case StepKind::get_batch:
          if (!batches) continue;
          break;
        case StepKind::loss:
          if (stage != stages - 1) continue;
          break;
        case StepKind::dp_all_reduce:
          step.elements = after.dense + (has_expert_line ? 0 : after.expert);
          break;
        case StepKind::expert_all_reduce:
          step.elements = after.expert;
          break;
        case StepKind::optimizer:
          for (double& us : step.segments_us)
            us *= static_cast<double>(after.parameters()) / static_cast<double>(before.parameters());
          break;
        case StepKind::embedding_all_reduce:
          if (!batches) continue;
          break;
        default:
          break;
      }
      place.steps.push_back(std::move(step));
    }
    return place;
  }

  const CleanJob& job_;
  const LayerModel& from_;
  const LayerModel& to_;
  InnerSegments inner_;
  double launch_us_ = 0;
  std::array<std::array<std::optional<double>, kEdges>, 2> edges_;
  std::int64_t embedding_ = 0, head_ = 0;
};

}  // namespace

CleanJob rescaled(const CleanJob& job, const LayerModel& from, const LayerModel& to,
                  const models::Cluster& recorded_on, bool same_gpus) {
  return Rescaler(job, from, to, recorded_on, same_gpus).run();
}

void complete_experts(CleanJob& job, const LayerModel& model, const models::Cluster& recorded_on) {
  constexpr double kFewestRanks = 2;
  InnerSegments inner(job, model, model, recorded_on);
  for (const Pass pass : {Pass::forward, Pass::backward}) inner.find_slopes(pass, kFewestRanks);
  inner.take_differences();
  for (auto& [key, place] : job.places) {
    if (!job.unrecorded.contains(key.expert)) continue;
    for (Step& step : place.steps) {
      if (step.kind != StepKind::forward && step.kind != StepKind::backward) continue;
      const Pass pass = step.kind == StepKind::forward ? Pass::forward : Pass::backward;
      for (const std::size_t start : model.layer_starts(pass, step))
        for (std::size_t s = 1; s < model.calls(pass); ++s)
          if (model.has_experts(pass, s)) step.segments_us[start + s] = inner.us(pass, s, key.expert).us;
    }
  }
  job.unrecorded.clear();
  fit_expert_slope(job);
}

}  // namespace moesim::replay

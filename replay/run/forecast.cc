#include "replay/run/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "base/statistics.h"
#include "base/study.h"
#include "base/units.h"
#include "models/step/pipeline_schedule.h"
#include "replay/run/model_pricing.h"
#include "replay/run/recorded_run.h"

namespace moesim::replay {

namespace {

constexpr double kBytesPerGb = 1e9;
constexpr int kDefaultGlobalBatch = 64;
// Streams of random numbers separate from the jitter's.
constexpr std::uint64_t kExpertScores = 0x65787065, kDenseScores = 0x64656e73;
// Batches that a run's loader has ready: two workers with two each, the defaults of Megatron and PyTorch.
constexpr int kBatchesReady = 4;
// Weighted mean length of the experts' forward segments in the runs from which sustained_forward was read.
constexpr double kSustainedReadAtUs = 2100;
constexpr double kUpProjections = 2.0 / 3.0;  // of a gated expert's parameters

std::vector<Slot> with_transfers(const std::vector<models::PipelineSlot>& passes, int stage, int stages) {
  const bool first = stage == 0, last = stage == stages - 1;
  const bool steady = static_cast<int>(passes.size()) / 2 >= stages - stage;
  std::vector<Slot> slots;
  const models::PipelineSlot* before = nullptr;
  for (const models::PipelineSlot& pass : passes) {
    const bool forward = pass.kind == models::PipelineSlot::Kind::kForward;
    if (forward ? !first : !last) {
      if (steady && before != nullptr && before->kind != pass.kind) slots.back().fused_with_next = true;
      slots.push_back({forward ? StepKind::recv_forward : StepKind::recv_backward, pass.microbatch});
    }
    if (forward && (first || last)) slots.push_back({StepKind::get_batch, pass.microbatch});
    slots.push_back({forward ? StepKind::forward : StepKind::backward, pass.microbatch});
    if (forward && last) slots.push_back({StepKind::loss, pass.microbatch});
    if (forward ? !last : !first)
      slots.push_back({forward ? StepKind::send_forward : StepKind::send_backward, pass.microbatch});
    before = &pass;
  }
  return slots;
}

// Returns each rank's slowness in standard deviations: on every stage the same evenly spread normal scores,
// shuffled by the seed. One run then has the spread of many, where independent draws would depend on luck.
std::vector<double> dealt_scores(const Topology& topology, std::uint64_t seed) {
  const int ranks = topology.stage_ranks();
  std::vector<double> scores;
  scores.reserve(static_cast<std::size_t>(ranks));
  for (int k = 0; k < ranks; ++k) scores.push_back(normal_quantile((k + 0.5) / ranks));
  std::vector<double> dealt;
  for (int stage = 0; stage < topology.pp; ++stage) {
    Random random = Random::for_item(seed, static_cast<std::uint64_t>(stage));
    std::vector<double> hand = scores;
    for (std::size_t k = hand.size(); k > 1; --k)
      std::swap(hand[k - 1], hand[static_cast<std::size_t>(random.uniform() * static_cast<double>(k))]);
    dealt.insert(dealt.end(), hand.begin(), hand.end());
  }
  return dealt;
}

// Adds the effects of a real run to a cleaned step. Draws depend on (seed, rank) and the order of steps only.
class StepMaker {
 public:
  // `expert` and `dense`: slowness of the rank in standard deviations.
  StepMaker(const CleanJob& job, const Effects& effects, std::uint64_t seed, int rank, double expert,
            double dense)
      : job_(job),
        effects_(effects),
        random_(Random::for_item(seed, static_cast<std::uint64_t>(rank))),
        expert_speed_(1.0 + effects[EffectKind::expert_spread] * expert),
        dense_speed_(1.0 + effects[EffectKind::dense_spread] * dense),
        rows_known_(std::ranges::any_of(job.places,
                                        [](const auto& place) { return place.second.received_rows > 0; })) {}

  // `loads`: a later batch is loaded during the step.
  Step forward(Step step, bool loads) {
    for (std::size_t s = 0; s < step.segments_us.size(); ++s)
      if (in_experts(step, s)) step.segments_us[s] *= 1.0 + sustained_forward(step.segments_us[s]);
    disturb(step, EffectKind::forward_jitter);
    // Ranks differ in it: a quarter of the mean is random, as the wait for the slowest of the group shows. Drawn in
    // any step, so that later ones do not change with the number of microbatches.
    const double random = -std::log1p(-random_.uniform());
    if (loads) step.segments_us.front() += effects_[EffectKind::loading_stall] * (0.75 + 0.25 * random);
    return step;
  }

  Step backward(Step step, const CleanPlace& place, const GradientSizes& sizes) {
    // Calls of the AllGather dispatcher do not show the rows: then all of the experts' time counts as
    // products.
    const double products_us =
        rows_known_ ? job_.expert_backward_us_per_row * static_cast<double>(place.received_rows)
                    : std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
      if (in_experts(step, s))
        step.segments_us[s] +=
            effects_[EffectKind::sustained_backward] * std::min(products_us, step.segments_us[s]);
    }
    // Stage 0 ends its backward with the embedding.
    step.segments_us.back() += effects_.memory_us(effects_[EffectKind::embedding_accumulation] *
                                                  static_cast<double>(sizes.embedding));
    disturb(step, EffectKind::backward_jitter);
    return step;
  }

  Step get_batch(Step step, double mask_bytes) const {
    double recorded = 0;
    for (double& segment : step.segments_us) recorded += std::exchange(segment, 0.0);
    step.segments_us.front() =
        std::min(recorded, effects_[EffectKind::batch_loading] +
                               effects_[EffectKind::mask_copy] * kUsPerMs * mask_bytes / kBytesPerGb);
    return step;
  }

  Step optimizer(Step step, const CleanPlace& place, const GradientSizes& sizes) const {
    auto clipped = static_cast<double>(sizes.parameters());
    const double rows = static_cast<double>(place.received_rows * job_.topology.expert_dp);
    if (place.received_rows > 0 && rows < effects_[EffectKind::clip_rows])
      clipped -= kUpProjections * static_cast<double>(sizes.expert);
    step.segments_us.front() += effects_[EffectKind::gradient_clip] * kUsPerMs * clipped / 1e9;
    if (job_.topology.expert == 1) meet_in_optimizer(step, 0.0);
    return step;
  }

  Step gradient_sync(Step step, StepKind kind, std::int64_t elements, int element_bytes) const {
    step.kind = kind;
    step.elements = elements;
    step.element_bytes = element_bytes;
    step.duration_us = 0;
    step.segments_us.assign(1, effects_[EffectKind::gradient_prescale] * kUsPerMs *
                                   static_cast<double>(elements) * element_bytes / kBytesPerGb);
    return step;
  }

  double gap_us(StepKind before, StepKind after) const {
    if (before == StepKind::forward && after == StepKind::send_forward)
      return effects_[EffectKind::gap_after_forward];
    if (before == StepKind::loss && after == StepKind::backward)
      return effects_[EffectKind::gap_before_backward];
    if (before == StepKind::backward && !is_p2p(after) && !is_gradient_sync(after))
      return effects_[EffectKind::gap_after_backward];
    if (before == StepKind::backward && after == StepKind::recv_backward)
      return effects_[EffectKind::gap_after_backward];
    return effects_[EffectKind::gap_other];
  }

 private:
  // The clock falls while products run: short forward segments end before it has fallen completely; backward
  // shows its final value.
  double sustained_forward(double us) const {
    const double recorded = effects_[EffectKind::sustained_forward];
    const double all = effects_[EffectKind::sustained_backward];
    if (recorded <= 0 || all <= recorded) return recorded;
    return all * (1 - std::pow(1 - recorded / all, us / kSustainedReadAtUs));
  }

  // Segments of many small kernels sometimes wait for the host; products of the experts are launched ahead,
  // as is all work that keeps the GPU busy for longer than the host.
  void disturb(Step& step, EffectKind jitter) {
    for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
      if (in_experts(step, s)) {
        step.segments_us[s] *= expert_speed_;
        continue;
      }
      const Bound bound = s < step.bounds.size() ? step.bounds[s] : Bound();
      step.segments_us[s] += effects_[EffectKind::sustained_backward] * bound.products_us;
      step.segments_us[s] *= dense_speed_ + bound.jitter * effects_[jitter] * -std::log1p(-random_.uniform());
    }
  }

  const CleanJob& job_;
  const Effects& effects_;
  Random random_;
  double expert_speed_;
  double dense_speed_;
  bool rows_known_;
};

// The activation between two stages, absent from scaling recordings: hidden size x sequence x micro batch, in
// two bytes each.
struct Activation {
  std::int64_t elements = 0;
  int element_bytes = 2;
};

Activation activation_of(const CleanJob& job, const traces::NamedTopology& named) {
  if (job.topology.pp == 1) return {};
  if (named.seq.value_or(0) < 1 || named.hidden.value_or(0) < 1)
    throw InputError(
        "found no sequence length and hidden size in the names of the recording, expected sl<N> and hs<N> in "
        "the folder's name: the sizes of what its stages send each other");
  return {.elements = checked_product(
              "what stages send each other",
              {*named.seq, *named.hidden, std::max<std::int64_t>(1, named.micro_batch.value_or(1))})};
}

// Separates draws of the interval from those of the forecast itself.
constexpr std::uint64_t kIntervalStream = 0x9e3779b9;

// Scales the computing of a run by `factor`.
void scale(RunSummary& run, double factor) {
  run.iteration_us *= factor;
  run.p2p_us *= factor;
  for (const StepKind kind : {StepKind::forward, StepKind::backward, StepKind::loss})
    run.steps[static_cast<std::size_t>(kind)].mean_us *= factor;
}

}  // namespace

std::vector<std::vector<Slot>> one_forward_one_backward(int stages, int microbatches) {
  std::vector<std::vector<Slot>> all;
  for (const auto& passes : models::pipeline_schedule({.stages = stages, .microbatches = microbatches}))
    all.push_back(with_transfers(passes, static_cast<int>(all.size()), stages));
  return all;
}

int default_microbatches(const Topology& topology, const traces::NamedTopology& named) {
  const auto micro_batch = std::max<std::int64_t>(1, named.micro_batch.value_or(1));
  return static_cast<int>(std::max<std::int64_t>(1, kDefaultGlobalBatch / (topology.dp() * micro_batch)));
}

std::vector<RankSteps> forecast_plans(const CleanJob& job, const traces::NamedTopology& named,
                                      const Effects& effects, const ForecastOptions& options,
                                      std::vector<std::string>& warnings) {
  check(options.microbatches > 0, "a number of microbatches");
  const Topology& topology = job.topology;
  if (std::int64_t{topology.world()} * options.microbatches > kMostRankMicrobatches)
    throw InputError(SourcePlace{},
                     fmt::format("{} ranks x {} microbatches", topology.world(), options.microbatches),
                     fmt::format("at most {} together", kMostRankMicrobatches));
  const ModelFacts facts = model_facts(named, job, options.architecture);
  const Activation activation = activation_of(job, named);
  const std::vector<double> expert_scores = dealt_scores(topology, options.seed ^ kExpertScores);
  const std::vector<double> dense_scores = dealt_scores(topology, options.seed ^ kDenseScores);
  const auto schedule = one_forward_one_backward(topology.pp, options.microbatches);
  const auto seq = static_cast<double>(named.seq.value_or(0));
  const double mask_bytes = seq * seq * static_cast<double>(named.micro_batch.value_or(1));
  std::vector<RankSteps> plans;
  for (int rank = 0; rank < topology.world(); ++rank) {
    const Coordinates at = topology.of(rank);
    const bool loads = at.pp == 0 || at.pp == topology.pp - 1;
    const PlaceKey key{at.pp, at.tp, at.expert};
    const CleanPlace& place = job.places.at(key);
    const GradientSizes sizes = gradient_sizes(job, key, facts, warnings);
    StepMaker maker(job, effects, options.seed, rank, expert_scores[static_cast<std::size_t>(rank)],
                    dense_scores[static_cast<std::size_t>(rank)]);
    RankSteps plan;
    plan.rank = rank;
    const auto add = [&](Step step) {
      const bool second = !plan.steps.empty() && plan.steps.back().fused_with_next;
      step.gap_us = plan.steps.empty() || second ? 0.0 : maker.gap_us(plan.steps.back().kind, step.kind);
      plan.steps.push_back(std::move(step));
    };
    for (const Slot& slot : schedule[static_cast<std::size_t>(at.pp)]) {
      Step step;
      if (is_p2p(slot.kind)) {
        step.elements = activation.elements;
        step.element_bytes = activation.element_bytes;
      } else {
        const CleanPlace& own = job.place(key, slot.microbatch);
        const Step* recorded = own.find(slot.kind);
        if (recorded == nullptr) {
          if (slot.kind == StepKind::get_batch || slot.kind == StepKind::loss)
            continue;  // not every recorder has them
          throw InputError(fmt::format("no {} in the recording of stage {}, expert rank {}", name(slot.kind),
                                       at.pp, at.expert));
        }
        step = *recorded;
        if (slot.kind == StepKind::forward)
          step =
              maker.forward(std::move(step), loads && slot.microbatch + kBatchesReady < options.microbatches);
        if (slot.kind == StepKind::backward) step = maker.backward(std::move(step), own, sizes);
        // Gradients are complete, and reduced, in the last backward step.
        if (slot.kind == StepKind::backward && slot.microbatch + 1 < options.microbatches)
          step.buckets.clear();
        if (slot.kind == StepKind::get_batch) step = maker.get_batch(std::move(step), mask_bytes);
      }
      step.kind = slot.kind;
      step.microbatch = slot.microbatch;
      step.fused_with_next = slot.fused_with_next;
      step.duration_us = 0;
      add(std::move(step));
    }
    // Reductions launched in backward are only awaited here.
    const bool overlapped = std::ranges::any_of(place.steps, [](const Step& step) {
      return step.kind == StepKind::backward && !step.buckets.empty();
    });
    for (const auto& [kind, elements] :
         {std::pair{StepKind::dp_all_reduce, sizes.dense}, {StepKind::expert_all_reduce, sizes.expert}}) {
      if (elements == 0) continue;
      Step sync = maker.gradient_sync({}, kind, elements, sizes.element_bytes);
      sync.waits_for_buckets = overlapped;
      add(std::move(sync));
    }
    if (const Step* embedding = place.find(StepKind::embedding_all_reduce))
      add(maker.gradient_sync(*embedding, StepKind::embedding_all_reduce, embedding->elements,
                              sizes.element_bytes));
    if (const Step* optimizer = place.find(StepKind::optimizer))
      add(maker.optimizer(*optimizer, place, sizes));
    plans.push_back(std::move(plan));
  }
  return plans;
}

ScalingForecast forecast(const CleanJob& job, const traces::NamedTopology& named,
                         const models::Cluster& cluster, const Effects& effects,
                         const ForecastOptions& options) {
  if (cluster.ranks() < job.topology.world())
    throw InputError(SourcePlace{}, fmt::format("a job of {} ranks", job.topology.world()),
                     fmt::format("at most the {} GPUs of cluster {}", cluster.ranks(), cluster.name));
  ScalingForecast out;
  out.warnings = job.warnings;
  out.plans = forecast_plans(job, named, effects, options, out.warnings);
  ModelPricing pricing(cluster, job, effects, options.fabric);
  out.iteration = simulate(job.topology, out.plans, pricing, options.detail, options.calls);
  for (std::string& line : pricing.domain(out.iteration.us() * job.topology.world()).lines())
    out.warnings.push_back(std::move(line));
  return out;
}

int microbatches_of(const RecordedJob& job) {
  int count = 0;
  for (const auto& rank : job.ranks)
    for (const auto& step : rank.steps)
      if (step.kind == StepKind::forward) count = std::max(count, step.microbatch + 1);
  return count;
}

std::vector<RunSummary> draw_forecasts(const CleanJob& job, const traces::NamedTopology& named,
                                       const models::Cluster& cluster, const Effects& effects,
                                       const ForecastOptions& options, int draws, const JobDraw& drawn_job) {
  std::vector<RunSummary> out(static_cast<std::size_t>(draws));
  std::vector<MatchedCalls> calls(out.size());  // by worker
  on_threads(out.size(), options.threads, [&](std::size_t worker, std::size_t i) {
    Random random = Random::for_item(options.seed ^ kIntervalStream, static_cast<std::uint64_t>(i));
    models::Cluster drawn = cluster;
    drawn.profile = cluster.profile.draw(random);
    ForecastOptions other = options;
    other.seed = random.next();
    other.detail = sim::Detail::times;
    if (!drawn_job.job) other.calls = &calls[worker];
    const Effects added = effects.draw(random);
    if (drawn_job.job) {
      const CleanJob another = drawn_job.job(drawn.profile, random.next());
      out[i] = summarize(forecast(another, named, drawn, added, other).iteration);
    } else {
      out[i] = summarize(forecast(job, named, drawn, added, other).iteration);
    }
    if (drawn_job.sigma > 0) scale(out[i], std::exp(drawn_job.sigma * random.normal()));
  });
  return out;
}

models::Estimate interval(double value, const std::vector<double>& drawn) {
  if (drawn.empty()) return models::Estimate::log_normal(value, kRunToRun);
  // The spread of few draws is known better than their extremes; their mean is a better centre than one
  // jitter.
  double mean = 0;
  for (const double one : drawn) mean += std::log(one);
  mean /= static_cast<double>(drawn.size());
  double variance = 0;
  for (const double one : drawn) variance += (std::log(one) - mean) * (std::log(one) - mean);
  if (drawn.size() > 1) variance /= static_cast<double>(drawn.size() - 1);
  const double half = kZ90 * std::sqrt(variance + kRunToRun * kRunToRun);
  return {value, std::min(value, std::exp(mean - half)), std::max(value, std::exp(mean + half))};
}

}  // namespace moesim::replay

#include "replay/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "base/random.h"
#include "models/costs.h"
#include "replay/routing_recovery.h"
#include "replay/schedule.h"

namespace moesim::replay {

namespace {

constexpr double kBytesPerGb = 1e9;
constexpr double kUsPerMs = 1e3;
constexpr int kDefaultGlobalBatch = 64;
constexpr int kGradientBytes = 4;  // float32 buffers, whatever early recordings wrote

}  // namespace

// Calls that a model priced already keep their times; everything else is asked of the profile.
class ModelPricing::Costs final : public models::ClusterCosts {
 public:
  // Traffic with this bit is the number of a priced call.
  static constexpr std::uint64_t kModelled = std::uint64_t{1} << 63;

  using ClusterCosts::ClusterCosts;
  void price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const override {
    if (shape.traffic.kind != sim::Traffic::Kind::uniform || shape.traffic.bytes < kModelled)
      return ClusterCosts::price_collective(shape, out);
    const std::vector<double>& us = modelled.at(shape.traffic.bytes - kModelled);
    for (std::size_t m = 0; m < out.size(); ++m) out[m] = sim::Time::from_us(us[m]);
  }
  std::vector<std::vector<double>> modelled;
};

struct ModelPricing::State {
  State(const models::Cluster& cluster, const CleanJob& clean, const Effects& effects)
      : job(clean),
        call_us(effects[EffectKind::traced_call]),
        costs(cluster, effects[EffectKind::traced_call] * 1e-6) {}

  const CleanJob& job;
  double call_us;
  Costs costs;
  std::map<std::vector<std::int64_t>, sim::MatrixId> matrices;  // by sent and received rows
  std::map<std::vector<double>, std::uint64_t> modelled;        // by the times of all members
};

ModelPricing::ModelPricing(const models::Cluster& cluster, const CleanJob& job, const Effects& effects)
    : state_(std::make_unique<State>(cluster, job, effects)) {}
ModelPricing::~ModelPricing() = default;

const sim::Costs& ModelPricing::costs() const { return state_->costs; }

sim::TrafficRef ModelPricing::traffic(const Instance& instance, std::size_t, sim::TaskGraphBuilder& builder) {
  if (!instance.modelled_us.empty()) {
    const auto [at, added] =
        state_->modelled.try_emplace(instance.modelled_us, state_->costs.modelled.size());
    if (added) {
      state_->costs.modelled.push_back(instance.modelled_us);
      for (double& us : state_->costs.modelled.back()) us += state_->call_us;
    }
    return sim::uniform_traffic(Costs::kModelled + at->second);
  }
  const auto bytes = static_cast<std::uint64_t>(instance.rows.front()) * instance.row_bytes;
  const auto members = static_cast<std::uint64_t>(instance.members.size());
  if (instance.op == sim::CollectiveOp::reduce_scatter) return sim::uniform_traffic(bytes / members);
  if (instance.op != sim::CollectiveOp::all_to_all || instance.group != GroupKind::expert)
    return sim::uniform_traffic(bytes);
  // A dispatch sends every rank's own rows and receives what its experts get; a combine is its transpose.
  const Topology& topology = state_->job.topology;
  std::vector<std::int64_t> received;
  for (const int rank : instance.members) {
    const Coordinates at = topology.of(rank);
    received.push_back(state_->job.places.at({at.pp, at.tp, at.expert}).received_rows);
  }
  std::int64_t total = 0;
  for (const std::int64_t rows : received) total += rows;
  const bool combine = instance.rows == received;
  // What the ranks of the group send in a dispatch: equal token counts, the recorder's fixed sequence length.
  std::vector<std::int64_t> sent(instance.members.size(), total / static_cast<std::int64_t>(members));
  for (std::int64_t left = total % static_cast<std::int64_t>(members), r = 0; r < left; ++r) ++sent[r];
  std::vector<std::int64_t> key = sent;
  key.insert(key.end(), received.begin(), received.end());
  auto at = state_->matrices.find(key);
  if (at == state_->matrices.end()) {
    std::vector<std::uint32_t> rows;
    if (state_->job.routing) {
      for (const std::int64_t between : state_->job.routing->split_matrix(static_cast<int>(members)))
        rows.push_back(static_cast<std::uint32_t>(between));
    } else {
      rows = recover_split_matrix(sent, received);
    }
    at = state_->matrices.emplace(std::move(key), builder.add_matrix(sent.size(), rows)).first;
  }
  return sim::matrix_traffic(at->second, instance.row_bytes, combine);
}

namespace {

// Adds to a cleaned step what a real run does beyond it. Draws follow (seed, rank) and the order of steps
// only.
class StepMaker {
 public:
  StepMaker(const CleanJob& job, const Effects& effects, std::uint64_t seed, int rank)
      : job_(job),
        effects_(effects),
        random_(Random::for_item(seed, static_cast<std::uint64_t>(rank))),
        expert_speed_(1.0 + effects[EffectKind::expert_spread] * random_.normal()),
        dense_speed_(1.0 + effects[EffectKind::dense_spread] * random_.normal()) {}

  Step forward(Step step) {
    step.segments_us.front() += effects_[EffectKind::forward_entry];
    disturb(step, EffectKind::forward_jitter);
    return step;
  }

  Step backward(Step step, const CleanPlace& place, const GradientSizes& sizes) {
    const double products_us = job_.expert_backward_us_per_row * static_cast<double>(place.received_rows);
    for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
      if (in_experts(step, s))
        step.segments_us[s] +=
            effects_[EffectKind::sustained_backward] * std::min(products_us, step.segments_us[s]);
      else
        step.segments_us[s] *= 1.0 + effects_[EffectKind::dense_backward];
    }
    // Stage 0 ends its backward with the embedding.
    step.segments_us.back() += effects_.memory_us(effects_[EffectKind::embedding_accumulation] *
                                                  static_cast<double>(sizes.embedding));
    disturb(step, EffectKind::backward_jitter);
    return step;
  }

  Step get_batch(Step step) const {
    double recorded = 0;
    for (double& segment : step.segments_us) recorded += std::exchange(segment, 0.0);
    step.segments_us.front() = std::min(recorded, effects_[EffectKind::batch_loading]);
    return step;
  }

  Step optimizer(Step step, const GradientSizes& sizes) const {
    step.segments_us.front() +=
        effects_[EffectKind::gradient_clip] * kUsPerMs * static_cast<double>(sizes.parameters()) / 1e9;
    return step;
  }

  Step gradient_sync(Step step, StepKind kind, std::int64_t elements) const {
    step.kind = kind;
    step.elements = elements;
    step.element_bytes = kGradientBytes;
    step.duration_us = 0;
    step.segments_us.assign(1, effects_[EffectKind::gradient_prescale] * kUsPerMs *
                                   static_cast<double>(elements) * kGradientBytes / kBytesPerGb);
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
  // Segments of many small kernels wait for the host now and then; products of the experts are launched
  // ahead.
  void disturb(Step& step, EffectKind jitter) {
    for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
      step.segments_us[s] *= in_experts(step, s)
                                 ? expert_speed_
                                 : dense_speed_ + effects_[jitter] * -std::log1p(-random_.uniform());
    }
  }

  const CleanJob& job_;
  const Effects& effects_;
  Random random_;
  double expert_speed_;
  double dense_speed_;
};

const Step* find_step(const CleanPlace& place, StepKind kind) {
  for (const Step& step : place.steps)
    if (step.kind == kind) return &step;
  return nullptr;
}

// The activation between two stages: what the recording's own shapes say, else hidden size x sequence x micro
// batch.
struct Activation {
  std::int64_t elements = 0;
  int element_bytes = 2;
};

Activation activation_of(const CleanJob& job, const traces::NamedTopology& named) {
  Activation out;
  out.elements = named.seq.value_or(0) * named.hidden.value_or(0) * named.micro_batch.value_or(1);
  if (out.elements > 0) return out;
  // Without names: an exchange holds topk rows per token, so it is an upper bound; better than nothing moved.
  for (const auto& [key, place] : job.places)
    if (const Step* forward = find_step(place, StepKind::forward))
      for (const Call& call : forward->calls)
        if (call.op == sim::CollectiveOp::all_to_all) {
          out.elements = std::max(out.elements, call.rows * call.row_elements / 2);
          out.element_bytes = call.element_bytes;
        }
  return out;
}

}  // namespace

int default_microbatches(const Topology& topology, const traces::NamedTopology& named) {
  const auto micro_batch = std::max<std::int64_t>(1, named.micro_batch.value_or(1));
  return static_cast<int>(std::max<std::int64_t>(1, kDefaultGlobalBatch / (topology.dp() * micro_batch)));
}

std::vector<RankPlan> forecast_plans(const CleanJob& job, const traces::NamedTopology& named,
                                     const Effects& effects, const ForecastOptions& options,
                                     std::vector<std::string>& warnings) {
  check(options.microbatches > 0, "a number of microbatches");
  const Topology& topology = job.topology;
  const ModelFacts facts = model_facts(named, job, options.architecture);
  const Activation activation = activation_of(job, named);
  std::vector<RankPlan> plans;
  for (int rank = 0; rank < topology.world(); ++rank) {
    const Coordinates at = topology.of(rank);
    const PlaceKey key{at.pp, at.tp, at.expert};
    const CleanPlace& place = job.places.at(key);
    const GradientSizes sizes = gradient_sizes(job, key, facts, warnings);
    StepMaker maker(job, effects, options.seed, rank);
    RankPlan plan;
    plan.rank = rank;
    const auto add = [&](Step step) {
      const bool second = !plan.steps.empty() && plan.steps.back().step.fused_with_next;
      const double gap =
          plan.steps.empty() || second ? 0.0 : maker.gap_us(plan.steps.back().step.kind, step.kind);
      plan.steps.push_back({std::move(step), gap});
    };
    for (const Slot& slot : one_forward_one_backward(at.pp, topology.pp, options.microbatches)) {
      Step step;
      if (is_p2p(slot.kind)) {
        step.elements = activation.elements;
        step.element_bytes = activation.element_bytes;
      } else {
        const Step* recorded = find_step(place, slot.kind);
        if (recorded == nullptr) {
          if (slot.kind == StepKind::get_batch || slot.kind == StepKind::loss)
            continue;  // not every recorder has them
          throw InputError(fmt::format("no {} in the recording of stage {}, expert rank {}", name(slot.kind),
                                       at.pp, at.expert));
        }
        step = *recorded;
        if (slot.kind == StepKind::forward) step = maker.forward(std::move(step));
        if (slot.kind == StepKind::backward) step = maker.backward(std::move(step), place, sizes);
        if (slot.kind == StepKind::get_batch) step = maker.get_batch(std::move(step));
      }
      step.kind = slot.kind;
      step.microbatch = slot.microbatch;
      step.fused_with_next = slot.fused_with_next;
      step.duration_us = 0;
      add(std::move(step));
    }
    if (sizes.dense > 0) add(maker.gradient_sync({}, StepKind::dp_all_reduce, sizes.dense));
    if (sizes.expert > 0) add(maker.gradient_sync({}, StepKind::expert_all_reduce, sizes.expert));
    if (const Step* embedding = find_step(place, StepKind::embedding_all_reduce))
      add(maker.gradient_sync(*embedding, StepKind::embedding_all_reduce, embedding->elements));
    if (const Step* optimizer = find_step(place, StepKind::optimizer))
      add(maker.optimizer(*optimizer, sizes));
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
  ModelPricing pricing(cluster, job, effects);
  out.iteration = simulate(job.topology, out.plans, pricing);
  return out;
}

}  // namespace moesim::replay

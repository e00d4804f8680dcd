#include "replay/run/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::replay {

namespace {

// Host clocks agree inside a node only.
std::map<int, double> first_starts(const RecordedJob& job, int gpus_per_node) {
  std::map<int, double> first;
  for (const RankSteps& rank : job.ranks)
    for (const Step& step : rank.steps)
      if (step.start_us > 0) {
        auto [at, added] = first.try_emplace(rank.rank / gpus_per_node, step.start_us);
        if (!added) at->second = std::min(at->second, step.start_us);
      }
  return first;
}

// Returns the plan of a recorded rank, gaps included.
RankSteps plan_of(RankSteps rank, double reached) {
  bool second_of_pair = false;
  for (Step& step : rank.steps) {
    if (step.start_us > 0 && !second_of_pair) step.gap_us = std::max(0.0, step.start_us - reached);
    if (step.start_us > 0) reached = std::max(reached, step.end_us());
    second_of_pair = step.fused_with_next;
  }
  return rank;
}

// Returns the recorded rank that represents `rank`: the most similar one, the lowest of those.
const RankSteps& stand_in(const RecordedJob& job, int rank) {
  const Coordinates wanted = job.topology.of(rank);
  const auto unlike = [&](const RankSteps& other) {
    const Coordinates at = job.topology.of(other.rank);
    return std::tuple(other.rank != rank, std::abs(at.pp - wanted.pp), at.expert != wanted.expert,
                      at.tp != wanted.tp, other.rank);
  };
  return *std::ranges::min_element(job.ranks, {}, unlike);
}

// Treats sends and receives as local work of the rank.
void keep_p2p_times(std::vector<RankSteps>& plans) {
  for (RankSteps& plan : plans)
    for (std::size_t s = 0; s < plan.steps.size(); ++s) {
      Step& step = plan.steps[s];
      if (!is_p2p(step.kind)) continue;
      const bool second_of_pair = s > 0 && plan.steps[s - 1].fused_with_next;
      step.kind = StepKind::other;
      step.segments_us.assign(1, second_of_pair ? 0.0 : step.duration_us);
    }
}

bool stages_fit(const RecordedJob& job) {
  std::map<int, std::array<std::ptrdiff_t, 4>> counts;  // by stage: sends and receives
  for (const RankSteps& rank : job.ranks) {
    std::array<std::ptrdiff_t, 4> mine{};
    for (const Step& step : rank.steps)
      if (is_p2p(step.kind))
        ++mine[static_cast<std::size_t>(step.kind) - static_cast<std::size_t>(StepKind::send_forward)];
    const auto [at, added] = counts.try_emplace(job.topology.of(rank.rank).pp, mine);
    if (!added && at->second != mine) return false;
  }
  return std::cmp_equal(counts.size(), job.topology.pp);
}

}  // namespace

std::vector<RankSteps> recorded_plans(const RecordedJob& job, int gpus_per_node) {
  const std::map<int, double> first_start = first_starts(job, gpus_per_node);
  std::vector<RankSteps> plans;
  for (int expected = 0; expected < job.topology.world(); ++expected) {
    const auto at = std::find_if(job.ranks.begin(), job.ranks.end(),
                                 [&](const RankSteps& rank) { return rank.rank == expected; });
    if (at == job.ranks.end())
      throw InputError(SourcePlace{job.ranks.empty() ? "" : job.ranks.front().recording->file},
                       fmt::format("no recording of rank {} beside it", expected),
                       fmt::format("all {} ranks of a realistic recording, or --ranks-missing: they are then "
                                   "filled by symmetry",
                                   job.topology.world()));
    const auto start = first_start.find(at->rank / gpus_per_node);
    plans.push_back(plan_of(*at, start == first_start.end() ? 0 : start->second));
  }
  if (job.topology.expert == 1) couple_optimizers(job.topology, plans, gpus_per_node);
  return plans;
}

std::vector<RankSteps> plans_by_symmetry(const RecordedJob& job, int gpus_per_node,
                                         std::vector<std::string>& warnings) {
  check(!job.ranks.empty(), "a recording has ranks");
  const int missing = job.topology.world() - static_cast<int>(job.ranks.size());
  if (missing == 0)
    throw InputError(fmt::format(
        "found --ranks-missing with all {} ranks, expected it where some are missing", job.topology.world()));
  const std::map<int, double> first_start = first_starts(job, gpus_per_node);
  std::vector<RankSteps> plans;
  for (int rank = 0; rank < job.topology.world(); ++rank) {
    const RankSteps& source = stand_in(job, rank);
    const auto start = first_start.find(source.rank / gpus_per_node);
    plans.push_back(plan_of(source, start == first_start.end() ? 0 : start->second));
    plans.back().rank = rank;
  }
  warnings.push_back(
      fmt::format("{} of {} ranks were not recorded: each takes what a recorded rank of its stage and expert "
                  "rank took, or "
                  "the nearest there is; how ranks differed is not in the answer",
                  missing, job.topology.world()));
  if (job.topology.pp > 1 && !stages_fit(job)) {
    keep_p2p_times(plans);
    warnings.emplace_back(
        "not all stages were recorded: sends and receives between stages keep the time that they took, "
        "waiting included");
  }
  if (job.topology.expert == 1) couple_optimizers(job.topology, plans, gpus_per_node);
  return plans;
}

void meet_in_optimizer(Step& step, double recorded_us) {
  Call norm;
  norm.source = "gradient norm";
  norm.op = sim::CollectiveOp::all_reduce;
  norm.group = GroupKind::model;
  norm.rows = 1;
  norm.element_bytes = 4;
  norm.recorded_us = recorded_us;
  norm.category = sim::Category::optimizer;
  step.calls.insert(step.calls.begin(), norm);
  step.segments_us.insert(step.segments_us.begin(), 0.0);
}

void couple_optimizers(const Topology& topology, std::vector<RankSteps>& plans, int gpus_per_node) {
  constexpr double kTogether = 0.1;  // limit on the distance of ends, as a share of the distance of starts
  for (const auto& group : topology.groups(GroupKind::model)) {
    std::vector<Step*> optimizers;
    for (const int rank : group)
      for (Step& step : plans.at(static_cast<std::size_t>(rank)).steps)
        if (step.kind == StepKind::optimizer && step.start_us > 0) optimizers.push_back(&step);
    // Clocks of other nodes are not comparable.
    if (optimizers.size() != group.size() || group.front() / gpus_per_node != group.back() / gpus_per_node)
      continue;
    const auto [first, last] =
        std::ranges::minmax(optimizers, {}, [](const Step* step) { return step->start_us; });
    const auto [early, late] =
        std::ranges::minmax(optimizers, {}, [](const Step* step) { return step->end_us(); });
    const double apart = last->start_us - first->start_us;
    if (apart <= 0 || late->end_us() - early->end_us() > kTogether * apart) continue;
    const double own = (*std::ranges::min_element(optimizers, {}, [](const Step* step) {
                         return step->duration_us;
                       }))->duration_us;
    for (Step* step : optimizers) {
      // A rank's time beyond the shortest is the wait; the small rest is its own.
      const double wait = last->start_us - step->start_us;
      step->segments_us.assign(1, std::max(own, step->duration_us - wait));
      meet_in_optimizer(*step, 0.0);
    }
  }
}

// An instance's price is its number, which identifies its recorded duration.
class RecordedPricing::Costs final : public sim::Costs {
 public:
  void price_collective(const sim::CollectiveShape& shape, std::span<sim::Time> out) const override {
    const std::vector<double>& us = durations_us.at(shape.traffic.price);
    for (std::size_t m = 0; m < out.size(); ++m) out[m] = sim::Time::from_us(us[us.size() > 1 ? m : 0]);
  }
  sim::FlowParameters plan_collective(const sim::CollectiveShape&) const override {
    check_failed("recorded durations have no flows");
  }
  std::vector<std::vector<double>> durations_us;  // by instance: for all members, or for each
  std::function<double(const Instance&)> added_us;
};

RecordedPricing::RecordedPricing(std::function<double(const Instance&)> added_us)
    : costs_(std::make_unique<Costs>()) {
  costs_->added_us = std::move(added_us);
}
RecordedPricing::~RecordedPricing() = default;

sim::TrafficRef RecordedPricing::traffic(const Instance& instance, std::size_t index,
                                         sim::TaskGraphBuilder& builder) {
  check(index == costs_->durations_us.size(), "instances come in order");
  if (instance.modelled_us.empty()) {
    costs_->durations_us.push_back({instance.shortest_us});
  } else {
    costs_->durations_us.push_back(instance.modelled_us);
    for (double& us : costs_->durations_us.back()) us += costs_->added_us ? costs_->added_us(instance) : 0.0;
  }
  return bytes_.of(instance, builder).priced(static_cast<std::uint32_t>(index));
}

const sim::Costs& RecordedPricing::costs() const { return *costs_; }

}  // namespace moesim::replay

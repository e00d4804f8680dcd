// The plans that a search chooses from: every combination of parallel sizes with a value of each other axis.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/workload/scenario.h"

namespace moesim::models {

struct PlanSearchOptions;

// A point of the space: which parallel plan, which value of each axis.
struct PlanChoice {
  std::size_t parallel = 0;
  std::vector<std::size_t> values;
  friend auto operator<=>(const PlanChoice&, const PlanChoice&) = default;
};

class PlanSpace {
 public:
  // Of a field of the scenario: the values that it may take, the scenario's own alone where it is not
  // searched.
  struct Axis {
    std::string_view path;
    std::string_view name;  // for people: "dispatchers"
    std::vector<std::string> values;
  };

  // `scenario`: resolved but for its global batch, which may not divide its own plan.
  PlanSpace(const Scenario& scenario, const PlanSearchOptions& options);

  std::int64_t size() const;
  const std::vector<Parallel>& plans() const { return plans_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const Parallel& parallel(const PlanChoice& choice) const { return plans_[choice.parallel]; }

  std::vector<PlanChoice> all() const;
  // Axes along which a plan only gets slower: what is computed again, from nothing on, and how kernels are
  // launched, from the last value back. The others are taken as they come.
  static constexpr std::size_t kRecompute = 1, kLaunch = 5;
  // Every parallel plan with a value of every other axis, at the fastest value of these two: what stands for
  // all `below()` choices that differ from it in these.
  std::vector<PlanChoice> nodes() const;
  std::size_t below() const;
  // Nodes with the same key have the same layers on a rank: their stages, microbatches, copies and overlap
  // differ.
  using LayerKey = std::pair<std::array<std::int64_t, 5>, std::vector<std::size_t>>;
  LayerKey layer_key(const PlanChoice& node) const;
  PlanChoice slowest_launch(PlanChoice choice) const;
  std::int64_t layers() const { return base_.model.layers + base_.model.mtp_layers; }
  PlanChoice without_overlap(PlanChoice choice) const;
  // Whether that choice hides exchanges which without_overlap() shows.
  bool overlaps_exchanges(const PlanChoice& choice) const;
  // Whether its schedule has the bubbles of 1F1B.
  bool fills_pipeline(const PlanChoice& choice) const;
  // The choice that a scenario of another space comes nearest to here.
  PlanChoice nearest(const Scenario& other) const;

  // The scenario of a choice, not resolved.
  Scenario scenario(const PlanChoice& choice) const;
  // Which values of which axes the combinations are of.
  std::string text() const;

 private:
  static constexpr std::size_t kSchedule = 3, kOverlap = 4;

  Scenario base_;
  bool parallel_ = false;
  std::vector<Parallel> plans_;
  std::vector<Axis> axes_;
};

}  // namespace moesim::models

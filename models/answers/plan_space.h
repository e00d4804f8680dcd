// The search space of plans: every combination of parallel sizes with a value of each other axis.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"

namespace moesim::models {

struct PlanSearchOptions;

// The sizes that a plan chooses, by their paths and as people name them.
struct ParallelSize {
  const char *path, *name;
  std::int64_t Parallel::*size;
};
inline constexpr std::array<ParallelSize, 8> kParallelSizes{
    {{"parallel.tp", "TP", &Parallel::tp},
     {"parallel.cp", "CP", &Parallel::cp},
     {"parallel.pp", "PP", &Parallel::pp},
     {"parallel.vpp", "VPP", &Parallel::vpp},
     {"parallel.ep", "EP", &Parallel::ep},
     {"parallel.etp", "ETP", &Parallel::etp},
     {"parallel.dp", "DP", &Parallel::dp},
     {"parallel.micro_batch", "micro-batch", &Parallel::micro_batch}}};

// A setting that a search may vary, in the order of a point's values, and the values it tries; none: by the GPU.
struct SearchedSetting {
  bool PlanSearchOptions::*searched;
  std::string_view path, name;  // plural for people: "dispatchers"
  std::vector<std::string> values;

  std::string_view word() const { return path.substr(path.rfind('.') + 1); }  // "recompute"
};
const std::vector<SearchedSetting>& searched_settings();

// A point of the space: index of the parallel plan, and of the value of each axis.
struct PlanPoint {
  std::size_t parallel = 0;
  std::vector<std::size_t> values;
  friend auto operator<=>(const PlanPoint&, const PlanPoint&) = default;
  std::string text() const;  // its name: "12 0 3"
};

class PlanSpace {
 public:
  // A field of the scenario and the values it may take; the scenario's own value alone where the field is not
  // searched.
  struct Axis {
    std::string_view path;
    std::string_view name;  // plural for people: "dispatchers"
    std::vector<std::string> values;
  };

  // `scenario`: resolved except for its global batch, which its own plan may not divide.
  PlanSpace(const Scenario& scenario, const PlanSearchOptions& options);

  std::int64_t size() const;
  const std::vector<Parallel>& plans() const { return plans_; }
  const std::vector<Axis>& axes() const { return axes_; }
  const Parallel& parallel(const PlanPoint& choice) const { return plans_[choice.parallel]; }

  // Axes along which a plan only gets slower: recomputation in ascending order, kernel launches in descending
  // order. The values of other axes have no order.
  static constexpr std::size_t kRecompute = 1, kLaunch = 5;
  // Returns every parallel plan with every value of the axes. `nodes`: at the fastest values of these two; such
  // a node stands for the `below()` choices that differ from it in these two only.
  std::vector<PlanPoint> points(bool nodes) const;
  // Returns the node that a choice is below.
  PlanPoint node_of(PlanPoint choice) const;
  std::size_t below() const;
  // Nodes with equal keys have the same layers on a rank and differ only in stages, microbatches, copies and
  // overlap.
  using LayerKey = std::pair<std::array<std::int64_t, 5>, std::vector<std::size_t>>;
  LayerKey layer_key(const PlanPoint& node) const;
  PlanPoint slowest_launch(PlanPoint choice) const;
  std::int64_t nvlink_domain() const { return base_.cluster->nvlink.domain; }
  std::int64_t layers() const { return base_.model.layers + base_.model.mtp_layers; }
  PlanPoint without_overlap(PlanPoint choice) const;
  // Returns whether the choice hides exchanges that without_overlap() exposes.
  bool overlaps_exchanges(const PlanPoint& choice) const;
  // Returns whether the schedule has the bubbles of 1F1B.
  bool fills_pipeline(const PlanPoint& choice) const;

  // Returns the scenario of a choice, not resolved.
  Scenario scenario(const PlanPoint& choice) const;
  // Describes the axes of the combinations and their values.
  std::string text() const;

 private:
  static constexpr std::size_t kSchedule = 3, kOverlap = 4;

  Scenario base_;
  bool parallel_ = false;
  std::vector<Parallel> plans_;
  std::vector<Axis> axes_;
};

}  // namespace moesim::models

// Another dispatcher (or routing) in a recording: its layers are found, the experts' computing is kept as
// measured, and everything of the dispatcher is replaced by the other one's program and prices.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "replay/job/layer_model.h"
#include "replay/recording/denoise.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

// Rewrites forward and backward steps. The rules, for a layer cut at its calls:
// - The first and last segment of a layer hold attention and router beside the dispatcher's own operations:
//   the modelled difference of these is added to what was measured.
// - A segment between calls without experts is the dispatcher's own; all of it is rebuilt. The host takes
//   `launch_us` per launch, which is what makes the recorded dispatcher's program take what was measured.
// - The segment of the experts is measured, less the modelled operations of the recorded dispatcher around
//   them; it changes only by the ratio of two evaluations of the grouped products, where their rows change.
// - A call that the recorded dispatcher makes too (same operation, group and bytes) keeps what was recorded,
//   all others are priced.
// Nothing changes where the dispatcher is the recorded one.
class Substitution {
 public:
  // Experts' segments as recorded, [pass][expert rank] in microseconds, are the reference for ranks whose
  // rows change: the one with the nearest number of rows is scaled.
  using ExpertTimes = std::array<std::vector<double>, 2>;

  Substitution(const LayerModel& recorded, const LayerModel& wanted, double launch_us, ExpertTimes times);

  // `rank` is the world rank that made the step. Steps other than forward and backward are returned as they
  // are.
  Step rewrite(Step step, int rank) const;

 private:
  double expert_ratio(Pass pass, std::size_t from, std::size_t to, int expert_rank) const;

  const LayerModel& recorded_;
  const LayerModel& wanted_;
  std::vector<std::int64_t> recorded_rows_, wanted_rows_;  // that each rank of an expert group receives
  double launch_us_;
  ExpertTimes times_;
  std::array<std::vector<std::optional<std::size_t>>, 2> same_;  // by wanted call: the recorded one
  std::array<bool, 2> same_calls_{};                             // all of them are the recorded ones
};

// Measured segments of a job's layers, means over layers and places: [pass][segment][expert rank], us. The
// first and last segment of a layer are not among them (zero).
using LayerSegments = std::array<std::vector<std::vector<double>>, 2>;
LayerSegments layer_segments(const CleanJob& job, const LayerModel& model);

// The whole way, for a cleaned scaling recording and for a realistic one. `clean` of the second is the
// realistic recording cleaned, for its mean segments.
CleanJob substituted(const CleanJob& job, const LayerModel& recorded, const LayerModel& wanted,
                     const models::Cluster& cluster);
// The same where layers and microbatches have routings of their own: `recorded` is the job under the routing
// that `job` has, whose dispatcher all keep. Sets CleanJob::by_microbatch.
void route_layers(CleanJob& job, const LayerModel& recorded, const RoutedLayers& routed,
                  const models::DispatcherSpec& dispatcher, const models::Cluster& cluster);
void route_layers(std::vector<RankPlan>& plans, const CleanJob& clean, const LayerModel& recorded,
                  const RoutedLayers& routed, const models::DispatcherSpec& dispatcher,
                  const models::Cluster& cluster);

void substitute(std::vector<RankPlan>& plans, const CleanJob& clean, const LayerModel& recorded,
                const LayerModel& wanted, const models::Cluster& cluster);

}  // namespace moesim::replay

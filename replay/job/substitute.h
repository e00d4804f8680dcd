// Substitutes another dispatcher (or routing) in a recording: keeps the measured computing of the experts and
// replaces everything of the dispatcher by the other one's program and prices.
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
// - The first and last segment of a layer contain attention and router besides the dispatcher's own
//   operations: the modelled difference of these is added to the measured time.
// - Calls of attention over TP between the layers' dispatchers stay as recorded. The router's own, which
//   gather choices for a dispatcher that takes whole sequences, go with that dispatcher.
// - A segment between calls without experts is the dispatcher's own and is rebuilt. The host takes
//   `launch_us` per launch, with which the recorded dispatcher's program takes the measured time.
// - The segment of the experts is the measured one minus the modelled operations of the recorded dispatcher
//   around them; it changes only by the ratio of two evaluations of the grouped products, where their rows
//   change.
// - A call that the recorded dispatcher also makes (same operation, group and bytes) keeps its recorded time;
//   all others are priced. Nothing changes for the recorded dispatcher.
class Substitution {
 public:
  // Recorded segments of the experts, [pass][expert rank] in microseconds: the reference for ranks whose rows
  // change, from which the one with the nearest number of rows is scaled.
  using ExpertTimes = std::array<std::vector<double>, 2>;

  Substitution(const LayerModel& recorded, const LayerModel& wanted, double launch_us, ExpertTimes times);

  // `rank`: world rank of the step. Returns steps other than forward and backward unchanged.
  Step rewrite(Step step, int rank) const;

 private:
  bool same_program(Pass pass) const;  // the calls that the recorded one makes, of whatever size
  double expert_ratio(Pass pass, std::size_t from, std::size_t to, int expert_rank) const;

  const LayerModel& recorded_;
  const LayerModel& wanted_;
  std::vector<std::int64_t> recorded_rows_, wanted_rows_;  // that each rank of an expert group receives
  double launch_us_;
  ExpertTimes times_;
  std::array<std::vector<std::optional<std::size_t>>, 2> same_;  // by new call: the recorded one
  std::array<bool, 2> same_calls_{};                             // every call is a recorded one
  bool same_program_ = false;
};

// Measured segments of a job's layers, means over layers and places: [pass][segment][expert rank], us. Zero
// for the first and last segment of a layer.
using LayerSegments = std::array<std::vector<std::vector<double>>, 2>;
LayerSegments layer_segments(const CleanJob& job, const LayerModel& model);

// Substitutes in a cleaned scaling recording, or in a realistic one; for the latter `clean` is its cleaned
// form, for the mean segments.
CleanJob substituted(const CleanJob& job, const LayerModel& recorded, const LayerModel& wanted,
                     const models::Cluster& cluster);
// Likewise where layers and microbatches have their own routings: `recorded` is the job under the routing of
// `job`, whose dispatcher stays. Sets CleanJob::by_microbatch.
void route_layers(CleanJob& job, const LayerModel& recorded, const RoutedLayers& routed,
                  const models::DispatcherSpec& dispatcher, const models::Cluster& cluster);
void route_layers(std::vector<RankSteps>& plans, const CleanJob& clean, const LayerModel& recorded,
                  const RoutedLayers& routed, const models::DispatcherSpec& dispatcher,
                  const models::Cluster& cluster);

void substitute(std::vector<RankSteps>& plans, const CleanJob& clean, const LayerModel& recorded,
                const LayerModel& wanted, const models::Cluster& cluster);

}  // namespace moesim::replay

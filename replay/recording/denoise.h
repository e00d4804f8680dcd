// Removes noise from a scaling recording by pooling what must be equal: layers, replicas, and ranks with
// equal load.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "models/routing/routing.h"
#include "replay/recording/steps.h"

namespace moesim::replay {

// Cleaned steps of a rank at a (stage, tensor, expert) place in one microbatch and at the end of the
// iteration. Calls keep their shapes without recorded durations, since a recording of one GPU transfers
// nothing.
struct PlaceKey {
  int pp = 0;
  int tp = 0;
  int expert = 0;

  friend auto operator<=>(const PlaceKey&, const PlaceKey&) = default;
};

struct CleanPlace {
  std::vector<Step> steps;         // in recorded order, without point-to-point
  std::int64_t received_rows = 0;  // rows that this expert rank receives; 0 without an all-to-all

  // Returns the first step of this kind, or null.
  const Step* find(StepKind kind) const;
};

struct CleanJob {
  Topology topology;
  std::map<PlaceKey, CleanPlace> places;  // complete
  // Where layers or microbatches have their own routings: the places of microbatch m are at m % size; empty:
  // every microbatch is as above.
  std::vector<std::map<PlaceKey, CleanPlace>> by_microbatch;
  // Slope of the experts' backward time in received rows, us per row: the part bound by matrix products.
  double expert_backward_us_per_row = 0;
  std::size_t samples = 0;  // rank recordings pooled
  // Rows from every expert rank to every expert, where a user gave them; otherwise derived from the rows that
  // each rank receives.
  std::optional<models::Routing> routing;
  // Expert ranks without a recording: their places are the nearest recorded rank's, whose rows and times they
  // hold until complete_experts() gives them their own.
  std::set<int> unrecorded;
  // A sentence about the noise that denoise() removed. It is empty where no pool lost more than 2 %.
  std::string removed;
  std::vector<std::string> warnings;

  const CleanPlace& place(const PlaceKey& key, int microbatch) const {
    if (by_microbatch.empty()) return places.at(key);
    return by_microbatch[static_cast<std::size_t>(microbatch) % by_microbatch.size()].at(key);
  }
};

// Pools all ranks of `passes` (recordings of the same job). Segments of one class are pooled: the class is
// the step, the calls before and after, the end of the model in a stage's first or last segment, and the
// expert rank where the work depends on the received rows. In forward the caching allocator still grows,
// which only adds time: takes a low quantile of the pool; elsewhere the median. Missing places are filled
// from the same expert rank of another middle stage, with a warning, and where `routing` has their rows from another
// expert rank (CleanJob::unrecorded). Throws InputError when a place cannot be filled, two replicas differ in their
// calls, or `routing` contradicts the rows of a recorded rank.
CleanJob denoise(std::span<const RecordedJob> passes, const models::RoutingSpec* routing = nullptr);

// Returns how far two numbers of rows are from each other, as the logarithm of their ratio.
double ratio_apart(std::int64_t a, std::int64_t b);

// Fits the experts' backward segments against received rows by least squares, over all expert ranks; sets
// expert_backward_us_per_row.
void fit_expert_slope(CleanJob& job);

}  // namespace moesim::replay

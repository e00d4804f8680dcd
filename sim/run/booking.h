// The one rule by which timelines, layers and steps book each instant of a rank's time.
#pragma once

#include <cstdint>
#include <span>

#include "sim/run/timeline.h"

namespace moesim::sim {

// Activities of a rank by priority: an instant is booked as the first of these that is active; as bubble
// where none is.
enum class Activity : std::uint8_t {
  computing,
  transferring,
  straggling,  // in a rendezvous, before the last member arrives
  peer,        // waiting for the other side of a send_recv: a bubble
  host,        // the host launches, or waits for the GPU
};
inline constexpr std::size_t kActivities = 5;

// An activity of a rank over a span of time.
struct BusySpan {
  Time from, to;
  Activity activity = Activity::computing;
  Category category = Category::other;  // for computing, transferring and host
  std::uint32_t order = 0;              // among spans that start together, the lowest is booked first
};

// Books every instant from zero to `total` once, into the breakdown and the sums of `summary`. Among spans of
// one activity the earliest start counts.
void book(std::span<const BusySpan> spans, Time total, RankSummary& summary);

}  // namespace moesim::sim

// How an instant of a rank's time is booked: the one rule of timelines, layers and steps.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/run/timeline.h"

namespace moesim::sim {

// What a rank can be seen doing, most telling first: an instant is booked as the first of these that is going
// on. Where nothing is, the rank has nothing to do, a bubble.
enum class Activity : std::uint8_t {
  computing,
  transferring,
  straggling,  // in a rendezvous, before the last member has come
  peer,        // waiting for the other side of a send_recv: a bubble
  host,        // the host launches, or waits for the device
};
inline constexpr std::size_t kActivities = 5;

// An activity of a rank from one time to another.
struct BusySpan {
  Time from, to;
  Activity activity = Activity::computing;
  Category category = Category::other;  // of computing, transferring and host
  std::uint32_t order = 0;              // of spans that start together, the lowest is booked first
};

// Books every instant from zero to `total` once, into the breakdown and the sums of `summary`. Of several
// spans of one activity the one that started first counts. `spans` is reordered.
void book(std::vector<BusySpan>& spans, Time total, RankSummary& summary);

}  // namespace moesim::sim

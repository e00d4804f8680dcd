// How large a scenario may be, asked before anything of its size is made.
#pragma once

#include <cstdint>

namespace moesim::models {

struct Scenario;

// Passes of a layer that one rank goes through in a step: microbatches x layers of its stage, forward and
// backward together. About 7 kB each while a step is booked.
inline constexpr std::int64_t kMostLayerPasses = std::int64_t{1} << 18;

// Throws InputError where a message, buffer or product of the scenario could be larger than kMostSize, so
// that no sum of them leaves 64 bits, and for steps of more than kMostLayerPasses. Of a resolved plan.
void check_sizes(const Scenario& scenario);

}  // namespace moesim::models

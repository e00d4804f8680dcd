// Limits on the size of a scenario, checked before allocating anything of its size.
#pragma once

#include <cstdint>

namespace moesim::models {

struct Scenario;

// Passes of a layer on one rank in a step: microbatches x layers of its stage, forward and backward together.
// About 7 kB each while a step is booked.
inline constexpr std::int64_t kMostLayerPasses = std::int64_t{1} << 18;

// Throws InputError where a message, buffer or product of the scenario could exceed kMostSize, so that no sum
// of them leaves 64 bits, and for steps of more than kMostLayerPasses. The plan must be resolved.
void check_sizes(const Scenario& scenario);

}  // namespace moesim::models

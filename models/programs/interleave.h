// Interleaves the launches of one microbatch's forward pass with another's backward pass, so that the
// exchange of one hides under the computing of the other (docs/spec.md 2.2.3).
//
// The framework fixes the order when the program is written, independent of times. Better hardware can
// therefore never choose a worse order.
#pragma once

#include <cstdint>
#include <vector>

#include "models/programs/program.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// Indices of a layer's programs in a chain; -1: none.
struct LayerPlaces {
  std::vector<std::int32_t> first, last;  // run whole, before and after everything else of the layer
  std::int32_t before = -1, moe = -1, after = -1;
  const std::vector<Op>* moe_pass = nullptr;  // pass of the program at `moe`
};

// A pass of several layers as a chain of programs. `lead` runs whole first, `rest` last.
struct PassPlaces {
  std::vector<std::int32_t> lead, rest;
  std::vector<LayerPlaces> layers;  // in the order in which the pass runs them
};

// Returns the issue order of two passes, forward as chain 0 and backward as chain 1, layer by layer. `later`
// is chain 2, delayed weight gradients: those of experts run while the rows of the other microbatch travel,
// the others at the end of their layer. `sizes`: operations of every program by chain.
std::vector<sim::LockstepPiece> interleaved(const PassPlaces& forward, const PassPlaces& backward,
                                            const PassPlaces& later,
                                            const std::vector<std::vector<std::int32_t>>& sizes);

}  // namespace moesim::models

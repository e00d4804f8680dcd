// How the forward pass of one microbatch and the backward pass of another are launched together, so that the
// exchange of one hides under the computing of the other (docs/spec.md 2.2.3).
//
// The order is a framework's, fixed when the program is written; it does not depend on times. Better hardware
// can therefore never choose a worse order.
#pragma once

#include <cstdint>
#include <vector>

#include "models/programs/program.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// Where the programs of a layer stand in a chain; -1: it has none.
struct LayerPlaces {
  std::vector<std::int32_t> first, last;  // run whole, before and behind everything else of the layer
  std::int32_t before = -1, moe = -1, after = -1;
  const std::vector<Op>* moe_pass = nullptr;  // of the program at `moe`
};

// A pass of several layers as a chain of programs. `lead` and `rest` run whole, first and last.
struct PassPlaces {
  std::vector<std::int32_t> lead, rest;
  std::vector<LayerPlaces> layers;  // in the order in which the pass runs them
};

// The order of issue of two passes, forward as chain 0 and backward as chain 1, layer by layer; `later` is
// chain 2, weight gradients that were set aside: of experts while the rows of the other microbatch travel,
// the others at the end of their layer. `sizes` are the operations of every program by chain.
std::vector<sim::LockstepPiece> interleaved(const PassPlaces& forward, const PassPlaces& backward,
                                            const PassPlaces& later,
                                            const std::vector<std::vector<std::int32_t>>& sizes);

}  // namespace moesim::models

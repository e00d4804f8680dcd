#include "models/programs/interleave.h"

#include <algorithm>

namespace moesim::models {

namespace {

// Cuts of a pass of a dispatcher's program: everything up to the last collective before the experts, the
// experts, the collectives after them, and the rest.
struct Cuts {
  std::int32_t dispatched = 0, computed = 0, combined = 0, end = 0;
};

Cuts cuts_of(const std::vector<Op>& ops) {
  const auto size = static_cast<std::int32_t>(ops.size());
  Cuts cuts{0, size, size, size};
  std::int32_t first = size, last = 0;
  for (std::int32_t i = 0; i < size; ++i)
    if (ops[static_cast<std::size_t>(i)].kind == OpKind::kGemm) first = std::min(first, i), last = i;
  for (std::int32_t i = 0; i < size; ++i) {
    if (ops[static_cast<std::size_t>(i)].kind != OpKind::kCollective) continue;
    if (i < first) cuts.dispatched = i + 1;
    if (i > last) {
      cuts.computed = std::min(cuts.computed, i);
      cuts.combined = i + 1;
    }
  }
  return cuts;
}

constexpr std::int32_t kForward = 0, kBackward = 1, kLater = 2;

class Order {
 public:
  explicit Order(const std::vector<std::vector<std::int32_t>>& sizes) : sizes_(sizes) {}

  void part(std::int32_t chain, std::int32_t program, std::int32_t from, std::int32_t to) {
    if (program >= 0 && from < to) pieces.push_back({chain, program, from, to});
  }
  void whole(std::int32_t chain, std::int32_t program) {
    if (program >= 0)
      part(chain, program, 0, sizes_[static_cast<std::size_t>(chain)][static_cast<std::size_t>(program)]);
  }
  void whole(std::int32_t chain, const std::vector<std::int32_t>& programs) {
    for (const std::int32_t program : programs) whole(chain, program);
  }
  // A layer by itself, in the order of its programs in the chain.
  void alone(std::int32_t chain, const LayerPlaces& layer) {
    whole(chain, layer.first);
    std::vector<std::int32_t> programs{layer.before, layer.moe, layer.after};
    std::sort(programs.begin(), programs.end());
    whole(chain, programs);
    whole(chain, layer.last);
  }
  // The weight gradients of a layer up to its experts'.
  void later(const LayerPlaces* w) {
    if (!w) return;
    whole(kLater, w->first);
    whole(kLater, w->after);
    whole(kLater, w->moe);
  }
  void both(const LayerPlaces& f, const LayerPlaces& b, const LayerPlaces* w) {
    const Cuts fc = cuts_of(*f.moe_pass), bc = cuts_of(*b.moe_pass);
    whole(kBackward, b.first);
    whole(kBackward, b.after);
    part(kBackward, b.moe, 0, bc.dispatched);  // the gradients travel while attention computes
    whole(kForward, f.first);
    whole(kForward, f.before);
    part(kForward, f.moe, 0, fc.dispatched);  // the rows travel while the experts' backward computes
    part(kBackward, b.moe, bc.dispatched, bc.combined);  // the gradients go back while the experts compute
    part(kForward, f.moe, fc.dispatched,
         fc.combined);  // the outputs travel while attention's backward computes
    later(w);
    part(kBackward, b.moe, bc.combined, bc.end);
    whole(kBackward, b.before);
    whole(kBackward, b.last);
    part(kForward, f.moe, fc.combined, fc.end);
    whole(kForward, f.after);
    whole(kForward, f.last);
  }

  std::vector<sim::LockstepPiece> pieces;

 private:
  const std::vector<std::vector<std::int32_t>>& sizes_;
};

}  // namespace

std::vector<sim::LockstepPiece> interleaved(const PassPlaces& forward, const PassPlaces& backward,
                                            const PassPlaces& later,
                                            const std::vector<std::vector<std::int32_t>>& sizes) {
  Order order(sizes);
  order.whole(kBackward, backward.lead);
  order.whole(kLater, later.lead);
  order.whole(kForward, forward.lead);
  const std::size_t layers = std::max(forward.layers.size(), backward.layers.size());
  for (std::size_t i = 0; i < layers; ++i) {
    const LayerPlaces* f = i < forward.layers.size() ? &forward.layers[i] : nullptr;
    const LayerPlaces* b = i < backward.layers.size() ? &backward.layers[i] : nullptr;
    const LayerPlaces* w = i < later.layers.size() ? &later.layers[i] : nullptr;
    if (f && b && f->moe >= 0 && b->moe >= 0) {
      order.both(*f, *b, w);
    } else {
      if (b) order.alone(kBackward, *b);
      order.later(w);
      if (f) order.alone(kForward, *f);
    }
    if (w) order.whole(kLater, w->before);
  }
  order.whole(kLater, later.rest);
  order.whole(kForward, forward.rest);
  order.whole(kBackward, backward.rest);
  return std::move(order.pieces);
}

}  // namespace moesim::models

#include "models/routing/routing_cache.h"

#include <algorithm>
#include <utility>

namespace moesim::models {

namespace {

constexpr std::size_t kMostNumbers = std::size_t{8} << 20;

}  // namespace

const Routing& RoutingCache::draw(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts,
                                  int topk, std::uint64_t seed, int layer, int microbatch) {
  const Key key{{spec.kind, spec.parameter, experts, topk, seed, layer}, ranks, tokens, microbatch};
  if (const auto found = drawn_.find(key); found != drawn_.end()) return found->second;
  // Each job may fill it; what finds no room then is drawn again.
  if (held_ > kMostNumbers && layer == 0 && microbatch == 0) {
    drawn_.clear(), popularity_.clear(), by_gini_.clear();
    held_ = 0;
  }
  Routing routing = make_routing(spec, ranks, tokens, experts, topk, microbatch, [&] {
    const auto [at, added] = popularity_.try_emplace(key.layer);
    if (added) {
      std::span<const double> by_gini;
      if (spec.kind == RoutingSpec::Kind::kGini) {
        std::vector<double>& kept = by_gini_[{experts, topk, spec.parameter}];
        if (kept.empty()) kept = popularity_with_gini(experts, topk, spec.parameter);
        by_gini = kept;
      }
      at->second = draw_popularity(spec, experts, topk, seed, layer, by_gini);
      held_ += 2 * static_cast<std::size_t>(experts);
    }
    return at->second;
  });
  const std::size_t counts = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(experts);
  if (held_ + counts > kMostNumbers) {
    held_ = std::max(held_, kMostNumbers + 1);
    return last_ = std::move(routing);
  }
  held_ += counts;
  return drawn_.emplace(key, std::move(routing)).first->second;
}

}  // namespace moesim::models

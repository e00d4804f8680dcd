#include "models/routing/routing_cache.h"

namespace moesim::models {

namespace {

constexpr std::size_t kMostCounts = std::size_t{8} << 20;
constexpr int kMostExperts = 1 << 16;  // limit for cached popularities

}  // namespace

const Routing& RoutingCache::draw(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts,
                                  int topk, std::uint64_t seed) {
  const Key key{spec.kind, spec.parameter, ranks, tokens, experts, topk, seed};
  if (const auto found = drawn_.find(key); found != drawn_.end()) return found->second;
  std::span<const double> by_gini;
  // make_routing() refuses what cannot be drawn.
  if (spec.kind == RoutingSpec::Kind::kGini && topk >= 1 && topk <= experts && experts <= kMostExperts) {
    std::vector<double>* kept = &popularity_[{experts, topk, spec.parameter}];
    if (kept->empty()) {
      if (popularities_held_ + static_cast<std::size_t>(experts) > kMostCounts) {
        popularity_.clear();
        popularities_held_ = 0;
        kept = &popularity_[{experts, topk, spec.parameter}];
      }
      popularities_held_ += static_cast<std::size_t>(experts);
      *kept = popularity_with_gini(experts, topk, spec.parameter);
    }
    by_gini = *kept;
  }
  Routing routing = make_routing(by_gini, spec, ranks, tokens, experts, topk, seed, 0, 0);
  const std::size_t counts = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(experts);
  if (held_ + counts > kMostCounts) {
    drawn_.clear();
    held_ = 0;
  }
  held_ += counts;
  return drawn_.emplace(key, std::move(routing)).first->second;
}

}  // namespace moesim::models

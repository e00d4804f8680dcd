#include "models/answers/priced_draws.h"

#include <cmath>

#include "base/random.h"
#include "models/answers/doubt.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

namespace {

// Separate the draws of profiles and of hosts from draws of routings.
constexpr std::uint64_t kDrawStream = 0x6d6f6573696d, kHostStream = 0x686f7374;

}  // namespace

Profile drawn_profile(const Cluster& cluster, std::uint64_t seed, int d) {
  Random random = Random::for_item(seed ^ kDrawStream, static_cast<std::uint64_t>(d));
  return cluster.profile.draw(random);
}

PricedDraws::PricedDraws(const Cluster& cluster, const Recipe& recipe, std::uint64_t seed, int draws) {
  pricers_.reserve(static_cast<std::size_t>(draws) + 1);
  pricers_.emplace_back(cluster, recipe);
  if (draws == 0) return;
  Cluster drawn = cluster;
  for (int d = 0; d < draws; ++d) {
    drawn.profile = drawn_profile(cluster, seed, d);
    Random host = Random::for_item(seed ^ kHostStream, static_cast<std::uint64_t>(d));
    pricers_.emplace_back(drawn, recipe.drawn(host));
  }
}

PricedDraws::~PricedDraws() = default;
PricedDraws::PricedDraws(PricedDraws&&) noexcept = default;
PricedDraws& PricedDraws::operator=(PricedDraws&&) noexcept = default;

struct PriceCache::Entry {
  std::shared_ptr<const Cluster> cluster;  // held, so that its address is not reused
  Recipe recipe;
  std::uint64_t seed = 0;
  int draws = 0;
  std::shared_ptr<const PricedDraws> prices;
};

PriceCache::PriceCache() = default;
PriceCache::~PriceCache() = default;

std::shared_ptr<const PricedDraws> PriceCache::of(const Scenario& s, int draws) {
  constexpr std::size_t kMost = 2048;  // prices of clusters and of their draws
  const std::uint64_t seed = draws == 0 ? 0 : s.seed;
  Recipe recipe = Recipe::of(s.training, s.parallel.world());
  recipe.unpublished_kernel = s.is_step() ? 1 : std::exp(kUnpublishedInLayer);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t i = entries_.size(); i-- > 0;)
    if (entries_[i].cluster == s.cluster && entries_[i].seed == seed && entries_[i].draws == draws &&
        entries_[i].recipe == recipe)
      return entries_[i].prices;
  const std::size_t each = static_cast<std::size_t>(draws) + 1;
  if ((entries_.size() + 1) * each > kMost) entries_.clear();
  entries_.push_back(
      {s.cluster, recipe, seed, draws, std::make_shared<const PricedDraws>(*s.cluster, recipe, seed, draws)});
  return entries_.back().prices;
}

}  // namespace moesim::models

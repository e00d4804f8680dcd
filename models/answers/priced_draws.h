// Prices of a cluster and of draws of its profile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/costs/program_prices.h"
#include "models/hardware/profile.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// The profile of draw d of a seed, the same whoever asks.
Profile drawn_profile(const Cluster& cluster, std::uint64_t seed, int d);

// Prices of a cluster under a recipe and those of its drawn profiles, resolved once for many scenarios.
class PricedDraws {
 public:
  // Of drawn_profile(0), ...
  PricedDraws(const Cluster& cluster, const Recipe& recipe, std::uint64_t seed, int draws);
  ~PricedDraws();
  PricedDraws(PricedDraws&&) noexcept;
  PricedDraws& operator=(PricedDraws&&) noexcept;

  const ProgramPricer& nominal() const { return pricers_.front(); }
  std::span<const ProgramPricer> drawn() const { return std::span(pricers_).subspan(1); }

 private:
  std::vector<ProgramPricer> pricers_;
};

// Priced draws of several clusters, for sweeps. Not for several threads at a time.
class PriceCache {
 public:
  PriceCache();
  ~PriceCache();
  const PricedDraws& of(const Scenario& scenario, int draws);

 private:
  struct Entry;
  std::vector<Entry> entries_;
};

}  // namespace moesim::models

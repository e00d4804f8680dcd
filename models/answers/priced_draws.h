// Prices of a cluster under the nominal profile and under draws of it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "models/costs/program_prices.h"
#include "models/hardware/profile.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Returns draw d of the profile for a seed; equal arguments give equal draws.
Profile drawn_profile(const Cluster& cluster, std::uint64_t seed, int d);

// Prices of a cluster under a recipe, nominal and drawn, resolved once for many scenarios.
class PricedDraws {
 public:
  // Draws drawn_profile(0) to drawn_profile(draws - 1).
  PricedDraws(const Cluster& cluster, const Recipe& recipe, std::uint64_t seed, int draws);
  ~PricedDraws();
  PricedDraws(PricedDraws&&) noexcept;
  PricedDraws& operator=(PricedDraws&&) noexcept;

  const ProgramPricer& nominal() const { return pricers_.front(); }
  std::span<const ProgramPricer> drawn() const { return std::span(pricers_).subspan(1); }

 private:
  std::vector<ProgramPricer> pricers_;
};

// Priced draws of several clusters, for sweeps and searches. Thread-safe.
class PriceCache {
 public:
  PriceCache();
  ~PriceCache();
  std::shared_ptr<const PricedDraws> of(const Scenario& scenario, int draws);

 private:
  struct Entry;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace moesim::models

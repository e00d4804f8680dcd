#include "sim/network/flows.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "sim/network/windowed_flows.h"
#include "tests/sim/slow_filling.h"
#include "tests/sim/test_costs.h"

namespace moesim::sim {
namespace {

// A small network with flows that come and go: after every change all rates are those of slow filling, and
// flows end when their bytes are through at these rates.
void compare_with_slow_filling(std::uint64_t seed) {
  Random random(seed);
  const std::size_t links = 1 + random.below(8);
  std::vector<double> capacities;
  for (std::size_t i = 0; i < links; ++i)
    capacities.push_back(1e9 * static_cast<double>(1 + random.below(5)));
  FlowNetwork network(capacities);
  std::map<std::uint32_t, PlainFlow> flows;
  std::map<std::uint32_t, std::uint32_t> slot_of_tag;
  Time now;
  const std::uint64_t steps = 2 + random.below(40);
  for (std::uint32_t tag = 0; tag < steps; ++tag) {
    if (!flows.empty() && random.below(3) == 0) {
      fill_slowly(capacities, flows);
      double first_end = 1e300;
      for (const auto& [slot, flow] : flows) first_end = std::min(first_end, flow.remaining / flow.rate);
      const Time before = now;
      now = network.next_end();
      ASSERT_NEAR((now - before).seconds(), first_end, 1e-9) << "seed " << seed << " step " << tag;
      for (auto& [slot, flow] : flows) flow.remaining -= flow.rate * (now - before).seconds();
      std::vector<std::uint32_t> tags;
      network.end_due(now, tags);
      ASSERT_FALSE(tags.empty());
      for (const std::uint32_t ended : tags) {
        ASSERT_NEAR(flows[slot_of_tag[ended]].remaining, 0.0, 4.0);
        flows.erase(slot_of_tag[ended]);
      }
    } else if (!flows.empty() && random.below(10) == 0) {
      const auto changed = flows.begin();
      changed->second.cap = 1e8 * static_cast<double>(1 + random.below(40));
      network.set_cap(now, changed->first, changed->second.cap);
    } else {
      PlainFlow flow;
      for (std::uint32_t link = 0; link < links; ++link) {
        static constexpr double kFactors[] = {1.0, 1.0, 2.0, 0.5};
        if (random.below(3) == 0) flow.shares.push_back({link, kFactors[random.below(4)]});
      }
      if (flow.shares.empty() || random.below(3) == 0)
        flow.cap = 1e8 * static_cast<double>(1 + random.below(40));
      const double bytes = 1000.0 * static_cast<double>(100 + random.below(5000));
      const std::uint32_t slot = network.start(now, flow.shares, bytes, flow.cap, tag);
      slot_of_tag[tag] = slot;
      flow.remaining = bytes;
      flows[slot] = flow;
    }
    if (random.below(4) == 0) continue;  // several changes at one instant
    network.next_end();
    fill_slowly(capacities, flows);
    for (const auto& [slot, flow] : flows)
      ASSERT_NEAR(network.rate(slot), flow.rate, 1e-6 * flow.rate) << "seed " << seed << " step " << tag;
  }
}

TEST(Flows, RatesAreMaxMinFairOnRandomNetworks) {
  for (std::uint64_t seed = 0; seed < 20'000 && !HasFatalFailure(); ++seed) compare_with_slow_filling(seed);
}

}  // namespace
}  // namespace moesim::sim

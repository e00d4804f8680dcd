// Max-min fair rates by their definition, slowly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/network/flows.h"

namespace moesim::sim {

struct PlainFlow {
  std::vector<LinkShare> shares;
  double cap = 0;
  double rate = 0;       // bytes per second
  double remaining = 0;  // bytes
};

// Max-min rates by the definition: raise all rates together, stop the flows that hit something, go on.
inline void fill_slowly(const std::vector<double>& capacities, std::map<std::uint32_t, PlainFlow>& flows) {
  for (auto& [slot, flow] : flows) flow.rate = -1;
  for (;;) {
    double level = 1e300;
    for (std::size_t link = 0; link < capacities.size(); ++link) {
      double left = capacities[link], weight = 0;
      for (const auto& [slot, flow] : flows)
        for (const LinkShare& share : flow.shares)
          if (share.link == link)
            (flow.rate < 0 ? weight : left) += flow.rate < 0 ? share.factor : -flow.rate * share.factor;
      if (weight > 0) level = std::min(level, left / weight);
    }
    for (const auto& [slot, flow] : flows)
      if (flow.rate < 0 && flow.cap > 0) level = std::min(level, flow.cap);
    if (level == 1e300) return;
    std::vector<std::uint32_t> stopped;
    for (const auto& [slot, flow] : flows) {
      if (flow.rate >= 0) continue;
      bool stops = flow.cap > 0 && flow.cap <= level * (1 + 1e-12);
      for (const LinkShare& share : flow.shares) {
        double left = capacities[share.link], weight = 0;
        for (const auto& [other, f] : flows)
          for (const LinkShare& s : f.shares)
            if (s.link == share.link)
              (f.rate < 0 ? weight : left) += f.rate < 0 ? s.factor : -f.rate * s.factor;
        stops = stops || left / weight <= level * (1 + 1e-12);
      }
      if (stops) stopped.push_back(slot);
    }
    for (const std::uint32_t slot : stopped) flows[slot].rate = level;
  }
}

}  // namespace moesim::sim

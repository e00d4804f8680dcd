// Two breakdowns of a time side by side, in portions that a reader thinks of as one thing.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/graph/task_graph.h"

namespace moesim::models {

using Breakdown = std::array<double, sim::kCategories>;

struct Portion {
  std::string name;
  std::vector<sim::Category> categories;

  double us(const Breakdown& breakdown_us) const;
};

// The portions in which `a` and `b` can be compared. A breakdown is that of the rank that ends last. Where
// that is another rank in each, longer computing of one stands in the place of the other's wait for those
// that compute: the portions of both count as one then.
std::vector<Portion> comparable(std::vector<Portion> portions, const Breakdown& a, const Breakdown& b);

}  // namespace moesim::models

// Two breakdowns of a time side by side, in parts that a reader thinks of as one thing.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/graph/task_graph.h"

namespace moesim::models {

using Breakdown = std::array<double, sim::kCategories>;

struct BreakdownPart {
  std::string name;
  std::vector<sim::Category> categories;

  double us(const Breakdown& breakdown_us) const;
};

// The parts in which `a` and `b` can be compared. A breakdown is that of the rank that ends last. Where
// that is another rank in each, longer computing of one stands in the place of the other's wait for those
// that compute: the parts of both count as one then.
std::vector<BreakdownPart> comparable_parts(std::vector<BreakdownPart> parts, const Breakdown& a,
                                            const Breakdown& b);

}  // namespace moesim::models

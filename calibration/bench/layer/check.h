// Checks the results of a layer's step on a device against the reference before its times are used.
#pragma once

#include <string>
#include <vector>

#include "layer/world.h"

namespace moesim::bench {

struct Finding {
  std::string what;
  double deviation = 0;  // root mean square error over that of the reference
  double worst = 0;      // largest error of one value, over the sum of its size and that root mean square
  std::size_t values = 0;
  bool in_float = false;  // never rounded to elements in between
};

// Tolerances for rounding.
struct Allowed {
  double deviation, worst;
};
Allowed allowed(Element element, bool in_float);

// Runs a step of a new world with a learning rate and compares every output, choice, gradient, weight and
// moment. For small shapes.
std::vector<Finding> check_all(LayerDevice& device, const LayerShape& shape);

// Compares some tokens and some gradients of each rank after a step of any size (the rate must be 0).
std::vector<Finding> check_some(World& world);

// Returns "X is wrong: ..." for the first finding beyond its tolerance; empty: none.
std::string wrong(const std::vector<Finding>& findings, Element element);

}  // namespace moesim::bench

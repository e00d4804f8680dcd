// Whether a device computed a step of a layer rightly: against the reference, before any time is believed.
#pragma once

#include <string>
#include <vector>

#include "layer/world.h"

namespace moesim::bench {

struct Finding {
  std::string what;
  double deviation = 0;  // root of the mean square, over that of the reference
  double worst = 0;      // of one value, over its size and that root together
  std::size_t values = 0;
  bool in_float = false;  // never rounded to elements on the way
};

// What rounding allows.
struct Allowed {
  double deviation, worst;
};
Allowed allowed(Element element, bool in_float);

// Takes a step of a new world with a learning rate and compares every output, choice, gradient, weight and
// moment. For small shapes.
std::vector<Finding> check_all(LayerDevice& device, const LayerShape& shape);

// Compares some tokens and some gradients of each rank after a step of any size (the rate has to be 0).
std::vector<Finding> check_some(World& world);

// "X is wrong: ..." for the first finding that is beyond what is allowed; empty: none.
std::string wrong(const std::vector<Finding>& findings, Element element);

}  // namespace moesim::bench

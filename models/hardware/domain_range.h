#pragma once

#include <string>

namespace moesim::models {

// The range of one quantity ("bytes", "ranks", "nodes", "m", ...) that a fit covers.
struct DomainRange {
  std::string quantity;
  double low = 0;
  double high = 0;
};

}  // namespace moesim::models

#pragma once

#include <string>

namespace moesim::models {

struct LinkLoad {
  std::string from, to;  // names of the fabric's nodes
  double bytes = 0;
  double utilisation = 0;  // share of its capacity over the timeline
};

}  // namespace moesim::models

// The sizes of a layer and of the expert-parallel group that one device simulates.
#pragma once

#include <cstddef>
#include <string>

namespace moesim::bench {

struct LayerShape {
  int ep = 8;  // ranks; each has experts / ep experts and `tokens` tokens
  int tokens = 4096;
  int hidden = 2048;
  int ffn = 768;  // per expert; SwiGLU, so the first product is twice as wide
  int experts = 128;
  int topk = 8;
  double skew = 0.25;  // bias of -skew ln(1 + e) on the logit of expert e, for the choice only
  unsigned seed = 1;

  int local_experts() const { return experts / ep; }
  std::size_t choices() const { return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(topk); }
};

// Returns the first invalid size, "found X, expected Y"; empty: none.
std::string problem_of(const LayerShape& shape);

}  // namespace moesim::bench

// Reference of the layer: token by token in double and in its plainest form, without ranks, moved rows or
// kernels. Device results are compared with it.
#pragma once

#include <functional>
#include <vector>

#include "layer/shape.h"

namespace moesim::bench {

// Weights of the whole layer: gate [hidden][experts]; per expert up [hidden][2 ffn] and down [ffn][hidden].
struct ReferenceWeights {
  std::vector<double> gate;
  std::function<const std::vector<double>&(int)> up, down;
};

struct ReferenceGradients {
  std::vector<double> gate;
  std::vector<std::vector<double>> up, down;  // by expert
  explicit ReferenceGradients(const LayerShape& shape);
};

struct ReferenceToken {
  std::vector<double> logits, weights;  // for all experts; for the chosen ones
  std::vector<double> y, dx;
  double loss = 0;  // |y - target|^2 / 2
};

// Computes one token `x` with given experts; gradients are those of loss * `share`. Adds weight gradients to
// `gradients` unless null.
ReferenceToken reference_token(const LayerShape& shape, const ReferenceWeights& weights,
                               const std::vector<double>& x, const std::vector<double>& target,
                               const std::vector<int>& chosen, double share, ReferenceGradients* gradients);

}  // namespace moesim::bench

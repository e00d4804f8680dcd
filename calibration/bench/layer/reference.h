// The layer once more, token by token in double and in its plainest form: no ranks, no rows that move, no
// kernels. What a device computed is held against this.
#pragma once

#include <functional>
#include <vector>

#include "layer/shape.h"

namespace moesim::bench {

// Weights of the whole layer: gate [hidden][experts], of an expert up [hidden][2 ffn] and down [ffn][hidden].
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
  std::vector<double> logits, weights;  // of all experts; of the chosen ones
  std::vector<double> y, dx;
  double loss = 0;  // |y - target|^2 / 2
};

// One token `x` whose experts are given; the gradients are those of loss * `share`. Adds the weights'
// gradients to `gradients` where there are some.
ReferenceToken reference_token(const LayerShape& shape, const ReferenceWeights& weights,
                               const std::vector<double>& x, const std::vector<double>& target,
                               const std::vector<int>& chosen, double share, ReferenceGradients* gradients);

}  // namespace moesim::bench

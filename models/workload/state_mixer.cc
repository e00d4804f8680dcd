#include "models/workload/state_mixer.h"

#include "base/check.h"
#include "models/workload/short_convolution.h"
#include "models/workload/state_mixer_kinds.h"

namespace moesim::models {

std::int64_t StateMixer::parameters(std::int64_t hidden) const {
  std::int64_t sum = hidden * (input + inner) + convolved * taps + scales;
  for (const Product& p : narrow) sum += p.n * p.k;
  return sum;
}

StateMixer state_mixer(const Architecture& model, LayerKind::Mixer mixer) {
  if (mixer == LayerKind::Mixer::kMamba)
    return model.mamba.rank > 0 ? mamba1(model.mamba) : mamba2(model.mamba);
  if (mixer == LayerKind::Mixer::kConvolution) return short_convolution(model);
  check(mixer == LayerKind::Mixer::kLinear, "a mixer that keeps a state");
  return model.linear.kind == LinearAttention::Kind::kLightning ? lightning(model.linear)
                                                                : delta_rule(model.linear);
}

}  // namespace moesim::models

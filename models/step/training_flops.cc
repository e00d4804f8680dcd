#include "models/step/training_flops.h"

#include "models/costs/attention.h"
#include "models/workload/layer_stack.h"

namespace moesim::models {

namespace {

double flops(const Architecture& a, std::int64_t seq, std::int64_t topk, bool causal) {
  const double h = static_cast<double>(a.hidden);
  const double matrices = a.gated ? 3 : 2;
  const double head = h * static_cast<double>(a.vocabulary);
  double weights = head, core = 0;
  for (const LayerKind& kind : layer_stack(a)) {
    if (kind.mtp) weights += 2 * h * h + head;
    if (kind.mixer == LayerKind::Mixer::kMamba) {
      weights += static_cast<double>(a.mamba.parameters(a.hidden));
      // The state of every head in and out, per token.
      core += 4 * static_cast<double>(a.mamba.inner() * a.mamba.state);
    } else if (kind.mixer != LayerKind::Mixer::kNone) {
      weights += static_cast<double>(a.attention.parameters(a.hidden));
      const std::int64_t window = kind.mixer == LayerKind::Mixer::kWindowed ? a.attention.window : 0;
      const double keys = causal ? mean_keys(seq, window) : static_cast<double>(seq);
      core += 2 * keys *
              static_cast<double>(a.attention.heads * (a.attention.score_dim() + a.attention.output_dim()));
    }
    if (kind.ffn == LayerKind::Ffn::kDense) weights += matrices * h * static_cast<double>(a.dense_ffn);
    if (kind.ffn == LayerKind::Ffn::kMoe)
      weights += h * static_cast<double>(a.experts) + matrices * h * static_cast<double>(a.shared_ffn) +
                 2 * h * static_cast<double>(a.latent) +
                 static_cast<double>(topk) * static_cast<double>(a.parameters_per_expert());
  }
  return 6 * weights + 3 * core;
}

}  // namespace

double training_flops_per_token(const Architecture& model, std::int64_t seq, std::int64_t topk) {
  return flops(model, seq, topk, true);
}

double training_flops_per_token_full_attention(const Architecture& model, std::int64_t seq,
                                               std::int64_t topk) {
  return flops(model, seq, topk, false);
}

}  // namespace moesim::models

#include "models/step/training_flops.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "models/programs/projections.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

// A weight that a token meets: its product, the gradient of the input and, where it is trained, its own.
double per_weight(const Lora& lora) { return lora.rank > 0 ? 4 : 6; }

// Returns the forward FLOPs per token of one layer, without the head of a multi-token-prediction layer.
double flops_of(const Architecture& a, const LayerKind& kind, std::int64_t seq, std::int64_t topk,
                const Lora& lora) {
  const double h = static_cast<double>(a.hidden);
  const double matrices = a.gated ? 3 : 2;
  double weights = (kind.mtp ? 2 * h * h : 0) + static_cast<double>(mixer_parameters(a, kind.mixer)) +
                   blocks_of(kind) * static_cast<double>(residual_parameters(a)),
         core = 0;
  if (is_attention(kind.mixer)) {
    const Attention& t = attention_of(a, kind.mixer);
    core += 2 * keys_of(a, kind.mixer, seq) * static_cast<double>(t.heads * (t.score_dim() + t.output_dim()));
    if (has_indexer(a, kind.mixer))
      core += 2.0 / 3 * (index_keys(t, seq, true) + 2 * index_keys(t, seq, false)) *
              static_cast<double>(t.index_heads * t.index_dim);
  } else if (kind.mixer != LayerKind::Mixer::kNone) {
    core += static_cast<double>(state_mixer(a, kind.mixer).recurrence_flops);
  }
  if (kind.ffn == LayerKind::Ffn::kDense)
    weights += matrices * h * static_cast<double>(dense_ffn_of(a, kind));
  if (kind.ffn == LayerKind::Ffn::kMoe)
    weights += h * static_cast<double>(a.experts + a.zero_experts) +
               matrices * h * static_cast<double>(a.shared_ffn) + 2 * h * static_cast<double>(a.latent) +
               static_cast<double>(topk) * static_cast<double>(a.parameters_per_expert());
  double adapters =
      kind.ffn == LayerKind::Ffn::kMoe ? static_cast<double>(topk * expert_adapter_elements(lora, a, 1)) : 0;
  if (lora.rank > 0)
    for (const Projections::Weight& w : layer_weights(a, kind, 1))
      adapters += static_cast<double>(adapter_elements(lora, w));
  return per_weight(lora) * weights + 6 * adapters + 3 * core;
}

double flops_of_head(const Architecture& a, const Lora& lora) {
  return per_weight(lora) * static_cast<double>(a.hidden) * static_cast<double>(a.vocabulary);
}

}  // namespace

LayerFlops flops_of_layers(const Architecture& model, std::int64_t seq, std::int64_t topk, const Lora& lora) {
  LayerFlops all;
  all.head = flops_of_head(model, lora);
  std::optional<LayerKind> last;
  for (const LayerKind& kind : layer_stack(model)) {
    all.layers.push_back(kind == last ? all.layers.back()
                                      : flops_of(model, kind, seq, topk, lora) + (kind.mtp ? all.head : 0));
    last = kind;
  }
  return all;
}

double expert_flops_per_token(const Architecture& model, std::int64_t topk, const Lora& lora) {
  return static_cast<double>(topk) * (per_weight(lora) * static_cast<double>(model.parameters_per_expert()) +
                                      6 * static_cast<double>(expert_adapter_elements(lora, model, 1)));
}

double training_flops_per_token(const Architecture& model, std::int64_t seq, std::int64_t topk,
                                const Lora& lora) {
  const LayerFlops all = flops_of_layers(model, seq, topk, lora);
  return std::accumulate(all.layers.begin(), all.layers.end(), all.head);
}

}  // namespace moesim::models

#include "models/workload/compressed_attention.h"

#include <algorithm>

namespace moesim::models {

std::vector<Compressor> compressors_of(const Architecture& model, LayerKind::Mixer mixer) {
  const Attention& a = model.attention;
  if (mixer == LayerKind::Mixer::kCompressed) return {{a.compress_all, a.head_dim, a.head_dim}};
  if (mixer == LayerKind::Mixer::kSelected)
    return {{a.compress, 2 * a.head_dim, a.head_dim}, {a.compress, 2 * a.index_dim, a.index_dim}};
  return {};
}

double compressed_keys(const Architecture& model, LayerKind::Mixer mixer, std::int64_t seq) {
  const Attention& a = model.attention;
  const bool chosen = mixer == LayerKind::Mixer::kSelected;
  const std::int64_t ratio = chosen ? a.compress : a.compress_all;
  return mean_keys(std::max<std::int64_t>(1, seq / ratio), chosen ? a.index_topk : 0);
}

}  // namespace moesim::models

#include "models/workload/layer_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/input_error.h"
#include "models/workload/mixers.h"

namespace moesim::models {

namespace {

LayerKind::Mixer mixer_of(char letter) {
  using enum LayerKind::Mixer;
  return letter == '*'   ? kAttention
         : letter == 'W' ? kWindowed
         : letter == 'M' ? kMamba
         : letter == 'L' ? kLinear
         : letter == 'I' ? kShared
         : letter == 'S' ? kSelected
         : letter == 'H' ? kCompressed
         : letter == 'C' ? kConvolution
         : letter == 'F' ? kFull
                         : kNone;
}

LayerKind::Ffn ffn_of(char letter) {
  using enum LayerKind::Ffn;
  return letter == 'E' ? kMoe : letter == '-' ? kDense : kNone;
}

}  // namespace

std::int64_t mixer_parameters(const Architecture& model, LayerKind::Mixer mixer) {
  if (mixer == LayerKind::Mixer::kNone) return 0;
  if (is_attention(mixer)) {
    const Attention& a = model.attention;
    std::int64_t sum = attention_of(model, mixer).parameters(model.hidden);
    if (mixer == LayerKind::Mixer::kAttention) sum += a.indexer_parameters(model.hidden);
    // Its keys come from the compressor.
    if (mixer == LayerKind::Mixer::kSelected)
      sum += a.indexer_parameters(model.hidden) - model.hidden * a.index_dim - 2 * a.index_dim;
    for (const Compressor& c : compressors_of(model, mixer)) sum += c.parameters(model.hidden);
    return sum;
  }
  return state_mixer(model, mixer).parameters(model.hidden);
}

std::vector<LayerKind> layer_stack(const Architecture& model) {
  std::vector<LayerKind> stack;
  const Attention& a = model.attention;
  std::size_t dense = 0;  // dense FFNs so far
  const auto add = [&](LayerKind kind) {
    if (kind.ffn == LayerKind::Ffn::kDense && !model.dense_sizes.empty())
      kind.dense_ffn = model.dense_sizes[dense++ % model.dense_sizes.size()];
    stack.push_back(kind);
  };
  for (const char c : model.pattern) add({mixer_of(c), ffn_of(c), false});
  for (std::int64_t layer = 0; model.pattern.empty() && layer < model.layers; ++layer) {
    LayerKind kind;
    const bool windowed = a.window > 0 && (a.window_every == 0 || (layer + 1) % a.window_every != 0);
    kind.mixer = windowed ? LayerKind::Mixer::kWindowed : LayerKind::Mixer::kAttention;
    if (!model.mixers.empty()) kind.mixer = mixer_of(model.mixers[static_cast<std::size_t>(layer)]);
    kind.ffn = model.is_moe_layer(layer) ? LayerKind::Ffn::kMoe : LayerKind::Ffn::kDense;
    if (!model.ffns.empty()) kind.ffn = ffn_of(model.ffns[static_cast<std::size_t>(layer)]);
    add(kind);
  }
  // Prediction layers beside compressed keys see only a window (DeepSeek-V4).
  const bool compressed = a.compress > 0 || a.compress_all > 0;
  for (std::int64_t layer = 0; layer < model.mtp_layers; ++layer)
    stack.push_back({compressed ? LayerKind::Mixer::kWindowed : LayerKind::Mixer::kAttention,
                     model.experts > 0 ? LayerKind::Ffn::kMoe : LayerKind::Ffn::kDense, true});
  return stack;
}

bool is_cut_evenly(const Architecture& model, const Parallel& parallel) {
  const std::int64_t chunks = parallel.pp * parallel.vpp;
  if (chunks == 1) return true;
  return model.layers % chunks == 0 && (model.mtp_layers == 0 || !model.pattern.empty());
}

std::vector<Chunk> cut_into_chunks(const Architecture& model, const Parallel& parallel,
                                   std::span<const double> weight, double embedding, double head) {
  const std::vector<LayerKind> stack = layer_stack(model);
  const auto chunks = static_cast<std::size_t>(parallel.pp * parallel.vpp);
  const std::size_t layers = stack.size();
  if (chunks > layers)
    throw InputError(
        fmt::format("parallel: found {} pipeline chunks (pp {} x vpp {}), expected at most the {} "
                    "layers of {}",
                    chunks, parallel.pp, parallel.vpp, layers, model.name));
  std::vector<std::size_t> begin(chunks + 1);
  const auto own = static_cast<std::size_t>(model.layers);  // without MTP layers
  if (is_cut_evenly(model, parallel)) {
    for (std::size_t c = 0; c < chunks; ++c) begin[c] = c * (own / chunks);
    begin[chunks] = layers;
  } else {
    check(weight.size() == stack.size(), "a weight for every layer");
    // The smallest bound under which a greedy cut needs at most `chunks` pieces, found by bisection; every
    // chunk keeps at least one layer.
    const auto cut = [&](double bound, std::vector<std::size_t>* out) {
      std::size_t layer = 0;
      for (std::size_t c = 0; c < chunks; ++c) {
        if (out) (*out)[c] = layer;
        double sum = c == 0 ? embedding : 0;
        const std::size_t left = chunks - c - 1;  // chunks that still need a layer each
        std::size_t taken = 0;
        while (layer + left < layers &&
               (taken == 0 || sum + weight[layer] + (c + 1 == chunks ? head : 0) <= bound)) {
          sum += weight[layer++];
          ++taken;
        }
      }
      if (out) (*out)[chunks] = layers;
      return layer == layers;
    };
    double low = 0, high = std::accumulate(weight.begin(), weight.end(), embedding + head);
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (cut(middle, nullptr) ? high : low) = middle;
    }
    cut(high * (1 + 1e-9), &begin);
  }
  std::vector<Chunk> result(chunks);
  for (std::size_t c = 0; c < chunks; ++c) {
    result[c].first = begin[c];
    result[c].layers.assign(stack.begin() + static_cast<std::ptrdiff_t>(begin[c]),
                            stack.begin() + static_cast<std::ptrdiff_t>(begin[c + 1]));
  }
  result.front().embedding = true;
  result.back().head = true;
  return result;
}

double mean_keys(std::int64_t seq, std::int64_t window, bool chunked) {
  const auto s = static_cast<double>(seq), w = static_cast<double>(window);
  if (window <= 0 || window >= seq) return std::max(1.0, s / 2);
  if (chunked) {
    const auto rest = static_cast<double>(seq % window);
    return std::max(1.0, ((s - rest) * w + rest * rest) / (2 * s));
  }
  return std::max(1.0, w - w * w / (2 * s));
}

}  // namespace moesim::models

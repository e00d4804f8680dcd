#include "models/workload/mixers.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace moesim::models {

namespace {

// Tokens of a chunk: mamba_ssm's default, and the block of lightning attention (arXiv 2401.04658); for the
// delta rule that of flash-linear-attention, the only one its kernels support.
constexpr std::int64_t kScanChunk = 256, kDeltaChunk = 64;

// FLOPs per element of the state and token in Mamba's scan: the decay, its product with the state, the input
// (two products and a sum), the output (a product and a sum), the exponential and the step, as VMamba counts.
constexpr std::int64_t kSelectiveScanFlops = 9;

// in_proj, conv1d with a bias, x_proj to step, input and output vectors, dt_proj with a bias, A, D, out_proj,
// and norms of the three vectors (Jamba, arXiv 2403.19887). The scan reads values, steps and
// the gate, goes token by token and writes no state; the convolved columns and the steps stay.
StateMixer mamba1(const Mamba& m) {
  StateMixer s;
  s.inner = m.inner();
  s.input = 2 * s.inner;
  s.narrow = {{m.rank + 2 * m.state, s.inner}, {s.inner, m.rank}};
  s.convolved = s.inner;
  s.taps = m.conv + 1;
  s.state = s.inner * m.state;
  s.scales = s.state + 2 * s.inner + m.rank + 2 * m.state;
  s.scan_flops = kSelectiveScanFlops * s.state;
  s.recurrence_flops = 4 * s.state;
  s.scanned = 3 * s.inner + 2 * m.state;
  s.kept = 2 * s.inner + m.rank + 2 * m.state;
  return s;
}

// in_proj, conv1d with a bias, A, D and the steps' biases, a gated norm, out_proj (Mamba2 of
// state-spaces/mamba, arXiv 2405.21060). Per token half a chunk of scores per group and of values, and the state in and out.
// States of a chunk are fp32, written and read by two kernels each. One kernel convolves again in backward.
StateMixer mamba2(const Mamba& m) {
  StateMixer s;
  s.inner = m.inner();
  s.input = 2 * s.inner + 2 * m.groups * m.state + m.heads;
  s.convolved = s.inner + 2 * m.groups * m.state;
  s.taps = m.conv + 1;
  s.scales = 3 * m.heads + s.inner;
  s.state = s.inner * m.state;
  s.scan_flops = kScanChunk * (m.groups * m.state + s.inner) + 4 * s.state;
  s.recurrence_flops = 4 * s.state;
  s.scanned = s.convolved;
  s.between = 8 * s.state / kScanChunk;
  s.measured = true;
  s.launches = 5;
  s.backward_launches = 10;
  return s;
}

// Keys, queries and values with a short convolution without a bias, a gate on the output, a decay and a step;
// a norm over a head. The chunked delta rule (arXiv 2406.06484, section 3): scores of keys with keys and with
// queries, the two products with the inverted triangle, the output, half a chunk each; and the state read
// twice and written. The rows of the two products and a chunk of scores go through memory.
StateMixer delta_rule(const LinearAttention& l) {
  StateMixer s;
  const bool kimi = l.kind == LinearAttention::Kind::kKimiDelta;
  const std::int64_t keys = l.key_heads * l.key_dim, v = l.value_heads;
  s.inner = v * l.value_dim;
  s.convolved = 2 * keys + s.inner;
  s.taps = l.conv;
  s.state = v * l.key_dim * l.value_dim;
  s.input = s.convolved + (l.gate_rank > 0 ? l.gate_rank : s.inner) + v;
  if (l.gate_rank > 0) s.narrow.push_back({s.inner, l.gate_rank});
  if (kimi) {
    // Decays by column come through a projection as narrow as a head; one bias a column, one scale a head.
    s.input += l.key_dim;
    s.narrow.push_back({v * l.key_dim, l.key_dim});
    s.scales = v * l.key_dim + v + l.value_dim;
  } else {
    s.input += v;
    s.scales = 2 * v + l.value_dim;
  }
  s.scan_flops = kDeltaChunk * v * (3 * l.key_dim + 2 * l.value_dim) + 6 * s.state;
  s.recurrence_flops = 6 * s.state;
  s.scanned = s.convolved + 2 * v + (kimi ? v * l.key_dim : 0);
  s.between = s.state / kDeltaChunk + v * (l.key_dim + l.value_dim + kDeltaChunk);
  s.launches = 8;
  s.backward_launches = 12;
  s.kept = s.convolved + v * kDeltaChunk;
  return s;
}

// One product for queries, keys and values and one for the gate, a norm over all heads (MiniMaxText01's
// lightning attention, arXiv 2501.08313). Scores and values of half a block, and the state in and out.
StateMixer lightning(const LinearAttention& l) {
  StateMixer s;
  const std::int64_t keys = l.key_heads * l.key_dim;
  s.inner = l.value_heads * l.value_dim;
  s.input = 2 * keys + 2 * s.inner;
  s.state = l.value_heads * l.key_dim * l.value_dim;
  s.scales = s.inner;
  s.scan_flops = kScanChunk * l.value_heads * (l.key_dim + l.value_dim) + 4 * s.state;
  s.recurrence_flops = 4 * s.state;
  s.scanned = 2 * keys + s.inner;
  s.between = 4 * s.state / kScanChunk;
  s.launches = 4;
  s.backward_launches = 6;
  s.kept = 2 * keys + s.inner;
  return s;
}

// Mixing by a short convolution between two gates (LFM2; Lfm2ShortConv of transformers). One product gives two
// gates and the values; the values times the first gate go through a depthwise convolution of `taps` taps, whose
// output times the second gate goes through the output projection. It keeps the last tokens of a sequence and no
// state. Example of 2048 columns and 3 taps: 4 x 2048^2 + 3 x 2048 = 16,783,360 weights.
StateMixer short_convolution(const Architecture& model) {
  const ShortConvolution& c = model.convolution;
  StateMixer s;
  s.inner = s.convolved = model.hidden;
  s.input = 3 * model.hidden;
  s.taps = c.taps + (c.bias ? 1 : 0);
  s.recurrence_flops = 2 * c.taps * model.hidden;
  s.scanned = 2 * model.hidden;  // the values and their gate
  s.kept = model.hidden;         // the gated values
  return s;
}

}  // namespace

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

namespace {

// Weights per token: n to read the streams, n to write them, n^2 to mix them.
std::int64_t mixing(std::int64_t streams) { return (2 + streams) * streams; }

// The embedding, half of the groups on average, and the sum of the present one.
std::int64_t sources(const Architecture& model) {
  return 2 + (model.layers + model.residual.group - 1) / model.residual.group / 2;
}

}  // namespace

ResidualWork residual_work(const Architecture& model) {
  const std::int64_t h = model.hidden, n = model.residual.streams;
  ResidualWork work;
  work.read_after = 2 * h;
  work.written_after = h;
  switch (model.residual.kind) {
    case Residual::Kind::kPlain:
      break;
    case Residual::Kind::kHyper:
      work.mixed = n * h;
      work.mixing = mixing(n);
      work.read_before = 2 * n * h;
      work.written_before = h;
      work.read_after = (n + 1) * h;
      work.written_after = n * h;
      work.kept = (n + 1) * h;  // the streams and the block's output
      break;
    case Residual::Kind::kGroups:
      work.read_before = 2 * sources(model) * h;  // for the scores and for the sum
      work.written_before = h;
      work.kept = h;  // the sum of the present group
      break;
  }
  return work;
}

std::int64_t rows_between_stages(const Architecture& model) {
  return model.residual.kind == Residual::Kind::kGroups ? sources(model) : model.residual.streams;
}

std::int64_t recomputed_blocks(const Architecture& model, std::int64_t blocks) {
  const auto n = static_cast<double>(model.residual.streams);
  return std::max<std::int64_t>(1, std::llround(std::sqrt(n * static_cast<double>(blocks) / (n + 2))));
}

std::int64_t residual_parameters(const Architecture& model) {
  const ResidualWork work = residual_work(model);
  if (model.residual.kind == Residual::Kind::kPlain) return 0;
  // A bias for each weight and three scales; or a norm and a query.
  return model.residual.kind == Residual::Kind::kHyper ? work.mixed * work.mixing + work.mixing + 3
                                                       : 2 * model.hidden;
}

std::int64_t residual_head_parameters(const Architecture& model) {
  const std::int64_t n = model.residual.streams;
  if (model.residual.kind == Residual::Kind::kPlain) return 0;
  return model.residual.kind == Residual::Kind::kHyper ? n * n * model.hidden + n + 1 : 2 * model.hidden;
}

}  // namespace moesim::models

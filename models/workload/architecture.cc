#include "models/workload/architecture.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/layer_stack.h"
#include "models/workload/mixers.h"

namespace moesim::models {

std::int64_t Attention::parameters(std::int64_t hidden) const {
  const std::int64_t gate = hidden * heads * gate_dim;
  if (kind == Kind::kLatent) {
    const std::int64_t queries =
        q_rank > 0 ? hidden * q_rank + q_rank + q_rank * heads * score_dim() : hidden * heads * score_dim();
    return queries + hidden * (kv_rank + rope_dim) + kv_rank + kv_rank * heads * (nope_dim + value_dim) +
           heads * value_dim * hidden + gate;
  }
  const std::int64_t columns = grouped_columns(heads, kv_heads), queries = heads * head_dim;
  const std::int64_t input =
      q_rank > 0 ? hidden * (columns - queries + q_rank) + q_rank * queries + q_rank + kv_heads * head_dim
                 : hidden * columns;
  const std::int64_t output = output_groups > 0
                                  ? output_rank * (heads * output_dim() + output_groups * hidden)
                                  : heads * output_dim() * hidden;
  return input + output + (qkv_bias ? columns : 0) + (output_bias ? hidden : 0) +
         (qk_norm ? 2 * head_dim : 0) + (sinks ? heads : 0) + gate;
}

// Queries from the latent queries where they exist, one key for all heads with a LayerNorm, a weight per head
// (class Indexer of DeepSeek-V3.2-Exp's inference/model.py); for pooled keys also a gate per token and a bias
// per position of a block (the tensors of GLM-5.3-Flash). Example of GLM-5.3-Flash, queries of rank 1536, 32
// heads of 128 and blocks of 4: 1536 x 4096 + 4096 x (256 + 32) + 256 + 4 x 128 = 7,471,872.
std::int64_t Attention::indexer_parameters(std::int64_t hidden) const {
  return (q_rank > 0 ? q_rank : hidden) * index_heads * index_dim +
         hidden * (index_key_columns() + index_heads) + 2 * index_dim +
         (index_pooled ? index_block * index_dim : 0);
}

bool Architecture::is_moe_layer(std::int64_t layer) const {
  const auto at = static_cast<std::size_t>(layer);
  if (!pattern.empty()) return pattern[at] == 'E';
  if (!ffns.empty()) return ffns[at] == 'E';
  return experts > 0 && layer >= dense_layers && (layer - dense_layers) % moe_every == moe_every - 1;
}

std::int64_t Architecture::moe_layers() const {
  if (!pattern.empty() || !ffns.empty()) return std::ranges::count(pattern.empty() ? ffns : pattern, 'E');
  return experts == 0 || layers <= dense_layers ? 0 : (layers - dense_layers) / moe_every;
}

bool Architecture::has_dense_ffn() const {
  if (pattern.empty() && ffns.empty()) return moe_layers() < layers;
  return (pattern + ffns).find('-') != std::string::npos;
}

std::int64_t Architecture::parameters_per_expert() const {
  const std::int64_t up = (gated ? 2 : 1) * expert_ffn;
  return expert_width() * (up + expert_ffn) + (expert_bias ? up + expert_width() : 0);
}

namespace {

std::int64_t count_parameters(const Architecture& a, std::int64_t routed_experts) {
  const std::int64_t up = a.gated ? 3 : 2;
  const std::int64_t router =
      a.hidden * (a.experts + a.zero_experts) + (a.router_bias ? a.experts + a.zero_experts : 0);
  const std::int64_t shared =
      up * a.hidden * a.shared_ffn + (a.shared_gate ? a.hidden : 0) + 2 * a.latent * a.hidden;
  std::int64_t sum = (a.tied_embeddings ? 1 : 2) * a.vocabulary * a.hidden + a.norm_parameters() +
                     residual_head_parameters(a);
  for (const LayerKind& layer : layer_stack(a)) {
    if (layer.mtp) break;
    sum += blocks_of(layer) * residual_parameters(a);
    if (layer.mixer != LayerKind::Mixer::kNone) sum += a.norm_parameters() + mixer_parameters(a, layer.mixer);
    if (layer.ffn != LayerKind::Ffn::kNone) sum += a.norm_parameters();
    if (layer.ffn == LayerKind::Ffn::kDense) sum += up * a.hidden * dense_ffn_of(a, layer);
    if (layer.ffn == LayerKind::Ffn::kMoe)
      sum += router + shared + routed_experts * a.parameters_per_expert();
  }
  return sum;
}

}  // namespace

std::int64_t Architecture::parameters() const { return count_parameters(*this, experts); }

std::int64_t Architecture::active_parameters() const {
  const std::int64_t table = vocabulary * hidden;
  const std::int64_t left_out =
      tied_embeddings ? !embedding_active && !head_active : !embedding_active + !head_active;
  return count_parameters(*this, topk) - left_out * table;
}

namespace {

constexpr double kMostState = 0x1p48;  // elements; the FLOPs of a scan cannot overflow

// Returns an upper bound on the parameters, including layer kinds that do not occur: below 2^62 no count
// overflows.
double most_parameters(const Architecture& a) {
  const auto d = [](std::int64_t size) { return static_cast<double>(size); };
  const Mamba& m = a.mamba;
  const LinearAttention& l = a.linear;
  const double width = d(std::max(a.hidden, a.latent)) + 1;
  double attention = 0;
  for (const Attention* t : {&a.attention, &a.windowed}) {
    const double ranks = d(t->q_rank) + d(t->kv_rank),
                 index = (d(t->index_heads) + 2) * (d(t->index_dim) + 1),
                 columns =
                     d(t->head_dim) + d(t->nope_dim) + d(t->rope_dim) + d(t->value_dim) + d(t->gate_dim);
    attention += (width + ranks) *
                 ((d(t->heads) + d(t->kv_heads)) * (columns + 1) + ranks + d(t->rope_dim) + index + 1);
    const double compressed =
        2 * (d(t->head_dim) + d(t->index_dim) + 1) * (d(t->compress) + d(t->compress_all));
    attention += d(t->output_rank) * (d(t->heads) * columns + d(t->output_groups) * width) +
                 (t->compress + t->compress_all > 0 ? 4 * width * (compressed + 1) : 0);
  }
  const double streams = d(a.residual.streams);
  attention += 2 * width * ((2 + streams) * streams * streams + 4) +
               width * (d(a.convolution.taps) + 4 * width) * (a.convolution.taps > 0 ? 1 : 0);
  double dense = d(a.dense_ffn);
  for (const std::int64_t size : a.dense_sizes) dense = std::max(dense, d(size));
  const double mamba = (width + d(m.conv) + d(m.rank) + d(m.state) + 1) *
                       (d(m.heads) * (d(m.head_dim) + 1) + d(m.groups) * d(m.state) + d(m.rank));
  const double linear = (width + d(l.conv) + d(l.gate_rank) + d(l.key_dim) + 1) *
                        (d(l.key_heads) + d(l.value_heads) + 1) *
                        (d(l.key_dim) + d(l.value_dim) + d(l.gate_rank) + 2);
  const double ffn = width * (dense + d(a.zero_experts) + d(a.shared_ffn) + d(a.latent) +
                              d(a.experts) * (d(a.expert_ffn) + 1) + 1);
  return d(a.layers) * 4 * (attention + mamba + linear + ffn) + 2 * d(a.vocabulary) * width;
}

// Checks that the letters match the number of layers, and that their kinds have sizes.
void check_letters(const Architecture& a, const JsonNode& node) {
  const auto letters = [&](const char* key, const std::string& text, const std::string& known) {
    if (text.empty()) return;
    if (!a.pattern.empty()) node.fail(fmt::format("\"{}\" beside \"pattern\"", key), "one of them");
    if (static_cast<std::int64_t>(text.size()) != a.layers ||
        text.find_first_not_of(known) != std::string::npos)
      node.fail(fmt::format("\"{}\" {}", key, in_quotes(text)),
                fmt::format("a letter of {} for each of the {} layers", known, a.layers));
  };
  letters("mixers", a.mixers, fmt::format("{}.", kMixerLetters));
  letters("ffns", a.ffns, "E-.");
  const auto has = [&](char letter) { return (a.pattern + a.mixers).find(letter) != std::string::npos; };
  if (has('M') && a.mamba.heads == 0)
    node.fail("Mamba layers without sizes", "\"mamba\" (or \"mamba_num_heads\") for them");
  if (has('L') && a.linear.value_heads == 0)
    node.fail("linear attention without sizes",
              "\"linear_attention\" (or \"linear_num_value_heads\") for it");
  if (has('C') && a.convolution.taps == 0)
    node.fail("short convolutions without taps", "\"convolution\" (or \"conv_L_cache\") for them");
  if (has('F') && a.attention.index_topk == 0)
    node.fail("letters F in a model without an indexer", "* for attention over all tokens");
  if (has('I') && a.attention.index_topk == 0)
    node.fail("layers that share an indexer's choice in a model without one",
              "\"index_topk\" in \"attention\" for them");
  const auto compressed = [&](char letter, std::int64_t ratio, const char* key) {
    if (!has(letter)) return;
    if (ratio < 2 || a.attention.window == 0 || (letter == 'S' && a.attention.index_topk == 0))
      node.fail("layers of compressed attention without its sizes",
                fmt::format("\"{}\", \"window\"{} in \"attention\"", key,
                            letter == 'S' ? " and \"index_topk\"" : ""));
    if (a.attention.kind == Attention::Kind::kLatent || a.windowed.heads > 0)
      node.fail("compressed attention with latent vectors or windows of their own heads",
                "one key for all heads");
  };
  compressed('S', a.attention.compress, "compress");
  compressed('H', a.attention.compress_all, "compress_all");
  if (has('W') && a.attention.window == 0)
    node.fail("windowed layers without a window", "\"window\" (or \"sliding_window\") for them");
  if (a.experts == 0 && (a.pattern + a.ffns).find('E') != std::string::npos)
    node.fail("layers with experts in a model without", "\"experts\" for them");
}

}  // namespace

void check_consistent(const Architecture& a, const JsonNode& node) {
  if (const double most = most_parameters(a); most > 0x1p62)
    node.fail(fmt::format("sizes of {:.0e} parameters", most), "at most 4e18");
  if (a.experts > 0 && (a.topk < 1 || a.topk > a.experts))
    node.fail(fmt::format("top-{} of {} experts", a.topk, a.experts), "1 <= top-k <= experts");
  const LinearAttention& l = a.linear;
  const double states = std::max(
      static_cast<double>(a.mamba.inner()) * static_cast<double>(a.mamba.state),
      static_cast<double>(l.value_heads) * static_cast<double>(l.key_dim) * static_cast<double>(l.value_dim));
  if (states > kMostState) node.fail(fmt::format("states of {:.0e} elements", states), "at most 2^48");
  for (const Attention* t : {&a.attention, &a.windowed})
    if (t->kind == Attention::Kind::kGrouped && t->kv_heads > 0 && t->heads % t->kv_heads != 0)
      node.fail(fmt::format("{} attention heads for {} key/value heads", t->heads, t->kv_heads),
                "a multiple");
  check_letters(a, node);
  if (a.dense_layers > a.layers)
    node.fail(fmt::format("{} dense layers of {}", a.dense_layers, a.layers), "at most all layers");
  if (a.experts > 0 && a.moe_layers() == 0 && a.mtp_layers == 0)
    node.fail(fmt::format("{} experts in none of {} layers", a.experts, a.layers), "a layer with experts");
  if ((a.attention.output_groups > 0) != (a.attention.output_rank > 0))
    node.fail("groups or a rank of the output alone", "\"output_groups\" and \"output_rank\"");
  if (!a.dense_sizes.empty()) {
    std::int64_t dense = 0;
    for (std::int64_t layer = 0; layer < a.layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      dense += !a.pattern.empty() ? a.pattern[at] == '-'
               : !a.ffns.empty()  ? a.ffns[at] == '-'
                                  : !a.is_moe_layer(layer);
    }
    if (static_cast<std::int64_t>(a.dense_sizes.size()) != dense)
      node.fail(fmt::format("{} sizes of {} dense FFNs", a.dense_sizes.size(), dense), "one for each");
  }
  if (a.has_dense_ffn() && a.dense_ffn == 0 && a.dense_sizes.empty() && (a.layers > 1 || a.experts == 0))
    node.fail("dense layers without an inner size", "\"dense_ffn\" (or \"intermediate_size\") for them");
}

void set_pattern(Architecture& a, const std::string& pattern, const JsonNode& node) {
  a.pattern = pattern;
  if (pattern.empty()) return;
  if (const std::size_t odd = pattern.find_first_not_of(fmt::format("{}E-", kMixerLetters));
      odd != std::string::npos)
    node.fail(
        fmt::format("layer pattern letter {}", in_quotes(pattern.substr(odd, 1))),
        "M (Mamba), L (linear attention), C (short convolution), * (attention), W (windowed), I (with shared "
        "choice), S and H (compressed), F (all tokens), E (experts) or - (dense FFN)");
  a.layers = static_cast<std::int64_t>(pattern.size());
}

void fill_heads(Attention& a, std::int64_t hidden) {
  if (a.heads == 0) a.heads = std::max<std::int64_t>(1, hidden / 128);
  if (a.kind == Attention::Kind::kLatent) return;
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  if (a.head_dim == 0) a.head_dim = std::max<std::int64_t>(1, hidden / a.heads);
}

}  // namespace moesim::models

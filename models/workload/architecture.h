// Architecture of a mixture-of-experts transformer: sizes, kinds of attention, layers with experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/dtype.h"

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// Attention with separate query, key and value heads (MHA, GQA, MQA), or with latent vectors (MLA,
// DeepSeek-V2).
struct Attention {
  enum class Kind : std::uint8_t { kGrouped, kLatent };

  Kind kind = Kind::kGrouped;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   // kGrouped; equal to heads for MHA
  std::int64_t head_dim = 0;   // kGrouped; width of a query and key head, and of a value head without its own
  std::int64_t q_rank = 0;     // 0: queries are projected directly
  std::int64_t kv_rank = 0;    // kLatent
  std::int64_t nope_dim = 0;   // kLatent; width of a query/key head without position
  std::int64_t rope_dim = 0;   // kLatent; width of the shared rotary part
  std::int64_t value_dim = 0;  // width of a value head; 0 (kGrouped only): head_dim
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;        // a norm over head_dim on queries and keys
  bool sinks = false;          // one learned logit per head (gpt-oss)
  bool shared_values = false;  // kGrouped; values are the keys: no projection of their own (Gemma 4)
  std::int64_t gate_dim = 0;   // columns per head of a sigmoid gate on the output (arXiv 2505.06708); 0: none
  std::int64_t window = 0;     // tokens seen by a windowed layer; 0: none
  // in every group of so many consecutive layers all but the last are windowed; 0: all
  std::int64_t window_every = 0;
  bool chunked = false;  // windows are fixed chunks of the sequence instead of sliding (Llama 4)
  // Sparse attention (DeepSeek-V3.2, arXiv 2512.02556): an indexer with index_heads heads of index_dim
  // columns scores all earlier tokens, and the core takes the best index_topk; 0: none. Windowed layers have
  // no indexer. It may choose blocks of `index_block` tokens (MiniMax-M3), by the best score of their tokens
  // or, where `index_pooled`, by that of one key that learned weights make of them (GLM-5.3-Flash).
  std::int64_t index_heads = 0, index_dim = 0, index_topk = 0;
  std::int64_t index_block = 1;
  bool index_pooled = false;
  // A low-rank output projection through output_groups groups of output_rank columns each (DeepSeek-V4); 0:
  // direct.
  std::int64_t output_groups = 0, output_rank = 0;
  // Tokens per compressed key beside a window (DeepSeek-V4; mixers.h), in layers whose indexer
  // chooses among these keys and in layers that take all of them; 0: none.
  std::int64_t compress = 0, compress_all = 0;

  // Widths of one head in the score and the value products.
  std::int64_t score_dim() const { return kind == Kind::kLatent ? nope_dim + rope_dim : head_dim; }
  std::int64_t output_dim() const { return value_dim > 0 ? value_dim : head_dim; }
  // Columns of the projection of queries, keys and values of kGrouped with so many heads of each.
  std::int64_t grouped_columns(std::int64_t queries, std::int64_t keys) const {
    return queries * head_dim + keys * (head_dim + (shared_values ? 0 : output_dim()));
  }
  std::int64_t parameters(std::int64_t hidden) const;
  std::int64_t indexer_parameters(std::int64_t hidden) const;
  // Returns the tokens of a key that the indexer scores: a pooled block's, or a compressed key's.
  std::int64_t scored_tokens() const { return compress > 0 ? compress : index_pooled ? index_block : 1; }
  // Returns the columns of the products for the indexer's key: the key, and the weights that pool it.
  std::int64_t index_key_columns() const { return (index_pooled ? 2 : 1) * index_dim; }

  friend bool operator==(const Attention&, const Attention&) = default;
};

// A state-space mixer: Mamba-2 (arXiv 2405.21060), or Mamba (arXiv 2312.00752) where `rank` is given.
struct Mamba {
  std::int64_t heads = 0;  // 0: the model has none; for Mamba the channels, each a head of one column
  std::int64_t head_dim = 64;
  std::int64_t state = 128;
  std::int64_t groups = 8;  // Mamba-2
  std::int64_t conv = 4;
  std::int64_t rank = 0;  // Mamba: of the projection of step sizes

  std::int64_t inner() const { return heads * head_dim; }
  friend bool operator==(const Mamba&, const Mamba&) = default;
};

// Attention without a softmax, whose heads keep a state of key_dim x value_dim instead of keys and values.
struct LinearAttention {
  // Lightning attention (MiniMax-01, arXiv 2501.08313): fixed decays. Gated DeltaNet (arXiv 2412.06464;
  // Qwen3-Next): a decay and a step per head. Kimi delta attention (arXiv 2510.26692): a decay per column.
  enum class Kind : std::uint8_t { kLightning, kGatedDelta, kKimiDelta };

  Kind kind = Kind::kGatedDelta;
  std::int64_t key_heads = 0;  // 0: the model has none
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 128, value_dim = 128;
  std::int64_t conv = 0;       // taps of the convolution of queries, keys and values; 0: none
  std::int64_t gate_rank = 0;  // rank of the output gate's projection; 0: full

  friend bool operator==(const LinearAttention&, const LinearAttention&) = default;
};

// Mixing of neighbouring tokens by gates and a short convolution alone (LFM2; mixers.h).
struct ShortConvolution {
  std::int64_t taps = 0;  // 0: the model has none
  bool bias = false;

  friend bool operator==(const ShortConvolution&, const ShortConvolution&) = default;
};

// Residual streams: how blocks read the output of earlier blocks, and where they write (residual.h).
struct Residual {
  // One stream to which every block adds; hyper-connections (several streams that every block mixes); or
  // attention over the sums of earlier groups of layers (Kimi-K3).
  enum class Kind : std::uint8_t { kPlain, kHyper, kGroups };

  Kind kind = Kind::kPlain;
  std::int64_t streams = 1;  // kHyper
  std::int64_t group = 0;    // kGroups: layers per group

  friend bool operator==(const Residual&, const Residual&) = default;
};

struct Architecture {
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;  // dense and MoE layers together, without MTP layers
  std::int64_t vocabulary = 0;
  bool tied_embeddings = false;
  // Whether the publisher's count of active parameters includes the input embeddings, of which a token reads
  // one row, and the output head.
  bool embedding_active = true, head_active = true;
  bool norm_bias = false;  // norms have a bias besides their scale (LayerNorm)
  Attention attention;
  Attention windowed;  // windowed layers with other heads; heads 0: same as `attention`

  std::int64_t dense_ffn = 0;     // inner size of the FFN of a dense layer; 0 where there is none
  std::int64_t dense_layers = 0;  // leading layers without experts (DeepSeek)
  std::int64_t moe_every = 1;     // period of layers with experts after these (Llama 4 Maverick: 2)

  // Inner sizes of the dense FFNs in layer order, where they differ; empty: `dense_ffn`.
  std::vector<std::int64_t> dense_sizes;

  std::int64_t experts = 0;  // 0: a dense model
  std::int64_t topk = 0;     // mean number of computing experts per token
  // Experts that return a token unchanged (LongCat-Flash, arXiv 2509.01322): columns of the router, which
  // chooses among all experts; choosing such an expert sends no row.
  std::int64_t zero_experts = 0;
  std::int64_t expert_ffn = 0;  // F of docs/spec.md 1.1
  bool gated = true;            // SwiGLU/GeGLU: two up projections
  bool expert_bias = false;
  bool router_bias = false;
  std::int64_t shared_ffn = 0;           // total inner size of all shared experts; 0: none
  bool shared_gate = false;              // a learned scalar gate on the shared expert (Qwen2-MoE)
  std::int64_t routing_groups = 1;       // group-limited routing (DeepSeek): number of groups of experts
  std::int64_t routing_topk_groups = 1;  // groups that a token may use
  std::int64_t mtp_layers = 0;  // multi-token-prediction layers, each a MoE layer and a 2H -> H projection
  std::int64_t latent = 0;      // width of the routed experts' rows (LatentMoE); 0: hidden
  Mamba mamba;
  LinearAttention linear;
  ShortConvolution convolution;
  Residual residual;
  // Hybrid models whose layers are one block each, a letter per layer: M Mamba, L linear attention, C short
  // convolution, W windowed attention, I sparse attention that reuses the previous layer's choice, S and H
  // attention over compressed keys chosen by an indexer and over all of them, * other attention, which is
  // sparse where the model has an indexer, F attention over all tokens in such a model, E experts, - dense
  // FFN. Empty: every layer is a mixer and an FFN.
  std::string pattern;
  // For layers of a mixer and an FFN: their letters, one per layer, a point for none. Empty: attention with
  // windows by `window_every`; experts by `dense_layers` and `moe_every`.
  std::string mixers, ffns;
  // Notes on the interpretation of a third-party file, one sentence each.
  std::vector<std::string> remarks;
  std::string source;  // where it came from: "built-in", or the file
  // Keys of a third-party file: known not to change sizes or layers, and unknown.
  std::vector<std::string> ignored_keys, unknown_keys;

  // Returns the width of a row at the experts' input.
  std::int64_t expert_width() const { return latent > 0 ? latent : hidden; }

  // Returns the attention of windowed layers.
  const Attention& windowed_attention() const { return windowed.heads > 0 ? windowed : attention; }

  bool is_moe_layer(std::int64_t layer) const;
  std::int64_t moe_layers() const;
  bool has_dense_ffn() const;  // whether a layer without experts has an FFN

  std::int64_t norm_parameters() const { return (norm_bias ? 2 : 1) * hidden; }

  // Elements of all weights, in total or with only the routed experts that a token meets (active). MTP layers
  // are excluded, as in published totals.
  std::int64_t parameters() const;
  std::int64_t active_parameters() const;
  std::int64_t parameters_per_expert() const;

  // Parses a built-in name, our own object {"hidden", "experts", ...}, or a Hugging Face config.json
  // (recognised by "hidden_size", DeepSeek's own key names included). Throws InputError with the place for
  // unknown keys of our own format, for missing or impossible values, and for Hugging Face keys that describe
  // a model beyond this struct; unknown harmless keys go to `remarks`. `name`: for a model without a name;
  // empty: "custom", or its model_type.
  static Architecture parse(const JsonNode& node, const std::string& name = "");
  // Loads a built-in name, a JSON file, or a folder with a config.json, whose name becomes the model's.
  // Throws InputError with the nearest name.
  static Architecture load(const std::string& name_or_path);
  static std::span<const std::string> names();
};

// Letters of the mixers of layers (Architecture::pattern).
inline constexpr std::string_view kMixerLetters = "*WMLCISHF";

// Throws InputError at `node` for sizes that contradict each other, layers without sizes, and counts beyond
// 64 bits.
void check_consistent(const Architecture& model, const JsonNode& node);

// Sets the letters of a hybrid model's layers, and with them the number of layers. Throws InputError at
// `node` for an unknown letter.
void set_pattern(Architecture& model, const std::string& pattern, const JsonNode& node);

// Sets what an attention leaves out of its heads: heads of 128 columns or one head where the model is narrower,
// and all of them with their own keys and values.
void fill_heads(Attention& attention, std::int64_t hidden);

}  // namespace moesim::models

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/text.h"
#include "models/workload/model_config.h"
#include "models/workload/model_layers.h"

namespace moesim::models {

namespace {

constexpr ModelConfig::Keys kHeads{"num_attention_heads", "n_heads"};
constexpr ModelConfig::Keys kExperts{"num_local_experts", "n_routed_experts", "num_experts",
                                     "moe_num_experts", "moe_num_primary_experts"};
constexpr ModelConfig::Keys kTopk{"num_experts_per_tok",
                                  "moe_topk",
                                  "num_experts_per_token",
                                  "moe_top_k",
                                  "moe_k",
                                  "top_k_experts",
                                  "experts_per_token",
                                  "n_activated_experts",
                                  "moe_num_active_primary_experts"};
constexpr ModelConfig::Keys kExpertFfn{"moe_intermediate_size", "expert_ffn_hidden_size",
                                       "moe_inter_dim",         "moe_ffn_hidden_size",
                                       "expert_hidden_dim",     "expert_intermediate_size"};
constexpr ModelConfig::Keys kSharedExperts{"n_shared_experts", "num_shared_experts", "num_shared_expert",
                                           "moe_num_shared_experts"};
constexpr ModelConfig::Keys kSharedFfn{"shared_expert_intermediate_size", "share_expert_dim",
                                       "share_expert_dims", "shared_intermediate_size"};

// Activations that most families use without a gate.
constexpr std::array<std::string_view, 4> kUngatedActivations{"xielu", "relu2", "squared_relu",
                                                              "relu_squared"};

// Returns whether the FFN has two up projections. Throws where only the activation is known, which leaves
// that open.
bool is_gated(const ModelConfig& c) {
  if (const auto usual = c.usual({"gated"})) return usual->boolean();
  if (const auto says = c.find({"use_gated_activation", "gated_mlp"}); says && says->is_boolean())
    return says->boolean();
  const auto activation =
      c.said({"hidden_act", "hidden_activation", "mlp_hidden_act", "activation_function"});
  const bool open =
      activation && activation->is_string() &&
      std::ranges::find(kUngatedActivations, activation->string()) != kUngatedActivations.end() &&
      c.family() != "bitnet";  // three matrices and a squared ReLU
  if (open)
    activation->fail(
        activation->describe(),
        fmt::format("\"gated_mlp\": true or false beside it: nothing here says whether an FFN of {} "
                    "has a gate",
                    c.family()));
  return true;
}

// Sets biases of the projections, norms of queries and keys, learned logits.
void set_extras(const ModelConfig& c, Attention& a) {
  a.qkv_bias = a.output_bias = c.flag("attention_bias", false);
  for (const char* key : {"qkv_bias", "use_qkv_bias", "add_qkv_bias"})
    if (c.flag(key, false)) a.qkv_bias = true;
  a.output_bias = c.flag("attention_out_bias", a.output_bias);
  a.qk_norm = c.flag("use_qk_norm", c.flag("qk_norm", false));
  a.sinks = a.sinks || c.flag("add_full_attention_sink_bias", false);
  if (c.flag("attn_output_gate", false) || c.flag("mla_use_output_gate", false) ||
      c.flag("attention_output_gate", false))
    a.gate_dim = a.output_dim();
  else if (c.flag("use_head_wise_attn_gate", false))
    a.gate_dim = 1;
}

// MiniMax-M3 (its config.json and the public loaders of its checkpoint): an indexer chooses blocks of tokens
// by their best score. Values of the indexer's own, which the checkpoint lacks, are refused.
void set_block_indexer(const ModelConfig& part, Attention& a) {
  const auto without = part.find({"sparse_disable_index_value"}), freq = part.find({"sparse_attention_freq"});
  if (!part.flag("use_sparse_attention", true)) return;
  if (without && freq && without->is_array() && freq->is_array())
    for (std::size_t i = 0; i < std::min(without->size(), freq->size()); ++i)
      if (!says_nothing(freq->items()[i]) && says_nothing(without->items()[i]))
        without->fail("values of an indexer", "1 for every sparse layer: they are not modelled here");
  a.index_block = part.size({"sparse_block_size"}, 0, 1);
  const std::int64_t blocks = part.size({"sparse_topk_blocks"}, 0, 1);
  if (blocks > kMaxModelSize / a.index_block)
    part.node().fail(fmt::format("{} blocks of {} tokens", blocks, a.index_block), "at most 2^31 tokens");
  a.index_topk = blocks * a.index_block;
  a.index_heads = part.size({"sparse_num_index_heads"}, 0, 1);
  a.index_dim = part.size({"sparse_index_dim"}, 0, 1);
}

void set_indexer(const ModelConfig& c, Attention& a) {
  if (const auto sparse = c.part("sparse_attention_config"); sparse && sparse->node().size() > 0)
    set_block_indexer(*sparse, a);
  const auto topk = c.said({"index_topk"});
  if (!topk) return;
  if (a.kind != Attention::Kind::kLatent && a.compress == 0)
    topk->fail("sparse attention without latent vectors (\"kv_lora_rank\")",
               "DeepSeek-V3.2's or \"compress_ratios\": other sparse attention is not modelled here");
  a.index_topk = topk->integer(1, kMaxModelSize);
  a.index_heads = c.size({"index_n_heads"}, 0, 1);
  a.index_dim = c.size({"index_head_dim"}, 0, 1);
  const auto pool = c.said({"index_kpool"});
  if (!pool) return;
  if (!c.flag("index_kpool_compress", false))
    pool->fail(pool->describe(),
               "\"index_kpool_compress\": keys pooled without weights are not modelled here");
  c.has({"index_kpool_always_select_tail"});  // within the chosen tokens
  a.index_block = pool->integer(1, a.index_topk);
  a.index_pooled = true;
}

Attention full_attention(const ModelConfig& c, std::int64_t hidden) {
  Attention a;
  a.heads = c.size(kHeads, 0, 1);
  if (c.has({"kv_lora_rank"})) {
    a.kind = Attention::Kind::kLatent;
    a.q_rank = c.size({"q_lora_rank"}, 0);
    a.kv_rank = c.size({"kv_lora_rank"}, 0, 1);
    a.nope_dim = c.size({"qk_nope_head_dim"}, 0, 1);
    const ModelConfig::Keys rope{"qk_rope_head_dim"};  // 0: the indexer alone knows positions (GLM-5.3-Flash)
    a.rope_dim = c.size(rope, 0, c.has(rope) ? 0 : 1);
    // MiniCPM3's class takes the quotient.
    a.value_dim = c.size({"v_head_dim"}, c.family() == "minicpm3" ? hidden / a.heads : 0, 1);
    // Redundant beside latent vectors: these keys have no effect, or are sums of others.
    for (const char* key : {"num_key_value_heads", "head_dim", "qk_head_dim"}) c.has({key});
  } else {
    a.kv_heads = c.size(
        {"num_key_value_heads", "kv_n_heads", "n_kv_heads", "num_attention_groups", "multi_query_group_num"},
        a.heads, 1);
    c.flag("multi_query_attention", false);  // the number of groups decides
    static constexpr ModelConfig::Keys kWidth{"head_dim", "attention_head_dim", "kv_channels"};
    if (hidden % a.heads != 0 && !c.has(kWidth) && !c.usual(kWidth))
      c.find(kHeads)->fail(fmt::format("{} heads for {} columns and no width of a head", a.heads, hidden),
                           "\"head_dim\" where the heads do not divide \"hidden_size\"");
    a.head_dim = c.size(kWidth, hidden / a.heads, 1);
    if (const std::int64_t values = c.size({"v_head_dim"}, 0); values != a.head_dim) a.value_dim = values;
    a.q_rank = c.size({"q_lora_rank"}, 0);
    a.output_groups = c.size({"o_groups"}, 0);
    a.output_rank = c.size({"o_lora_rank"}, 0);
    if (const auto compression = config_compression(c)) {
      c.has({"qk_rope_head_dim", "partial_rotary_factor"});  // a part of a head
      a.shared_values = a.sinks = true;
      a.compress = compression->chosen;
      a.compress_all = compression->all;
    }
  }
  set_extras(c, a);
  set_indexer(c, a);
  return a;
}

// Sets the window, and separate heads of windowed layers.
void set_windows(const ModelConfig& c, Architecture& a) {
  Attention& full = a.attention;
  const bool llama4 = c.family().starts_with("llama4");
  full.window = config_window(c);
  full.chunked = llama4;
  if (const auto chunk = c.said({"attention_chunk_size"}); chunk && !llama4) {
    // Beside a sliding window of the same size (MiMo-V2) it is redundant.
    if (chunk->integer(1, kMaxModelSize) != full.window)
      chunk->fail(fmt::format("chunks of {} tokens", chunk->integer()),
                  "a sliding window of that size: other chunks are not modelled here");
  }
  Attention own = full;
  // MiMo-V2 gives the windowed layers' heads, Step's a separate part, Gemma 4 those of the full layers.
  if (const auto part = c.part("attention_other_setting")) {
    own.heads = part->size({"num_attention_heads"}, own.heads, 1);
    own.kv_heads = part->size({"num_attention_groups", "num_key_value_heads"}, own.kv_heads, 1);
    own.head_dim = part->size({"head_dim"}, own.head_dim, 1);
    part->has({"attention_type", "true_sliding_window"});
  }
  own.heads = c.size({"swa_num_attention_heads"}, own.heads, 1);
  own.kv_heads =
      c.size({"swa_num_key_value_heads"}, own.kv_heads, full.kind == Attention::Kind::kLatent ? 0 : 1);
  own.head_dim = c.size({"swa_head_dim"}, own.head_dim);
  own.value_dim = c.size({"swa_v_head_dim"}, own.value_dim);
  if (own.value_dim == own.head_dim && own.kind == Attention::Kind::kGrouped) own.value_dim = 0;
  own.sinks = c.flag("add_swa_attention_sink_bias", own.sinks);
  full.head_dim = c.size({"global_head_dim"}, full.head_dim);
  full.kv_heads = c.size({"num_global_key_value_heads"}, full.kv_heads);
  full.shared_values = c.flag("attention_k_eq_v", full.shared_values);
  const bool differs = own != full;
  own.window = own.window_every = 0;
  own.chunked = false;
  own.index_heads = own.index_dim = own.index_topk = 0;
  if (differs) a.windowed = own;
}

void set_linear(const ModelConfig& c, Architecture& a) {
  LinearAttention& l = a.linear;
  if (const auto part = c.part("linear_attn_config"); part && part->node().size() > 0) {
    l.kind = LinearAttention::Kind::kKimiDelta;
    l.key_heads = l.value_heads = part->size({"num_heads"}, 0, 1);
    l.key_dim = l.value_dim = part->size({"head_dim"}, 0, 1);
    l.conv = part->size({"short_conv_kernel_size"}, 4, 1);
    l.gate_rank = part->flag("use_full_rank_gate", false) ? 0 : l.value_dim;
  } else if (c.has({"linear_num_value_heads"})) {
    l.kind = LinearAttention::Kind::kGatedDelta;
    l.value_heads = c.size({"linear_num_value_heads"}, 0, 1);
    l.key_heads = c.size({"linear_num_key_heads"}, 0, 1);
    l.key_dim = c.size({"linear_key_head_dim"}, 0, 1);
    l.value_dim = c.size({"linear_value_head_dim"}, 0, 1);
    l.conv = c.size({"linear_conv_kernel_dim"}, 4, 1);
  } else if (c.has({"attn_type_list", "layer_group_size"}) || c.family().starts_with("minimax")) {
    // MiniMax and Ling linear: heads as attention's, also beside latent vectors, all with their own keys and values.
    l.kind = LinearAttention::Kind::kLightning;
    l.key_heads = l.value_heads = c.size({"num_attention_heads"}, 0, 1);
    l.key_dim = l.value_dim = c.size({"head_dim"}, a.hidden / l.key_heads, 1);
  }
}

void set_mamba(const ModelConfig& c, Architecture& a) {
  Mamba& m = a.mamba;
  m.state = c.size({"ssm_state_size", "mamba_state_dim", "mamba_d_state"}, m.state, 1);
  m.conv = c.size({"conv_kernel", "mamba_d_conv"}, m.conv, 1);
  if (const auto rank = c.said({"mamba_dt_rank"}); rank && !c.has({"mamba_n_heads", "mamba_num_heads"})) {
    // Mamba-1: as many heads as channels.
    m.head_dim = 1;
    m.heads = c.size({"mamba_expand"}, 2, 1) * a.hidden;
    m.rank = rank->is_string() ? (a.hidden + 15) / 16 : rank->integer(1, kMaxModelSize);  // "auto"
    return;
  }
  m.heads = c.size({"mamba_num_heads", "mamba_n_heads"}, 0, 1);
  const auto columns = c.find({"mamba_head_dim", "mamba_d_head"});
  m.head_dim = columns && columns->is_integer() ? columns->integer(1, kMaxModelSize)
               : columns
                   ? std::max<std::int64_t>(1, c.size({"mamba_expand"}, 2, 1) * a.hidden / m.heads)  // "auto"
                   : m.head_dim;
  m.groups = c.size({"n_groups", "mamba_num_groups", "mamba_n_groups"}, m.groups, 1);
}

// LongCat-Flash (arXiv 2509.01322): each layer is two of attention and a dense FFN, with experts that start
// beside the first FFN and whose output joins after the second. They are modelled in sequence.
bool has_shortcut(const ModelConfig& c) { return c.said({"zero_expert_num"}).has_value(); }

void set_shortcut(const ModelConfig& c, Architecture& a) {
  if (!has_shortcut(c)) return;
  std::string letters;
  for (std::int64_t i = 0; i < a.layers; ++i) letters += "*E-*-";
  set_pattern(a, letters, c.node());
  a.remarks.push_back(fmt::format("{}: experts beside a dense FFN (a shortcut) are timed one after the other",
                                  c.node().place().file));
}

// Sets the residual streams.
void set_residual(const ModelConfig& c, Architecture& a) {
  if (const std::int64_t streams = c.size({"hc_mult"}, 1); streams > 1 && c.flag("mhc", true)) {
    if (streams > 64) c.node().fail(fmt::format("{} residual streams", streams), "at most 64");
    a.residual.kind = Residual::Kind::kHyper;
    a.residual.streams = streams;
  }
  if (const auto group = c.said({"attn_res_block_size"})) {
    a.residual.kind = Residual::Kind::kGroups;
    a.residual.group = group->integer(1, 1 << 20);
  }
}

void set_convolution(const ModelConfig& c, Architecture& a) {
  const auto taps = c.said({"conv_L_cache"});
  const bool there = a.mixers.find('C') != std::string::npos;
  if (taps && !there)
    taps->fail(fmt::format("{} without layers of short convolutions", taps->describe()),
               "\"layer_types\" with \"conv\"");
  if (!there) return;
  a.convolution.taps = c.size({"conv_L_cache"}, 0, 1);
  a.convolution.bias = c.flag("conv_bias", false);
}

// Sets layers of different sizes.
void set_blocks(const ModelConfig& c, Architecture& a) {
  const auto blocks = config_blocks(c, a.hidden, a.layers);
  if (!blocks) return;
  a.mixers = blocks->mixers;
  a.ffns = blocks->ffns;
  a.dense_sizes = blocks->sizes;
  if (!a.dense_sizes.empty()) a.dense_ffn = *std::ranges::max_element(a.dense_sizes);
  if (blocks->heads_in_group == 0) return;
  if (a.attention.heads % blocks->heads_in_group != 0)
    c.node().fail(fmt::format("{} heads in groups of {}", a.attention.heads, blocks->heads_in_group),
                  "a multiple");
  a.attention.kv_heads = a.attention.heads / blocks->heads_in_group;
}

// Returns the inner size of LFM2's dense FFN: two thirds of the given one, rounded up to a multiple, where
// the file asks for it. Of Llama's params.json, which gives none: of four times the width (llama/model.py,
// FeedForward).
std::int64_t adjusted_ffn(const ModelConfig& c) {
  const std::int64_t said = c.size({"block_ff_dim"}, c.has({"multiple_of"}) ? 4 * c.size({"dim"}, 0) : 0);
  const std::int64_t of = std::max<std::int64_t>(1, c.size({"block_multiple_of", "multiple_of"}, 256));
  const auto times = c.find({"block_ffn_dim_multiplier", "ffn_dim_multiplier"});
  if (said == 0 || !c.flag("block_auto_adjust_ff_dim", true)) return said;
  const double inner = std::floor(2.0 * static_cast<double>(said) / 3) * (times ? times->number(0, 1024) : 1);
  return (static_cast<std::int64_t>(inner) + of - 1) / of * of;
}

// Sets the mixers of all layers and their sizes. Refuses sizes of a kind that no layer has, since the order
// of layers would be different.
void set_layers(const ModelConfig& c, Architecture& a) {
  const std::string pattern = config_pattern(c);
  if (pattern.empty()) {
    // LongCat-Flash counts its layers, and their halves as num_hidden_layers.
    a.layers = has_shortcut(c) && c.has({"num_layers"})
                   ? c.size({"num_layers"}, 0, 1)
                   : c.size({"num_hidden_layers", "n_layers", "num_layers"}, 0, 1);
    if (has_shortcut(c)) c.has({"num_hidden_layers"});
    if (a.layers > 1 << 20) c.node().fail(fmt::format("{} layers", a.layers), "at most 2^20");
    set_mixers(a, config_mixers(c, a.layers));
  } else {
    set_pattern(a, pattern, c.node());
    if (const auto layers = c.find({"num_hidden_layers"}); layers && layers->integer() != a.layers)
      layers->fail(layers->describe(), fmt::format("{}, as many as the pattern has letters", a.layers));
  }
  const std::string letters = pattern + a.mixers;
  if (letters.find('M') != std::string::npos)
    set_mamba(c, a);
  else if (c.has({"layer_types"}))  // sizes of a kind that no layer has
    for (const char* key :
         {"mamba_d_state", "mamba_n_heads", "mamba_d_head", "mamba_d_conv", "mamba_n_groups"})
      c.has({key});
  else if (const auto value = c.said({"mamba_d_state", "mamba_n_heads"}))
    value->fail(value->describe() + " without layers of Mamba",
                "\"layer_types\" or another list of them: a state space beside attention in one layer is not "
                "modelled here");
  if (letters.find('L') != std::string::npos)
    set_linear(c, a);
  else if (const auto value = c.node().find("linear_num_value_heads");
           value && !says_nothing(*value) && !c.has({"layer_types"}))
    value->fail(value->describe() + " without layers of linear attention",
                "\"layer_types\" or \"full_attention_interval\"");
}

void set_experts(const ModelConfig& c, Architecture& a) {
  const bool hybrid = !a.pattern.empty();
  const std::int64_t adjusted = adjusted_ffn(c);
  const std::int64_t inner =
      c.size({"intermediate_size", "ffn_hidden_size", "inter_dim", "hidden_dim"}, adjusted);
  // A dense inner size besides the experts': DeepSeek and Qwen call it intermediate_size, Llama 4 _mlp.
  a.dense_ffn = c.size({"intermediate_size_mlp", "dense_intermediate_size", "dense_ffn_hidden_size"}, inner);
  // A config without a number of experts is a dense model's (Llama), whose FFN is the shared one of Granite.
  if (!c.said(kExperts)) {
    for (const ModelConfig::Keys& keys : {kExperts, kTopk, kExpertFfn, kSharedExperts}) c.has(keys);
    a.dense_ffn = c.size({"shared_intermediate_size"}, a.dense_ffn);
    return;
  }
  a.experts = c.size(kExperts, 0, 1);
  a.topk = c.size(kTopk, 0, 1);
  a.expert_ffn = c.size(kExpertFfn, inner, 1);
  if (!hybrid) set_ffns(a, config_ffns(c, a.layers));
  const std::int64_t shared = c.size(kSharedExperts, 0);
  a.shared_gate = c.has({"shared_expert_intermediate_size"});
  a.shared_ffn = c.size(kSharedFfn, shared * c.size({"moe_shared_expert_intermediate_size"}, a.expert_ffn));
  if (c.flag("enable_moe_block", false)) a.shared_ffn = inner;  // Gemma 4: the dense FFN runs beside them
  a.routing_groups = std::max<std::int64_t>(
      1, c.size({"n_group", "n_expert_groups", "num_expert_group", "num_expert_groups"}, 1));
  a.routing_topk_groups = std::max<std::int64_t>(
      1, c.size({"topk_group", "n_limited_groups", "num_limited_groups", "num_expert_groups_per_tok"}, 1));
  a.latent = c.size({"moe_latent_size", "routed_expert_hidden_size"}, 0);
  a.router_bias = hybrid || c.usual({"router_bias"});
  a.expert_bias = c.usual({"expert_bias"}).has_value();
  if (const auto zero = c.said({"zero_expert_num"})) {
    a.zero_experts = zero->integer(1, kMaxModelSize);
    const std::int64_t all = a.experts + a.zero_experts;
    if (a.topk * a.experts % all != 0)
      zero->fail(
          fmt::format("top-{} of {} experts with {} that compute nothing", a.topk, a.experts, a.zero_experts),
          "a whole number of experts that compute in the mean");
    a.remarks.push_back(
        fmt::format("{}: of a token's {} experts {} compute in the mean, as a balanced router chooses",
                    c.node().place().file, a.topk, a.topk * a.experts / all));
    a.topk = a.topk * a.experts / all;
  }
}

// Multi-token prediction: so many modules of so many layers, each with attention and the model's usual FFN.
std::int64_t mtp_layers(const ModelConfig& c) {
  if (!c.flag("use_mtp", true)) return 0;
  for (const char* key : {"mtp_layers_block_type", "mtp_hybrid_override_pattern"})
    if (const auto blocks = c.said({key})) {
      const bool usual = blocks->is_string() ? blocks->string() == "*E"
                                             : blocks->is_array() && blocks->size() == 2 &&
                                                   blocks->items()[0].string() == "attention" &&
                                                   blocks->items()[1].string() == "moe";
      if (!usual)
        blocks->fail(blocks->describe(),
                     "attention and experts: other layers of prediction are not modelled here");
    }
  if (c.has({"num_nextn_predict_layers"})) c.has({"num_mtp_modules"});  // MiniMax-M3: drafts of these layers
  return c.size({"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules"},
                0) *
         std::max<std::int64_t>(1, c.size({"mtp_transformer_layers"}, 1));
}

}  // namespace

Architecture parse_config(const JsonNode& node, const std::string& name, const std::string& family) {
  const ModelConfig c(node, family);
  refuse_other_models(c);
  Architecture a;
  a.name = name.empty() ? c.family() : name;
  a.source = node.place().file;
  a.hidden = c.size({"hidden_size", "d_model", "dim"}, 0, 1);
  a.vocabulary = c.size({"vocab_size", "padded_vocab_size"}, 0);
  a.tied_embeddings = c.flag("tie_word_embeddings", c.flag("tied_embeddings", false));
  if (c.has(kHeads)) a.attention = full_attention(c, a.hidden);
  fill_heads(a.attention, a.hidden);
  set_layers(c, a);
  set_residual(c, a);
  set_convolution(c, a);
  set_shortcut(c, a);
  set_windows(c, a);
  // Without windowed layers a window has no effect, and without a window these layers have none.
  const std::string letters = a.pattern + a.mixers;
  const bool windows =
      letters.empty() ? a.attention.window_every != 1 : letters.find_first_of("WSH") != std::string::npos;
  if (windows && a.attention.window == 0)
    node.fail("windowed layers without a window", "\"sliding_window\" for them");
  if (!windows) {
    a.attention.window = a.attention.window_every = 0;
    a.attention.chunked = false;
    a.windowed = {};
  }
  set_experts(c, a);
  set_blocks(c, a);
  a.gated = is_gated(c) && (a.pattern.empty() ||
                            has_shortcut(c));  // hybrids with one block per layer: squared ReLU (Nemotron-H)
  a.mtp_layers = mtp_layers(c);
  if (a.mtp_layers > 1 << 20) node.fail(fmt::format("{} layers of prediction", a.mtp_layers), "at most 2^20");
  // Weights that publishers exclude from active parameters: OpenAI the input's table (model card of gpt-oss),
  // Zhipu both tables (arXiv 2508.06471, table 1); MiniMax and IBM give numbers that match only without both.
  a.embedding_active = !c.usual({"embedding_active"});
  a.head_active = !c.usual({"head_active"});
  check_consistent(a, node);
  KeyUse use = key_use(c);
  if (!use.unknown.empty())
    a.remarks.push_back(fmt::format("{}: not used, and not known to leave the model alone: {}",
                                    node.place().file, join(use.unknown, ", ")));
  a.ignored_keys = std::move(use.irrelevant);
  a.unknown_keys = std::move(use.unknown);
  return a;
}

}  // namespace moesim::models

// Megatron's arguments of a model's shape: sizes, vocabulary, attention.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools::megatron {

namespace {

using models::Architecture;
using models::Attention;
using models::Scenario;

void read_sizes(JobReader& r) {
  if (!has_model(r)) return;
  const auto hidden = r.whole("hidden_size");
  if (!hidden) return r.lacks_model("no --hidden-size", "the model's width");
  r.set("model.hidden", *hidden);
  const HybridPattern pattern = hybrid_pattern(r);
  const auto layers = r.whole("num_layers", 1, 1 << 20);
  if (!layers && pattern.layers.empty()) return r.lacks_model("no --num-layers", "the number of layers");
  // Megatron counts the pattern's letters whatever --num-layers is.
  r.set("model.layers", pattern.layers.empty() ? *layers : static_cast<std::int64_t>(pattern.layers.size()));
  r.set("model.experts", 0);
  const bool gated = r.flag("swiglu") || r.flag("quick_geglu") || r.flag("gated_linear_unit");
  r.flag("squared_relu"), r.flag("openai_gelu");
  r.set("model.gated", gated);
  r.set("model.dense_ffn", inner_size(r, *hidden));
  r.set("model.norm_bias", r.choice("normalization", "LayerNorm", {"LayerNorm", "RMSNorm"}) == "LayerNorm");
  // Megatron-Bridge has the negated switch.
  const bool shared = r.flag("share_embeddings_and_output_weights", true);
  r.set("model.tied_embeddings", shared && !r.flag("untie_embeddings_and_output_weights"));
  const auto mtp = r.whole("mtp_num_layers", 0);
  if (pattern.mtp > 0)
    r.set("model.mtp_layers", pattern.mtp);
  else if (mtp)
    r.set("model.mtp_layers", *mtp);
  if (r.flag("use_multi_token_prediction") && !mtp)
    r.fail("use_multi_token_prediction", "--mtp-num-layers beside it, the number of MTP layers");
}

void write_sizes(const Scenario& s, Arguments& out) {
  const Architecture& a = s.model;
  if (a.pattern.empty()) out.emplace_back("num_layers", a.layers);
  out.emplace_back("hidden_size", a.hidden);
  const std::int64_t inner = a.dense_ffn > 0 ? a.dense_ffn : a.expert_ffn;
  if (inner > 0) out.emplace_back("ffn_hidden_size", inner);
  put_flag(out, a.gated, "swiglu");
  // With biases GELU, the default: squared ReLU with them has no fused kernel, and Megatron refuses it (rule A01).
  put_flag(out, !a.gated && !a.attention.output_bias, "squared_relu");
  out.emplace_back("normalization", a.norm_bias ? "LayerNorm" : "RMSNorm");
  put_flag(out, !a.tied_embeddings, "untie_embeddings_and_output_weights");
  out.emplace_back("position_embedding_type", "rope");
  if (a.mtp_layers > 0) out.emplace_back("mtp_num_layers", a.mtp_layers);
}

void read_vocabulary(JobReader& r) {
  if (const auto padded = r.whole("padded_vocab_size")) {
    r.set("model.vocabulary", *padded);
    return;
  }
  if (!has_model(r)) return;
  const auto vocabulary = r.whole("vocab_size");
  if (!vocabulary)
    return r.lacks_model("no --vocab-size: the tokenizer's is not in the file",
                         "--vocab-size, as in --with \"--vocab-size 32000\"");
  const std::int64_t step =
      r.whole_or("make_vocab_size_divisible_by", 128) * r.whole_or("tensor_model_parallel_size", 1);
  const bool pads = r.flag("should_pad_vocab", true);
  r.set("model.vocabulary", pads ? (*vocabulary + step - 1) / step * step : *vocabulary);
}

void write_vocabulary(const Scenario& s, Arguments& out) {
  std::int64_t step = 128;
  while (step > 1 && s.model.vocabulary % (step * s.parallel.tp) != 0) step /= 2;
  out.emplace_back("vocab_size", s.model.vocabulary);
  if (step != 128) out.emplace_back("make_vocab_size_divisible_by", step);
}

void read_windows(JobReader& r) {
  // (128, 0): so many tokens before, none after.
  const std::vector<std::string> window = r.list("window_size");
  if (window.empty()) return;
  std::string first = window.front();
  while (!first.empty() && first.front() == '(') first.erase(0, 1);
  const auto tokens = parse_int(first);
  if (!tokens || *tokens < 1 || *tokens > (1LL << 31)) r.fail("window_size", "(tokens,0)");
  r.set("model.attention.window", *tokens);
  const std::string every = r.text("window_attn_skip_freq");
  if (every.empty()) return;
  const auto n = parse_int(every);
  if (!n || *n < 2 || *n > (1 << 20))
    r.fail("window_attn_skip_freq", "a whole number from 2: of so many layers the last sees all tokens");
  r.set("model.attention.window_every", *n);
}

void read_attention(JobReader& r) {
  if (!has_model(r)) return;
  const auto heads = r.whole("num_attention_heads");
  if (!heads) return r.lacks_model("no --num-attention-heads", "the number of attention heads");
  r.set("model.attention.heads", *heads);
  const bool bias = switched(r, "add_bias_linear", "disable_bias_linear", true);
  const bool query_bias = r.flag("add_qkv_bias");
  r.set("model.attention.qkv_bias", bias || query_bias);
  r.set("model.attention.output_bias", bias);
  if (r.flag("multi_latent_attention")) {
    r.set("model.attention.kind", "latent");
    r.set("model.attention.q_rank", r.whole("q_lora_rank", 0).value_or(0));
    r.set("model.attention.kv_rank", r.whole_or("kv_lora_rank", 32));
    r.set("model.attention.nope_dim", r.whole_or("qk_head_dim", 128));
    r.set("model.attention.rope_dim", r.whole_or("qk_pos_emb_head_dim", 64));
    r.set("model.attention.value_dim", r.whole_or("v_head_dim", 128));
    r.flag("qk_layernorm");  // for the latent vectors, which have norms anyway
  } else {
    // Megatron's command line drops groups without the flag (arguments.py); a configuration's fields have no flag.
    const Setting* said = r.find("num_query_groups");
    const auto groups = r.whole("num_query_groups");
    const bool grouped = r.flag("group_query_attention", groups && !said->shown.starts_with("--"));
    if (groups && !grouped)
      r.approximate("num_query_groups",
                    "without --group-query-attention every head has its own keys and values");
    r.set("model.attention.kv_heads", grouped ? groups.value_or(1) : *heads);
    if (const auto columns = r.whole("kv_channels")) {
      r.set("model.attention.head_dim", *columns);
    } else {
      const auto hidden = r.whole("hidden_size");
      if (hidden && *hidden % *heads != 0) r.fail("num_attention_heads", "a divisor of the hidden size");
    }
    r.set("model.attention.qk_norm", r.flag("qk_layernorm"));
  }
  r.set("model.attention.sinks",
        r.choice("softmax_type", "vanilla", {"vanilla", "learnable", "off-by-one"}) == "learnable");
  read_windows(r);
}

// Reads the kernel of the attention core: Megatron-Core's own layers and Transformer Engine's unfused kernels
// write the scores.
void read_attention_kernel(JobReader& r) {
  // Logs and configuration files put the enumeration's name before it.
  std::string backend = r.text("attention_backend", "auto");
  if (backend.starts_with("AttnBackend.")) backend.erase(0, backend.find('.') + 1);
  constexpr std::array<std::string_view, 5> kBackends{"auto", "flash", "fused", "unfused", "local"};
  if (std::ranges::find(kBackends, backend) == kBackends.end())
    r.fail("attention_backend",
           "one of " + join(std::vector<std::string>(kBackends.begin(), kBackends.end()), ", "));
  const bool own = r.choice("transformer_impl", "transformer_engine",
                            {"transformer_engine", "local", "inference_optimized"}) == "local";
  const bool flash = r.flag("use_flash_attn");
  // Transformer Engine's switches from the environment.
  const bool switched_off =
      r.whole("NVTE_FLASH_ATTN", 0).value_or(1) == 0 && r.whole("NVTE_FUSED_ATTN", 0).value_or(1) == 0;
  const bool unfused =
      backend == "unfused" || backend == "local" || (backend == "auto" && switched_off) || (own && !flash);
  if (!unfused) return;
  const bool dropout = r.number("attention_dropout").value_or(0.1) > 0;
  r.set("training.attention", dropout ? "unfused-dropout" : "unfused");
  if (!switched(r, "masked_softmax_fusion", "no_masked_softmax_fusion", true))
    r.approximate(r.has("no_masked_softmax_fusion") ? "no_masked_softmax_fusion" : "masked_softmax_fusion",
                  "scale, mask and softmax are one kernel of bf16 here; apart they move twice the bytes");
}

void write_attention_kernel(const Scenario& s, Arguments& out) {
  if (s.training.attention != models::AttentionKernel::kFlash)
    out.emplace_back("attention_backend", "unfused");
  // Both are 0.1 unless given.
  if (s.training.attention != models::AttentionKernel::kUnfusedDropout)
    out.emplace_back("attention_dropout", 0.0);
  out.emplace_back("hidden_dropout", 0.0);
}

void write_attention(const Scenario& s, Arguments& out) {
  const Attention& t = s.model.attention;
  out.emplace_back("num_attention_heads", t.heads);
  put_flag(out, !t.output_bias, "disable_bias_linear");
  put_flag(out, t.qkv_bias && !t.output_bias, "add_qkv_bias");
  if (t.kind == Attention::Kind::kLatent) {
    out.emplace_back("multi_latent_attention", true);
    if (t.q_rank > 0) out.emplace_back("q_lora_rank", t.q_rank);
    out.emplace_back("kv_lora_rank", t.kv_rank);
    out.emplace_back("qk_head_dim", t.nope_dim);
    out.emplace_back("qk_pos_emb_head_dim", t.rope_dim);
    out.emplace_back("v_head_dim", t.value_dim);
    out.emplace_back("qk_layernorm", true);
  } else {
    if (t.kv_heads != t.heads) {
      out.emplace_back("group_query_attention", true);
      out.emplace_back("num_query_groups", t.kv_heads);
    }
    if (t.head_dim * t.heads != s.model.hidden) out.emplace_back("kv_channels", t.head_dim);
    put_flag(out, t.qk_norm, "qk_layernorm");
  }
  if (t.sinks) out.emplace_back("softmax_type", "learnable");
  if (t.window > 0 && t.window_every != 1) out.emplace_back("window_size", fmt::format("({},0)", t.window));
  if (t.window > 0 && t.window_every > 1) out.emplace_back("window_attn_skip_freq", t.window_every);
}

}  // namespace

bool has_model(JobReader& r) {
  return r.has("num_layers") || r.has("hidden_size") || r.has("hybrid_layer_pattern");
}

bool switched(JobReader& r, const char* name, const char* off, bool fallback) {
  const bool by_name = r.flag(name, fallback);
  return r.flag(off) ? false : by_name;
}

std::int64_t inner_size(JobReader& r, std::int64_t hidden) {
  if (const auto v = r.whole("ffn_hidden_size")) return *v;
  // Llama's rule (FeedForward of meta-llama/llama's model.py): two thirds of 4 H, times a factor, rounded up.
  const auto factor = r.number("hidden_dim_multiplier");
  const auto step = r.whole("multiple_of");
  if (factor && !(*factor > 0 && *factor <= 1024))
    r.fail("hidden_dim_multiplier", "a number above 0, at most 1024");
  if (factor || step) {
    const std::int64_t two_thirds = 2 * (4 * hidden) / 3;
    const auto wide = static_cast<std::int64_t>(factor.value_or(1) * static_cast<double>(two_thirds));
    const std::int64_t rows = step.value_or(256);
    return (wide + rows - 1) / rows * rows;
  }
  // Megatron's default: 4 H, with a gate two thirds of it in steps of 64.
  return r.flag("swiglu") ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden;
}

std::vector<ArgumentRule> shape_rules() {
  return {{{"num_layers", "hidden_size", "ffn_hidden_size", "swiglu", "quick_geglu", "squared_relu",
            "openai_gelu", "gated_linear_unit", "normalization", "untie_embeddings_and_output_weights",
            "share_embeddings_and_output_weights", "mtp_num_layers", "use_multi_token_prediction",
            "hybrid_layer_pattern", "mtp_hybrid_override_pattern", "hidden_dim_multiplier", "multiple_of"},
           read_sizes,
           write_sizes},
          {{"vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by", "should_pad_vocab"},
           read_vocabulary,
           write_vocabulary},
          {{"num_attention_heads", "group_query_attention", "num_query_groups", "kv_channels", "qk_layernorm",
            "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim",
            "v_head_dim", "add_bias_linear", "disable_bias_linear", "add_qkv_bias", "softmax_type",
            "window_size", "window_attn_skip_freq"},
           read_attention,
           write_attention},
          {{"attention_backend", "use_flash_attn", "transformer_impl", "attention_dropout", "NVTE_FLASH_ATTN",
            "NVTE_FUSED_ATTN", "masked_softmax_fusion", "no_masked_softmax_fusion"},
           read_attention_kernel,
           write_attention_kernel}};
}

}  // namespace moesim::tools::megatron

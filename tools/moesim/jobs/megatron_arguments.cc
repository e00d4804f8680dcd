// Megatron-LM's arguments (megatron/training/arguments.py), the keys of its YAML files, and the fields of
// Megatron-Bridge's recipes, which have the same names.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/text.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"
#include "tools/moesim/jobs/arguments.h"
#include "tools/moesim/jobs/layer_list.h"
#include "tools/moesim/jobs/megatron_known.h"

namespace moesim::tools {

namespace {

using models::Architecture;
using models::Attention;
using models::Scenario;
using models::ShardingScheme;
using nlohmann::ordered_json;

// An integer at a path of a scenario; not written where it is `fallback`.
ArgumentRule plain(const char* name, const char* path, std::int64_t (*value)(const Scenario&),
                   std::int64_t fallback) {
  return {{name},
          [name, path](JobReader& r) {
            if (const auto v = r.whole(name)) r.set(path, *v);
          },
          [name, value, fallback](const Scenario& s, Arguments& out) {
            if (const std::int64_t v = value(s); v != fallback) out.emplace_back(name, v);
          }};
}

void put_flag(Arguments& out, bool value, const char* name) {
  if (value) out.emplace_back(name, true);
}

// Returns whether a file contains any sizes of a model.
bool has_model(JobReader& r) {
  return r.has("num_layers") || r.has("hidden_size") || r.has("hybrid_layer_pattern");
}

// Reads a switch that the command line negates and files name directly.
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

// Returns the experts of a layer, under Megatron's name or that of MegaBlocks' version; 0: none.
std::int64_t experts_of(JobReader& r) {
  return r.whole(r.has("moe_num_experts") ? "moe_num_experts" : "num_experts", 0).value_or(0);
}

// "M*|E-/*E/*E": layers by letter in stages, with an MTP layer after every /.
struct HybridPattern {
  std::string layers;
  std::int64_t stages = 1, mtp = 0;
};

HybridPattern hybrid_pattern(JobReader& r) {
  HybridPattern out;
  const std::string text = r.text("hybrid_layer_pattern");
  if (text.empty()) return out;
  const std::vector<std::string_view> parts = split(text, '/');
  out.layers = parts.front();
  out.stages += std::ranges::count(out.layers, '|');
  std::erase(out.layers, '|');
  if (out.layers.empty() || out.layers.find_first_not_of("M*E-") != std::string::npos)
    r.fail("hybrid_layer_pattern", "letters M, *, E and -: other layers are not modelled here");
  std::vector<std::string> depths(parts.begin() + 1, parts.end());
  if (const std::string old = r.text("mtp_hybrid_override_pattern"); !old.empty() && depths.empty())
    depths.assign(static_cast<std::size_t>(r.whole("mtp_num_layers", 0, 64).value_or(0)), old);
  const std::string_view usual = experts_of(r) > 0 ? "*E" : "*-";
  for (const std::string& depth : depths)
    if (depth != usual)
      r.fail(r.has("mtp_hybrid_override_pattern") ? "mtp_hybrid_override_pattern" : "hybrid_layer_pattern",
             fmt::format("MTP layers of {}: others are not modelled here", usual));
  out.mtp = std::ssize(depths);
  return out;
}

void read_sizes(JobReader& r) {
  if (!has_model(r)) return;
  const auto hidden = r.whole("hidden_size");
  if (!hidden) r.fail_without("no --hidden-size", "the model's width");
  r.set("model.hidden", *hidden);
  const HybridPattern pattern = hybrid_pattern(r);
  const auto layers = r.whole("num_layers", 1, 1 << 20);
  if (!layers && pattern.layers.empty()) r.fail_without("no --num-layers", "the number of layers");
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
  put_flag(out, !a.gated, "squared_relu");
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
    r.fail_without("no --vocab-size: the tokenizer's is not in the file",
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
  if (!heads) r.fail_without("no --num-attention-heads", "the number of attention heads");
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
    const auto groups = r.whole("num_query_groups");
    const bool grouped = r.flag("group_query_attention", groups.has_value());
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
  if (s.training.attention == models::AttentionKernel::kFlash) return;
  out.emplace_back("attention_backend", "unfused");
  if (s.training.attention == models::AttentionKernel::kUnfused) out.emplace_back("attention_dropout", 0.0);
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

void read_expert_layers(JobReader& r) {
  // Files list the items, the command line uses an expression.
  const Setting* said = r.find("moe_layer_freq");
  const std::vector<std::string> items = said ? said->values : std::vector<std::string>{"1"};
  const std::string text = items.size() == 1 ? items.front() : "[" + join(items, ",") + "]";
  const std::int64_t layers = r.whole("num_layers").value_or(1);
  std::vector<std::int64_t> holds(static_cast<std::size_t>(layers), 0);
  if (const auto every = parse_int(text)) {
    if (*every < 1 || *every > layers) r.fail("moe_layer_freq", fmt::format("1 to {}", layers));
    for (std::int64_t i = 0; i < layers; i += *every) holds[static_cast<std::size_t>(i)] = 1;
  } else {
    const auto list = layer_list(text);
    if (!list || static_cast<std::int64_t>(list->size()) != layers ||
        std::ranges::any_of(*list, [](std::int64_t one) { return one > 1; }))
      r.fail("moe_layer_freq", fmt::format("a number, or a list of 0 and 1 for the {} layers", layers));
    holds = *list;
  }
  if (std::ranges::count(holds, 1) == 0)
    r.fail("moe_layer_freq", "a layer with experts, or no --num-experts");
  const std::optional<ExpertLayers> form = expert_layers(holds);
  r.set("model.dense_layers", form ? form->dense : 0);
  r.set("model.moe_every", form ? form->every : 1);
  if (form) return;
  std::string letters;
  for (const std::int64_t one : holds) letters += one == 1 ? 'E' : '-';
  r.set("model.ffns", letters);
}

void read_experts(JobReader& r) {
  const std::int64_t experts = experts_of(r);
  if (experts == 0 || !has_model(r)) return;
  r.set("model.experts", experts);
  r.set("model.topk", r.whole(r.has("moe_top_k") ? "moe_top_k" : "moe_router_topk").value_or(2));
  const std::int64_t hidden = r.whole("hidden_size").value_or(1);
  const std::int64_t inner = r.whole("moe_ffn_hidden_size").value_or(inner_size(r, hidden));
  r.set("model.expert_ffn", inner);
  r.set("model.expert_bias", switched(r, "add_bias_linear", "disable_bias_linear", true));
  r.set("model.shared_ffn", r.whole("moe_shared_expert_intermediate_size", 0).value_or(0));
  r.set("model.shared_gate", r.flag("moe_use_shared_expert_gate") || r.flag("moe_shared_expert_gate"));
  r.set("model.router_bias", r.flag("moe_router_enable_expert_bias"));
  if (const auto devices = r.whole("moe_router_topk_limited_devices")) {
    // The older form of groups: one per expert-parallel rank.
    r.set("model.routing_groups", r.whole_or("expert_model_parallel_size", 1));
    r.set("model.routing_topk_groups", *devices);
  }
  if (const auto groups = r.whole("moe_router_num_groups")) r.set("model.routing_groups", *groups);
  if (const auto used = r.whole("moe_router_group_topk")) r.set("model.routing_topk_groups", *used);
  if (const auto latent = r.whole("moe_latent_size")) r.set("model.latent", *latent);
  if (r.has("moe_num_experts"))
    r.approximate("moe_num_experts",
                  "another version's name; its layers run as Megatron-Core's (--dispatcher says otherwise)");
  if (!r.has("hybrid_layer_pattern")) return read_expert_layers(r);
  if (r.text("hybrid_layer_pattern").find('E') == std::string::npos)
    r.fail("hybrid_layer_pattern", "a layer with experts (E), or no --num-experts");
}

void write_experts(const Scenario& s, Arguments& out) {
  const Architecture& a = s.model;
  if (a.experts == 0) return;
  out.emplace_back("num_experts", a.experts);
  out.emplace_back("moe_router_topk", s.topk > 0 ? s.topk : a.topk);
  out.emplace_back("moe_ffn_hidden_size", a.expert_ffn);
  if (a.shared_ffn > 0) out.emplace_back("moe_shared_expert_intermediate_size", a.shared_ffn);
  put_flag(out, a.shared_gate, "moe_use_shared_expert_gate");
  put_flag(out, a.router_bias, "moe_router_enable_expert_bias");
  if (a.routing_groups > 1) {
    out.emplace_back("moe_router_num_groups", a.routing_groups);
    out.emplace_back("moe_router_group_topk", a.routing_topk_groups);
  }
  if (a.latent > 0) out.emplace_back("moe_latent_size", a.latent);
  if (!a.ffns.empty()) {
    std::vector<std::string> ones;
    for (const char letter : a.ffns) ones.emplace_back(letter == 'E' ? "1" : "0");
    out.emplace_back("moe_layer_freq", "[" + join(ones, ",") + "]");
  } else if (a.pattern.empty() && (a.dense_layers > 0 || a.moe_every > 1))
    out.emplace_back("moe_layer_freq", layer_list_text({a.dense_layers, a.moe_every}, a.layers));
  out.emplace_back("moe_grouped_gemm", true);
}

void read_hybrid(JobReader& r) {
  const bool hybrid = r.flag("is_hybrid_model");
  const std::string pattern = hybrid_pattern(r).layers;
  if (pattern.empty()) {
    for (const char* ratio : {"hybrid_attention_ratio", "hybrid_mlp_ratio"})
      if (r.number(ratio).value_or(0) > 0) r.fail(ratio, "--hybrid-layer-pattern, which says every layer");
    if (hybrid) r.fail("is_hybrid_model", "--hybrid-layer-pattern beside it, which says every layer");
    return;
  }
  r.set("model.pattern", pattern);
  if (pattern.find('M') == std::string::npos) return;
  const std::int64_t columns = r.whole_or("mamba_head_dim", 64);
  const auto hidden = r.whole("hidden_size");
  const auto heads = r.whole("mamba_num_heads");
  r.set("model.mamba.heads", heads ? *heads : std::max<std::int64_t>(1, 2 * hidden.value_or(1) / columns));
  r.set("model.mamba.head_dim", columns);
  r.set("model.mamba.state", r.whole_or("mamba_state_dim", 128));
  r.set("model.mamba.groups", r.whole_or("mamba_num_groups", 8));
}

void write_hybrid(const Scenario& s, Arguments& out) {
  const Architecture& a = s.model;
  // Layers that the supported arguments cannot express.
  const char* other = a.linear.value_heads > 0     ? "linear attention"
                      : a.mamba.rank > 0           ? "Mamba layers of the first kind"
                      : a.attention.index_topk > 0 ? "sparse attention"
                      : a.attention.gate_dim > 0   ? "gates on the output of attention"
                      : a.windowed.heads > 0       ? "windowed layers with heads of their own"
                      : a.attention.value_dim > 0 && a.attention.kind == Attention::Kind::kGrouped
                          ? "values of another width than keys"
                      : a.residual != models::Residual{} ? "several residual streams"
                      : a.zero_experts > 0               ? "experts that compute nothing"
                      : a.attention.q_rank > 0 && a.attention.kind == Attention::Kind::kGrouped
                          ? "queries of low rank"
                      : a.convolution.taps > 0 ? "short convolutions"
                      : !a.dense_sizes.empty() ? "dense FFNs of several sizes"
                      : !a.mixers.empty() || a.pattern.find('W') != std::string::npos
                          ? "layers of several kinds in an order of their own"
                          : nullptr;
  if (other)
    throw InputError(fmt::format(
        "model: found {}, which has {}, expected layers that Megatron's arguments say", a.name, other));
  if (a.pattern.empty()) return;
  out.emplace_back("is_hybrid_model", true);
  out.emplace_back("num_layers", a.layers);
  out.emplace_back("hybrid_layer_pattern", a.pattern);
  if (a.mamba.heads == 0) return;
  out.emplace_back("mamba_num_heads", a.mamba.heads);
  out.emplace_back("mamba_head_dim", a.mamba.head_dim);
  out.emplace_back("mamba_state_dim", a.mamba.state);
  out.emplace_back("mamba_num_groups", a.mamba.groups);
}

// Reads the sizes of the job that one GPU imitates, rank by rank.
std::optional<std::int64_t> imitated_tp(JobReader& r) {
  const bool scaling = r.flag("is_scaling_mode");
  const auto rank = r.whole("exp_rank", 0), tp = r.whole("fake_tp");
  for (const char* name : {"exp_rank", "fake_tp"})
    if (!scaling && r.has(name)) r.fail(name, "--is-scaling-mode beside it");
  const std::int64_t ep = r.whole_or("expert_model_parallel_size", 1);
  if (rank && *rank >= ep) r.fail("exp_rank", fmt::format("an EP rank below {}", ep));
  return tp;
}

void read_tensor_parallel(JobReader& r) {
  const std::int64_t real = r.whole_or("tensor_model_parallel_size", 1);
  const std::optional<std::int64_t> imitated = imitated_tp(r);
  const std::int64_t tp = imitated.value_or(real);
  r.set("parallel.tp", tp);
  const bool experts = experts_of(r) > 0;
  // Default: that of the rest.
  if (experts) r.set("parallel.etp", r.whole_or("expert_tensor_parallel_size", tp));
  // The imitated job has it; its recorder switches it off.
  if (r.flag("sequence_parallel") || tp == 1 || imitated) return;
  if (experts)
    r.fail("tensor_model_parallel_size",
           "--sequence-parallel beside it: Megatron trains experts under tensor parallelism only with it");
  r.set("training.sequence_parallel", false);
}

void write_tensor_parallel(const Scenario& s, Arguments& out) {
  out.emplace_back("tensor_model_parallel_size", s.parallel.tp);
  put_flag(out, s.parallel.tp > 1 && s.training.sequence_parallel, "sequence_parallel");
  if (s.model.experts > 0) out.emplace_back("expert_tensor_parallel_size", s.parallel.etp);
}

// Returns the stages of a layout, "Et*3|(tt|)*29m|L": the number of bars plus one.
std::optional<std::int64_t> stages_of_layout(std::string_view text) {
  // One number for every part of the text between bars, repeated as the brackets are.
  std::int64_t bars = 0, inside = 0;
  bool open = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '(' && open) return std::nullopt;
    if (c == '(') open = true, inside = 0;
    if (c == '|') ++(open ? inside : bars);
    if (c != ')') continue;
    if (!open) return std::nullopt;
    open = false;
    std::int64_t times = 1;
    if (text.substr(i + 1, 1) == "*") {
      std::size_t end = i + 2;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
      const auto n = parse_int(text.substr(i + 2, end - i - 2));
      if (!n || *n < 1 || *n > (1 << 20)) return std::nullopt;
      times = *n;
    }
    bars += inside * times;
  }
  return open ? std::nullopt : std::optional(bars + (text.ends_with('|') ? 0 : 1));
}

void read_pipeline(JobReader& r) {
  const std::int64_t pp = r.whole_or("pipeline_model_parallel_size", 1);
  r.set("parallel.pp", pp);
  const auto virtual_stages = r.whole("num_virtual_stages_per_pipeline_rank");
  const auto layers_each = r.whole("num_layers_per_virtual_pipeline_stage");
  const std::string layout = r.text("pipeline_model_parallel_layout");
  std::int64_t vpp = virtual_stages.value_or(1);
  if (layers_each && pp > 1) {
    const std::int64_t layers = r.whole("num_layers").value_or(0);
    if (layers == 0 || layers % (pp * *layers_each) != 0)
      r.fail("num_layers_per_virtual_pipeline_stage",
             fmt::format("a number that divides the layers of each of {} stages", pp));
    vpp = layers / pp / *layers_each;
  }
  if (!layout.empty()) {
    const auto stages = stages_of_layout(layout);
    if (!stages || *stages % pp != 0)
      r.fail("pipeline_model_parallel_layout", fmt::format("a layout of stages for {} ranks", pp));
    vpp = *stages / pp;
    r.approximate("pipeline_model_parallel_layout",
                  "stages are cut so that the heaviest is as light as possible, not as it says");
  }
  if (const HybridPattern pattern = hybrid_pattern(r); pattern.stages > 1) {
    if (pattern.stages % pp != 0) r.fail("hybrid_layer_pattern", fmt::format("stages (|) for {} ranks", pp));
    vpp = pattern.stages / pp;
    r.approximate("hybrid_layer_pattern", "its layers are used; stages are cut as evenly as possible");
  }
  r.set("parallel.vpp", vpp);
}

void write_pipeline(const Scenario& s, Arguments& out) {
  out.emplace_back("pipeline_model_parallel_size", s.parallel.pp);
  if (s.parallel.vpp > 1) out.emplace_back("num_virtual_stages_per_pipeline_rank", s.parallel.vpp);
}

void read_batch(JobReader& r) {
  r.set("parallel.micro_batch", r.whole_or("micro_batch_size", 1));
  r.job().global_batch = r.whole("global_batch_size").value_or(0);
  if (const auto seq = r.whole("seq_length")) r.set("parallel.seq", *seq);
}

void write_batch(const Scenario& s, Arguments& out) {
  const models::Parallel& p = s.parallel;
  out.emplace_back("micro_batch_size", p.micro_batch);
  out.emplace_back("global_batch_size", p.micro_batch * p.dp * p.microbatches);
  out.emplace_back("seq_length", p.seq);
  out.emplace_back("max_position_embeddings", p.seq);
}

struct Fp8 {
  std::string_view recipe, precision;
};
constexpr std::array<Fp8, 4> kFp8{
    {{"delayed", "fp8"}, {"tensorwise", "fp8"}, {"blockwise", "fp8_block"}, {"mxfp8", "mxfp8"}}};

// Returns "bf16", "fp8", ... of the arguments; "" where they do not set it.
std::string precision_of(JobReader& r) {
  const std::string mixed = r.text("mixed_precision");
  const auto has = [&](std::string_view part) { return mixed.find(part) != std::string::npos; };
  if (!mixed.empty()) {
    if (has("nvfp4")) return "nvfp4";
    if (has("mxfp8")) return "mxfp8";
    if (has("blockwise") || has("subchannel")) return "fp8_block";
    if (has("fp8")) return "fp8";
    if (!has("bf16") && !has("fp16") && !has("16"))
      r.fail("mixed_precision", "bf16, fp16, or a recipe of fp8 or fp4");
  }
  if (!r.text("fp4").empty() || !r.text("fp4_format").empty()) return "nvfp4";
  std::string fp8 = r.text("fp8_format");
  if (fp8.empty()) fp8 = r.text("fp8");
  if (r.flag("fp8_hybrid") || r.flag("fp8_e4m3")) fp8 = "hybrid";
  if (!fp8.empty() && fp8 != "false") {
    const std::string recipe =
        r.choice("fp8_recipe", "delayed", {"delayed", "tensorwise", "blockwise", "mxfp8"});
    return std::string(std::ranges::find(kFp8, recipe, &Fp8::recipe)->precision);
  }
  if (r.flag("fp16")) r.approximate("fp16", "priced as bf16: as many bytes, and as fast");
  if (r.flag("bf16") || r.flag("fp16") || !mixed.empty()) return "bf16";
  return "";
}

void read_precision(JobReader& r) {
  const std::string precision = precision_of(r);
  if (precision.empty()) {
    if (has_model(r))
      r.fail_without("neither --bf16 nor --fp16", "one of them: training in fp32 is not modelled here");
    return;
  }
  r.flag("bf16");
  r.set("training.precision", precision);
  // Transformer Engine's attention layers run in it, too.
  if (precision == "bf16") return;
  r.set("training.fp8_attention", true);
  if (!switched(r, "fp8_wgrad", "no_fp8_wgrad", true))
    r.approximate(r.has("no_fp8_wgrad") ? "no_fp8_wgrad" : "fp8_wgrad",
                  "weight gradients, a third of all products, are of the same precision here");
}

void write_precision(const Scenario& s, Arguments& out) {
  out.emplace_back("bf16", true);
  const std::string& p = s.training.precision;
  if (p == "bf16") return;
  if (p == "nvfp4") {
    out.emplace_back("fp4_format", "e2m1");
    out.emplace_back("fp4_recipe", "nvfp4");
    return;
  }
  out.emplace_back("fp8_format", p == "fp8" ? "hybrid" : "e4m3");
  out.emplace_back("fp8_recipe", p == "fp8" ? "tensorwise" : p == "fp8_block" ? "blockwise" : "mxfp8");
}

void read_recompute(JobReader& r) {
  const std::string granularity = r.choice("recompute_granularity", "", {"full", "selective"});
  std::vector<std::string> modules = r.list("recompute_modules");
  if (granularity == "full") {
    const std::string method = r.choice("recompute_method", "uniform", {"uniform", "block"});
    const std::int64_t each = r.whole_or("recompute_num_layers", 1);
    const std::int64_t stages = r.whole_or("pipeline_model_parallel_size", 1);
    const std::int64_t own = (r.whole("num_layers").value_or(0) + stages - 1) / stages;
    if (method == "block" && each < own)
      r.fail("recompute_num_layers",
             fmt::format("all {} layers of a stage: recomputing some is not modelled here", own));
    if (method == "uniform" && each > 1)
      r.approximate("recompute_num_layers", "every layer keeps its input, not every so many-th");
    r.set("training.recompute", "full");
    return;
  }
  if (r.flag("recompute_activations") || granularity == "selective") {
    if (modules.empty()) modules = {"core_attn"};
  } else {
    modules.clear();
  }
  if (r.flag("moe_layer_recompute") && std::ranges::find(modules, "moe") == modules.end())
    modules.emplace_back("moe");
  if (modules.empty()) return;
  try {
    r.set("training.recompute", models::StepRecompute::parse(join(modules, "+")).text());
  } catch (const InputError& error) {
    r.fail("recompute_modules", std::string("other modules: ") + error.what());
  }
}

void write_recompute(const Scenario& s, Arguments& out) {
  const models::StepRecompute& c = s.training.recompute;
  if (!c.any()) return;
  out.emplace_back("recompute_granularity", c.full ? "full" : "selective");
  if (c.full) {
    out.emplace_back("recompute_method", "uniform");
    out.emplace_back("recompute_num_layers", 1);
    return;
  }
  ordered_json modules = ordered_json::array();
  const std::string text = c.text();
  for (const std::string_view name : split(text, '+')) modules.push_back(name);
  out.emplace_back("recompute_modules", std::move(modules));
}

// Muon beside a distributed optimizer is its layer-wise one, which shares out whole matrices
// (megatron/core/optimizer/optimizer_config.py); "dist_muon" is an older word for the two.
void read_sharding(JobReader& r) {
  const bool by_layers = r.text("optimizer", "adam") == "dist_muon";
  if (!by_layers) r.forget_place();
  const bool zero1 =
      r.flag("use_distributed_optimizer") || r.flag("use_layer_wise_distributed_optimizer") || by_layers;
  const bool own = r.flag("use_megatron_fsdp") || r.flag("use_custom_fsdp");
  std::string sharding = zero1 ? "zero1" : "ddp";
  if (own) {
    const std::string strategy = r.choice("data_parallel_sharding_strategy", "no_shard",
                                          {"no_shard", "optim", "optim_grads", "optim_grads_params"});
    if (strategy == "optim_grads")
      r.fail("data_parallel_sharding_strategy",
             "no_shard, optim or optim_grads_params: gradients alone are not sharded here");
    sharding = strategy == "optim_grads_params" ? "fsdp" : strategy == "optim" ? "zero1" : "ddp";
  }
  if (r.flag("use_torch_fsdp2")) {
    sharding = "fsdp";
    if (!switched(r, "torch_fsdp2_reshard_after_forward", "torch_fsdp2_no_reshard_after_forward", true))
      r.set("training.reshard_after_forward", false);
  }
  r.set("training.sharding", sharding);
}

void write_sharding(const Scenario& s, Arguments& out) {
  if (s.training.sharding == ShardingScheme::kZero1) out.emplace_back("use_distributed_optimizer", true);
  if (s.training.sharding == ShardingScheme::kFsdp) {
    out.emplace_back("use_megatron_fsdp", true);
    out.emplace_back("data_parallel_sharding_strategy", "optim_grads_params");
    out.emplace_back("use_distributed_optimizer", true);
  }
}

void read_overlap(JobReader& r) {
  r.set("training.overlap.gradients", r.flag("overlap_grad_reduce"));
  r.set("training.overlap.parameters", r.flag("overlap_param_gather"));
  r.set("training.overlap.expert_communication", r.flag("overlap_moe_expert_parallel_comm"));
  r.set("training.overlap.delayed_wgrad", r.flag("delay_wgrad_compute"));
}

void write_overlap(const Scenario& s, Arguments& out) {
  const models::StepOverlap& o = s.training.overlap;
  put_flag(out, o.gradients, "overlap_grad_reduce");
  put_flag(out, o.parameters, "overlap_param_gather");
  put_flag(out, o.expert_communication, "overlap_moe_expert_parallel_comm");
  put_flag(out, o.delayed_wgrad, "delay_wgrad_compute");
}

void read_overload_log(JobReader& r) {
  if (r.flag("log_overload_factor")) r.set("training.overload.report", "sequential");
}

void write_overload_log(const Scenario& s, Arguments& out) {
  put_flag(out, s.training.overload.report != models::OverloadLog::Report::kNone, "log_overload_factor");
}

void read_optimizer(JobReader& r) {
  if (const std::string name = r.text("optimizer", "adam"); name == "muon" || name == "dist_muon") {
    r.set("training.muon", true);
    r.set("training.newton_schulz_steps", r.whole_or("muon_num_ns_steps", 5));
    if (r.text("muon_tp_mode", "blockwise") != "blockwise")
      r.fail("muon_tp_mode", "blockwise: others gather over tensor parallelism, which is not modelled here");
    if (r.text("muon_scalar_optimizer", "adam") != "adam")
      r.fail("muon_scalar_optimizer", "adam: others are not modelled here");
  } else if (name != "adam") {
    r.fail("optimizer", "adam, muon or dist_muon: other optimizers are not modelled here");
  }
  std::string gradients = "fp32";
  if (r.flag("use_precision_aware_optimizer")) {
    const auto type = [&](const char* name) {
      std::string value = r.text(name, "fp32");
      if (value.starts_with("torch.")) value.erase(0, 6);
      return value == "float32" ? "fp32" : value == "bfloat16" ? "bf16" : value == "float16" ? "fp16" : value;
    };
    const std::string types =
        type("main_params_dtype") + "," + type("exp_avg_dtype") + "," + type("exp_avg_sq_dtype");
    try {
      r.set("training.optimizer_dtypes", models::OptimizerTypes::parse(types).text());
    } catch (const InputError& error) {
      r.fail("use_precision_aware_optimizer", error.what());
    }
    gradients = type("main_grads_dtype");
  }
  // With bf16, Megatron accumulates gradients in fp32 unless they are reduced in bf16.
  const bool half = r.flag("grad_reduce_in_bf16") || gradients == "bf16" ||
                    !r.flag("grad_reduce_in_fp32", true) ||
                    !r.flag("accumulate_allreduce_grads_in_fp32", true);
  r.set("training.gradient_bytes", half ? 2 : 4);
  if (r.flag("optimizer_cpu_offload")) {
    if (r.number("optimizer_offload_fraction").value_or(1) != 1)
      r.fail("optimizer_offload_fraction", "1: a part of it is not modelled here");
    r.set("training.offload", "optimizer");
  }
}

void write_optimizer(const Scenario& s, Arguments& out) {
  const models::TrainingPlan& t = s.training;
  out.emplace_back("optimizer", t.muon ? "muon" : "adam");
  if (t.muon) out.emplace_back("muon_num_ns_steps", t.newton_schulz_steps);
  if (t.optimizer != models::OptimizerTypes{}) {
    out.emplace_back("use_precision_aware_optimizer", true);
    const std::string text = t.optimizer.text();
    const auto parts = split(text, ',');
    out.emplace_back("main_params_dtype", parts[0]);
    out.emplace_back("exp_avg_dtype", parts[1]);
    out.emplace_back("exp_avg_sq_dtype", parts[2]);
  }
  put_flag(out, t.gradient_bytes == 2, "grad_reduce_in_bf16");
  put_flag(out, t.gradient_bytes == 4, "accumulate_allreduce_grads_in_fp32");
  put_flag(out, models::offloads_optimizer(t.offload), "optimizer_cpu_offload");
}

void read_graphs(JobReader& r) {
  std::string how = r.choice("cuda_graph_impl", "none", {"none", "local", "transformer_engine"});
  if (r.flag("external_cuda_graph")) how = "transformer_engine";
  if (r.flag("enable_cuda_graph")) how = "local";
  const std::vector<std::string> scope = r.list("cuda_graph_scope");
  if (how == "none") return;
  const bool whole = std::ranges::find(scope, "full_iteration") != scope.end();
  r.set("training.launch", whole ? "graphs" : "partial-graphs");
}

void write_graphs(const Scenario& s, Arguments& out) {
  if (s.training.launch == models::LaunchMode::kEager) return;
  const bool whole = s.training.launch == models::LaunchMode::kGraphs;
  out.emplace_back("cuda_graph_impl", whole ? "local" : "transformer_engine");
  out.emplace_back("cuda_graph_scope", whole ? "full_iteration" : "attn");
}

// Rows of an expert are padded for products with fewer bits; by the router's map, or after the exchange.
int padding_of(JobReader& r) {
  const std::string precision = precision_of(r);
  if (precision.empty() || precision == "bf16") return 0;
  return precision == "fp8" || precision == "fp8_block" ? 16 : 32;
}

void read_dispatcher(JobReader& r) {
  if (experts_of(r) == 0) return;
  const std::string type =
      r.choice("moe_token_dispatcher_type", "allgather", {"allgather", "alltoall", "alltoall_seq", "flex"});
  const bool fused = r.flag("moe_permute_fusion");
  const bool shared = r.flag("moe_shared_expert_overlap");
  const bool padded_map =
      r.flag("moe_router_padding_for_fp8") || r.flag("moe_router_padding_for_quantization");
  const auto capacity = r.number("moe_expert_capacity_factor");
  const bool filled = r.flag("moe_pad_expert_input_to_capacity");
  if (capacity.value_or(0) > 0 && type != "alltoall")
    r.fail("moe_expert_capacity_factor", "--moe-token-dispatcher-type alltoall beside it");
  const int rows = padding_of(r);
  ordered_json spec;
  if (type == "allgather") {
    spec = {{"name", "allgather"}};
  } else if (type == "alltoall") {
    spec = {{"name", "alltoall"}};
    if (capacity && *capacity > 0) spec["capacity_factor"] = *capacity;
    if (capacity && filled) spec["pad"] = true;
    if (rows > 0 && !capacity) spec[padded_map ? "pad_map" : "pad_rows"] = rows;
    if (shared) spec["shared_overlap"] = true;
  } else if (type == "alltoall_seq") {
    spec = {{"name", "alltoall-legacy"}};
  } else {
    const std::string backend = r.choice("moe_flex_dispatcher_backend", "deepep", {"deepep", "hybridep"});
    r.flag("moe_enable_deepep");
    spec = {{"name", "flex-" + backend}};
    auto sms = r.whole("moe_flex_dispatcher_num_sms");
    if (!sms) sms = r.whole(backend == "deepep" ? "moe_deepep_num_sms" : "moe_hybridep_num_sms");
    if (sms) spec["sms"] = *sms;
    if (rows > 0) spec[backend == "deepep" ? "pad_rows" : "align"] = rows;
    if (shared && backend == "deepep") spec["shared_overlap"] = true;
    if (shared && backend != "deepep")
      r.approximate("moe_shared_expert_overlap", "the shared experts stand alone");
  }
  if (!fused && (type == "allgather" || type == "alltoall")) spec["permute_fusion"] = false;
  r.set("dispatcher", spec);
  const std::string router = r.choice("moe_router_dtype", "", {"fp32", "fp64"});
  r.set("router_dtype", router.empty() ? "bf16" : router);
  // Random logits: every batch differs.
  if (r.flag("moe_router_force_load_balancing")) r.set("routing", "uniform");
  if (!r.flag("moe_grouped_gemm"))
    if (r.has("moe_grouped_gemm"))
      r.approximate("moe_grouped_gemm", "the experts' products are grouped here");
}

void write_dispatcher(const Scenario& s, Arguments& out) {
  if (s.model.experts == 0) return;
  const models::DispatcherSpec& d = s.dispatchers.front();
  const auto option = [&](const char* key) {
    const auto at = d.options.find(key);
    return at == d.options.end() ? std::string() : at->second;
  };
  const auto is_on = [&](const char* key, bool fallback) {
    const std::string text = option(key);
    return text.empty() ? fallback : text == "true" || text == "1" || text == "yes" || text == "on";
  };
  const auto named = [&](const char* type) { out.emplace_back("moe_token_dispatcher_type", type); };
  if (d.name == "allgather" || d.name == "alltoall") {
    named(d.name.c_str());
    put_flag(out, is_on("permute_fusion", true), "moe_permute_fusion");
  } else if (d.name == "alltoall-legacy") {
    named("alltoall_seq");
  } else if (d.name == "flex-deepep" || d.name == "flex-hybridep") {
    named("flex");
    out.emplace_back("moe_flex_dispatcher_backend", d.name.substr(5));
    if (const auto sms = parse_int(option("sms")))
      out.emplace_back(d.name == "flex-deepep" ? "moe_deepep_num_sms" : "moe_hybridep_num_sms", *sms);
  } else {
    throw InputError(
        fmt::format("dispatcher: found {}, which Megatron has not, expected one of its own", d.name));
  }
  if (const auto factor = parse_number(option("capacity_factor")); factor && *factor > 0)
    out.emplace_back("moe_expert_capacity_factor", *factor);
  put_flag(out, is_on("pad", false), "moe_pad_expert_input_to_capacity");
  put_flag(out, is_on("shared_overlap", false), "moe_shared_expert_overlap");
  put_flag(out, !option("pad_map").empty(), "moe_router_padding_for_fp8");
  const std::string_view router = models::name_of(s.router_dtype);
  if (router == "fp32" || router == "fp64") out.emplace_back("moe_router_dtype", router);
  put_flag(out, s.routing.text == "uniform", "moe_router_force_load_balancing");
}

void read_order(JobReader& r) {
  if (r.flag("use_tp_pp_dp_mapping")) r.set("training.rank_order", "tp-cp-ep-pp-dp");
}

void write_order(const Scenario& s, Arguments& out) {
  put_flag(out, s.training.stages_inside, "use_tp_pp_dp_mapping");
}

}  // namespace

const ArgumentTable& megatron_table() {
  static const ArgumentTable table = [] {
    ArgumentTable t;
    t.rules = {
        {{"num_layers", "hidden_size", "ffn_hidden_size", "swiglu", "quick_geglu", "squared_relu",
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
         write_attention_kernel},
        {{"num_experts", "moe_num_experts", "moe_router_topk", "moe_top_k", "moe_ffn_hidden_size",
          "moe_shared_expert_intermediate_size", "moe_use_shared_expert_gate", "moe_shared_expert_gate",
          "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk",
          "moe_router_topk_limited_devices", "moe_latent_size", "moe_layer_freq", "moe_grouped_gemm"},
         read_experts,
         write_experts},
        {{"is_hybrid_model", "hybrid_attention_ratio", "hybrid_mlp_ratio", "mamba_num_heads",
          "mamba_head_dim", "mamba_state_dim", "mamba_num_groups"},
         read_hybrid,
         write_hybrid},
        {{"tensor_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel", "is_scaling_mode",
          "fake_tp", "exp_rank"},
         read_tensor_parallel,
         write_tensor_parallel},
        {{"pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage",
          "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout"},
         read_pipeline,
         write_pipeline},
        plain(
            "context_parallel_size", "parallel.cp", [](const Scenario& s) { return s.parallel.cp; }, 1),
        plain(
            "expert_model_parallel_size", "parallel.ep", [](const Scenario& s) { return s.parallel.ep; }, 1),
        {{"micro_batch_size", "global_batch_size", "seq_length"}, read_batch, write_batch},
        {{"bf16", "fp16", "fp8_format", "fp8", "fp8_hybrid", "fp8_e4m3", "fp8_recipe", "fp4", "fp4_format",
          "mixed_precision", "fp8_wgrad", "no_fp8_wgrad"},
         read_precision,
         write_precision},
        {{"recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
          "recompute_activations", "moe_layer_recompute"},
         read_recompute,
         write_recompute},
        {{"use_distributed_optimizer", "use_layer_wise_distributed_optimizer", "use_megatron_fsdp",
          "use_custom_fsdp", "data_parallel_sharding_strategy", "use_torch_fsdp2",
          "torch_fsdp2_reshard_after_forward", "torch_fsdp2_no_reshard_after_forward"},
         read_sharding,
         write_sharding},
        {{"overlap_grad_reduce", "overlap_param_gather", "overlap_moe_expert_parallel_comm",
          "delay_wgrad_compute"},
         read_overlap,
         write_overlap},
        {{"log_overload_factor"}, read_overload_log, write_overload_log},
        {{"optimizer", "muon_num_ns_steps", "muon_tp_mode", "muon_scalar_optimizer",
          "use_precision_aware_optimizer", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype",
          "main_grads_dtype", "grad_reduce_in_bf16", "grad_reduce_in_fp32",
          "accumulate_allreduce_grads_in_fp32", "optimizer_cpu_offload", "optimizer_offload_fraction"},
         read_optimizer,
         write_optimizer},
        {{"cuda_graph_impl", "cuda_graph_scope", "enable_cuda_graph", "external_cuda_graph"},
         read_graphs,
         write_graphs},
        {{"moe_token_dispatcher_type", "moe_permute_fusion", "moe_shared_expert_overlap",
          "moe_router_padding_for_fp8", "moe_router_padding_for_quantization", "moe_expert_capacity_factor",
          "moe_pad_expert_input_to_capacity", "moe_flex_dispatcher_backend", "moe_enable_deepep",
          "moe_deepep_num_sms", "moe_hybridep_num_sms", "moe_flex_dispatcher_num_sms", "moe_router_dtype",
          "moe_router_force_load_balancing"},
         read_dispatcher,
         write_dispatcher},
        {{"use_tp_pp_dp_mapping"}, read_order, write_order},
    };
    t.aliases = {{"num_moe_experts", "num_experts"},
                 {"pad_vocab_size", "should_pad_vocab"},
                 {"hybrid_override_pattern", "hybrid_layer_pattern"},
                 {"virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"},
                 {"sequence_length", "seq_length"},
                 {"encoder_seq_length", "seq_length"},
                 {"qk_nope_head_dim", "qk_head_dim"},
                 {"qk_rope_head_dim", "qk_pos_emb_head_dim"},
                 {"num_mtp_predictor", "mtp_num_layers"},
                 {"model_parallel_size", "tensor_model_parallel_size"},
                 {"moe_capacity_factor", "moe_expert_capacity_factor"},
                 {"moe_router_pad_for_fp8", "moe_router_padding_for_fp8"}};
    t.irrelevant = megatron_irrelevant();
    t.approximated = megatron_approximated();
    t.refused = megatron_refused();
    return t;
  }();
  return table;
}

}  // namespace moesim::tools

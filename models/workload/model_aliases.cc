#include "models/workload/model_aliases.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "models/workload/architecture.h"

namespace moesim::models {

namespace {

struct Alias {
  std::string_view letters, model;
};
// Its config.json; "mtp_layers": a block of attention and one of experts.
constexpr std::string_view kNemotron3Ultra =
    R"({"name": "nemotron-3-ultra", "hidden": 8192, "layers": 108, "vocabulary": 131072, "experts": 512, "topk": 22,
        "expert_ffn": 5120, "shared_ffn": 10240, "latent": 2048, "gated": false, "router_bias": true, "mtp_layers": 1,
        "pattern": "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "mamba": {"heads": 256}, "attention": {"heads": 64, "kv_heads": 2, "head_dim": 128}})";

constexpr std::array<Alias, 47> kAliases{{
    {"moonlight", "moonlight-16b-a3b"},
    {"moonlight16b", "moonlight-16b-a3b"},
    {"mixtral8x7b", "mixtral-8x7b"},
    {"mixtral8x22b", "mixtral-8x22b"},
    {"llama38x70b", "llama3-8x70b"},
    {"qwen257b", "qwen2-57b-a14b"},
    {"qwen330b", "qwen3-30b-a3b"},
    {"qwen3235b", "qwen3-235b-a22b"},
    {"deepseekv316b", "deepseek-v2-lite"},  // torchtitan's test sizes
    {"deepseekv3236b", "deepseek-v2"},
    {"deepseekv3671b", "deepseek-v3"},
    {"deepseekv2lite", "deepseek-v2-lite"},
    {"deepseekv2", "deepseek-v2"},
    {"deepseekv3", "deepseek-v3"},
    {"deepseekmoe16b", "deepseek-moe-16b"},
    {"kimik2", "kimi-k2"},
    {"kimik2base", "kimi-k2"},
    {"gptoss120b", "gpt-oss-120b"},
    {"gptoss20b", "gpt-oss-20b"},
    {"nemotron3nano", "nemotron-3-nano"},
    {"nemotron3nano30b", "nemotron-3-nano"},
    {"nemotron3nano30ba3b", "nemotron-3-nano"},
    {"nemotron3super", "nemotron-3-super"},
    {"nemotron3super120b", "nemotron-3-super"},
    {"nemotron3super120ba12b", "nemotron-3-super"},
    {"hunyuanlarge", "hunyuan-large"},
    {"phi35moe", "phi-3.5-moe"},
    {"llama4scout", "llama4-scout"},
    {"llama4maverick", "llama4-maverick"},
    {"dbrx", "dbrx"},
    {"olmoe", "olmoe"},
    {"olmoe1b7b", "olmoe"},
    // arXiv 2407.21783, table 3
    {"llama38b",
     R"({"name": "llama-3-8b", "hidden": 4096, "layers": 32, "dense_layers": 32, "dense_ffn": 14336,
         "experts": 0, "topk": 0, "expert_ffn": 0, "vocabulary": 128256,
         "attention": {"heads": 32, "kv_heads": 8, "head_dim": 128}})"},
    {"llama370b",
     R"({"name": "llama-3-70b", "hidden": 8192, "layers": 80, "dense_layers": 80, "dense_ffn": 28672,
         "experts": 0, "topk": 0, "expert_ffn": 0, "vocabulary": 128256,
         "attention": {"heads": 64, "kv_heads": 8, "head_dim": 128}})"},
    {"llama3405b",
     R"({"name": "llama-3-405b", "hidden": 16384, "layers": 126, "dense_layers": 126, "dense_ffn": 53248,
         "experts": 0, "topk": 0, "expert_ffn": 0, "vocabulary": 128256,
         "attention": {"heads": 128, "kv_heads": 8, "head_dim": 128}})"},
    // deepseek-ai/DeepSeek-V4-Flash and -Pro
    {"deepseekv4flash",
     R"({"name": "deepseek-v4-flash", "hidden": 4096, "layers": 43, "vocabulary": 129280, "experts": 256, "topk": 6,
         "expert_ffn": 2048, "shared_ffn": 2048, "router_bias": true, "mtp_layers": 1,
         "mixers": "WWSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHS",
         "residual": {"kind": "hyper", "streams": 4},
         "attention": {"heads": 64, "kv_heads": 1, "head_dim": 512, "shared_values": true, "sinks": true,
         "q_rank": 1024, "output_groups": 8, "output_rank": 1024, "window": 128, "compress": 4,
         "compress_all": 128, "index_heads": 64, "index_dim": 128, "index_topk": 512}})"},
    {"deepseekv4pro",
     R"({"name": "deepseek-v4-pro", "hidden": 7168, "layers": 61, "vocabulary": 129280, "experts": 384, "topk": 6,
         "expert_ffn": 3072, "shared_ffn": 3072, "router_bias": true, "mtp_layers": 1,
         "mixers": "HHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHSHS",
         "residual": {"kind": "hyper", "streams": 4},
         "attention": {"heads": 128, "kv_heads": 1, "head_dim": 512, "shared_values": true, "sinks": true,
         "q_rank": 1536, "output_groups": 16, "output_rank": 1024, "window": 128, "compress": 4,
         "compress_all": 128, "index_heads": 64, "index_dim": 128, "index_topk": 1024}})"},
    // zai-org/GLM-5.3-Flash
    {"glm53flash",
     R"({"name": "glm-5.3-flash", "hidden": 4096, "layers": 45, "vocabulary": 154880, "experts": 288, "topk": 8,
         "expert_ffn": 2048, "shared_ffn": 2048, "dense_layers": 3, "dense_ffn": 12288, "mtp_layers": 1,
         "mixers": "LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*L", "residual": {"kind": "hyper", "streams": 4},
         "embedding_active": false, "head_active": false,
         "linear_attention": {"kind": "kimi_delta", "key_heads": 64, "value_heads": 64, "key_dim": 128,
         "value_dim": 128, "conv": 4, "gate_rank": 128},
         "attention": {"kind": "latent", "heads": 64, "q_rank": 1536, "kv_rank": 512, "nope_dim": 256,
         "rope_dim": 0, "value_dim": 256, "index_heads": 32, "index_dim": 128, "index_topk": 2048,
         "index_block": 4, "index_pooled": true}})"},
    // MiniMaxAI/MiniMax-M3
    {"minimaxm3",
     R"({"name": "minimax-m3", "hidden": 6144, "layers": 60, "vocabulary": 200064, "experts": 128, "topk": 4,
         "expert_ffn": 3072, "shared_ffn": 3072, "dense_layers": 3, "dense_ffn": 12288, "mtp_layers": 1,
         "mixers": "FFF*********************************************************",
         "embedding_active": false, "head_active": false,
         "attention": {"heads": 64, "kv_heads": 4, "head_dim": 128, "qk_norm": true, "index_heads": 4,
         "index_dim": 128, "index_topk": 2048, "index_block": 128}})"},
    // zai-org/GLM-5.2
    {"glm52",
     R"({"name": "glm-5.2", "hidden": 6144, "layers": 78, "vocabulary": 154880, "experts": 256, "topk": 8,
         "expert_ffn": 2048, "shared_ffn": 2048, "dense_layers": 3, "dense_ffn": 12288, "mtp_layers": 1,
         "mixers": "***III*III*III*III*III*III*III*III*III*III*III*III*III*III*III*III*III*III*III",
         "embedding_active": false, "head_active": false,
         "attention": {"kind": "latent", "heads": 64, "q_rank": 2048, "kv_rank": 512, "nope_dim": 192,
         "rope_dim": 64, "value_dim": 256, "index_heads": 32, "index_dim": 128, "index_topk": 2048}})"},
    // moonshotai/Kimi-K3
    {"kimik3",
     R"({"name": "kimi-k3", "hidden": 7168, "layers": 93, "vocabulary": 163840, "experts": 896, "topk": 16,
         "expert_ffn": 3072, "shared_ffn": 6144, "latent": 3584, "dense_layers": 1, "dense_ffn": 33792,
         "mixers": "LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL*LLL**",
         "residual": {"kind": "groups", "layers": 12},
         "linear_attention": {"kind": "kimi_delta", "key_heads": 96, "value_heads": 96, "key_dim": 128,
         "value_dim": 128, "conv": 4},
         "attention": {"kind": "latent", "heads": 96, "q_rank": 1536, "kv_rank": 512, "nope_dim": 128,
         "rope_dim": 64, "value_dim": 128, "gate_dim": 128}})"},
    // nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16
    {"nemotron3ultra", kNemotron3Ultra},
    {"nemotron3ultra550b", kNemotron3Ultra},
    {"nemotron3ultra550ba55b", kNemotron3Ultra},
    // nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B has the columns, layers and total of Nemotron 3 Nano.
    {"nemotron35lightning", "nemotron-3-nano"},
    {"nemotron35lightning30ba3b", "nemotron-3-nano"},
    // arXiv 2505.11432, table 2. One shared expert: with it the sizes give 352 B parameters (341 B without)
    // and the 282 GFLOP a token of the published MFU (219 without).
    {"internal352b",
     R"({"base": "mixtral-8x7b", "name": "internal-352b", "layers": 60, "experts": 32, "topk": 3,
         "expert_ffn": 14336, "shared_ffn": 14336, "vocabulary": 65536})"},
}};

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text)
    if (is_letter(c)) letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// Returns whether the name is these letters without a suffix that makes another name.
bool means(std::string_view name, std::string_view letters, NameMatch match) {
  std::size_t at = 0;
  for (const char c : letters) {
    while (at < name.size() && !is_letter(name[at])) ++at;
    if (at == name.size() || std::tolower(static_cast<unsigned char>(name[at])) != c) return false;
    ++at;
  }
  if (match == NameMatch::kWhole)
    return std::none_of(name.begin() + static_cast<long>(at), name.end(), is_letter);
  return at == name.size() || (!is_letter(name[at]) && name[at] != '.');
}

}  // namespace

std::optional<std::string> model_called(std::string_view name, NameMatch match) {
  // Control characters and similar never occur in a name.
  const auto usual = [](char c) {
    return is_letter(c) || std::string_view(" -_.,:()+/").find(c) != std::string_view::npos;
  };
  if (!std::ranges::all_of(name, usual)) return std::nullopt;
  std::string best;
  std::size_t longest = 0;
  const auto ask = [&](std::string_view letters, std::string_view model) {
    if (letters.size() > longest && means(name, letters, match)) best = model, longest = letters.size();
  };
  for (const std::string& built_in : Architecture::names()) ask(letters_of(built_in), built_in);
  for (const Alias& alias : kAliases) ask(alias.letters, alias.model);
  return longest > 0 ? std::optional(best) : std::nullopt;
}

}  // namespace moesim::models

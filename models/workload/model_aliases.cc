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
constexpr std::array<Alias, 36> kAliases{{
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

// Whether the name is these letters, and nothing follows them that makes another name.
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
  // Control characters and the like are of no name.
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

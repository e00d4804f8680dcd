#include "calibration/training/training_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/input_error.h"
#include "base/text.h"
#include "models/workload/model_config.h"

namespace moesim::calibration {

namespace {

using models::Architecture;

std::string plain(std::string_view text) {
  std::string letters;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// Names of published tables against built-in models; the first one that the letters of a name start with.
struct Alias {
  std::string_view letters, model;
};
constexpr std::array<Alias, 25> kAliases{{{"moonlight16b", "moonlight-16b-a3b"},
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
                                          {"gptoss120b", "gpt-oss-120b"},
                                          {"gptoss20b", "gpt-oss-20b"},
                                          {"nemotron3nano", "nemotron-3-nano"},
                                          {"nemotron3super", "nemotron-3-super"},
                                          {"hunyuanlarge", "hunyuan-large"},
                                          {"phi35moe", "phi-3.5-moe"},
                                          {"llama4scout", "llama4-scout"},
                                          {"llama4maverick", "llama4-maverick"},
                                          {"dbrx", "dbrx"},
                                          {"olmoe", "olmoe"}}};

// "GRUG MoE d5120 L48 e256 top8 i1280 + shared 5120": width, layers, experts, top-k, width of an expert, of
// the shared expert; "dense 8192": one leading layer with an FFN of that width.
std::optional<Architecture> model_of_sizes(const std::string& name, std::vector<std::string>& assumptions) {
  Architecture a;
  std::string_view before;
  for (const std::string_view word : split(name, ' ')) {
    const auto after = [&](std::string_view letters) -> std::int64_t {
      if (!word.starts_with(letters)) return 0;
      return std::max(0LL, parse_int(word.substr(letters.size())).value_or(0));
    };
    if (const std::int64_t d = after("d")) a.hidden = d;
    if (const std::int64_t layers = after("L")) a.layers = layers;
    if (const std::int64_t experts = after("e")) a.experts = experts;
    if (const std::int64_t topk = after("top")) a.topk = topk;
    if (const std::int64_t width = after("i")) a.expert_ffn = width;
    if (before == "shared") a.shared_ffn = after("");
    if (before == "dense") a.dense_ffn = after("");
    before = word;
  }
  constexpr std::int64_t kHead = 128, kVocabulary = 128256;
  if (a.hidden < kHead || a.hidden % kHead != 0 || a.layers == 0 || a.experts == 0 || a.topk == 0 ||
      a.expert_ffn == 0)
    return std::nullopt;
  for (const std::int64_t size :
       {a.hidden, a.layers, a.experts, a.topk, a.expert_ffn, a.shared_ffn, a.dense_ffn})
    if (size > models::kMaxModelSize)
      throw InputError(fmt::format("model {}: found {}, expected at most 2^31", in_quotes(name), size));
  a.name = name;
  a.vocabulary = kVocabulary;
  a.dense_layers = a.dense_ffn > 0 ? 1 : 0;
  a.attention.heads = a.hidden / kHead;
  a.attention.kv_heads = a.attention.heads % 4 == 0 ? a.attention.heads / 4 : a.attention.heads;
  a.attention.head_dim = kHead;
  assumptions.push_back(fmt::format("{} heads of {} with {} for keys and values, a vocabulary of {}",
                                    a.attention.heads, kHead, a.attention.kv_heads, kVocabulary));
  return a;
}

// Llama 3 (arXiv 2407.21783, table 3), which has no experts and so is no built-in model.
struct DenseModel {
  std::string_view letters;
  std::int64_t hidden, layers, heads, ffn;
};
constexpr std::array<DenseModel, 3> kDenseModels{{{"llama38b", 4096, 32, 32, 14336},
                                                  {"llama370b", 8192, 80, 64, 28672},
                                                  {"llama3405b", 16384, 126, 128, 53248}}};

}  // namespace

std::optional<Architecture> dense_model(const std::string& name) {
  const std::string letters = plain(name);
  for (const DenseModel& m : kDenseModels) {
    if (letters != m.letters) continue;
    Architecture a;
    a.name = m.letters;
    a.hidden = m.hidden, a.layers = m.layers, a.vocabulary = 128256;
    a.attention.heads = m.heads, a.attention.kv_heads = 8, a.attention.head_dim = 128;
    a.dense_ffn = m.ffn, a.dense_layers = m.layers;
    return a;
  }
  return std::nullopt;
}

std::optional<Architecture> training_model(const std::string& name, const std::string& source,
                                           std::vector<std::string>& assumptions) {
  const std::string letters = plain(name);
  Architecture a;
  if (letters.starts_with("internal352b")) {  // arXiv 2505.11432, table 2
    a = Architecture::load("mixtral-8x7b");
    a.name = "internal-352b";
    a.layers = 60, a.experts = 32, a.topk = 3, a.expert_ffn = 14336, a.vocabulary = 65536;
    // One shared expert: with it the sizes give 352 B parameters (341 B without) and the 282 GFLOP a token of
    // the published MFU (219 without).
    a.shared_ffn = 14336;
    return a;
  }
  for (const Alias& alias : kAliases)
    if (letters.starts_with(alias.letters)) {
      a = Architecture::load(std::string(alias.model));
      break;
    }
  if (a.name.empty()) {
    const auto names = Architecture::names();
    if (std::find(names.begin(), names.end(), name) == names.end()) return model_of_sizes(name, assumptions);
    a = Architecture::load(name);
  }
  if (letters.find("g8t8") != std::string::npos) {  // arXiv 2504.14960: every expert cut into eight
    a.name += "-g8t8";
    a.experts = 64, a.topk = 8, a.expert_ffn = 2048;
  }
  if (source.find("2505.11432") !=
      std::string::npos) {  // table 2 there: no shared experts, every layer the same
    a.vocabulary = 65536;
    a.shared_ffn = 0;
    a.dense_layers = 0;
  }
  return a;
}

}  // namespace moesim::calibration

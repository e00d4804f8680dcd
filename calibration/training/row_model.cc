#include "calibration/training/row_model.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "models/workload/architecture.h"
#include "models/workload/model_aliases.h"
#include "models/workload/model_config.h"

namespace moesim::calibration {

namespace {

using nlohmann::json;

// "GRUG MoE d5120 L48 e256 top8 i1280 + shared 5120": width, layers, experts, top-k, width of an expert, of
// the shared expert; "dense 8192": one leading layer with an FFN of that width.
std::optional<json> model_of_sizes(const std::string& name, std::vector<std::string>& assumptions) {
  constexpr std::int64_t kHead = 128, kVocabulary = 128256;
  json model{{"name", name}, {"vocabulary", kVocabulary}};
  std::string_view before;
  for (const std::string_view word : split(name, ' ')) {
    const auto read = [&](const char* key, std::string_view letters) {
      if (!word.starts_with(letters)) return;
      const std::int64_t size = std::max(0LL, parse_int(word.substr(letters.size())).value_or(0));
      if (size > models::kMaxModelSize)
        throw InputError(fmt::format("model {}: found {}, expected at most 2^31", in_quotes(name), size));
      if (size > 0) model[key] = size;
    };
    read("hidden", "d"), read("layers", "L"), read("experts", "e"), read("topk", "top");
    read("expert_ffn", "i");
    if (before == "shared") read("shared_ffn", "");
    if (before == "dense") read("dense_ffn", "");
    before = word;
  }
  for (const char* key : {"hidden", "layers", "experts", "topk", "expert_ffn"})
    if (!model.contains(key)) return std::nullopt;
  const std::int64_t heads = model["hidden"].get<std::int64_t>() / kHead;
  if (heads == 0 || model["hidden"] != heads * kHead) return std::nullopt;
  if (model.contains("dense_ffn")) model["dense_layers"] = 1;
  const std::int64_t keys = heads % 4 == 0 ? heads / 4 : heads;
  model["attention"] = {{"heads", heads}, {"kv_heads", keys}, {"head_dim", kHead}};
  assumptions.push_back(fmt::format("{} heads of {} with {} for keys and values, a vocabulary of {}", heads,
                                    kHead, keys, kVocabulary));
  return model;
}

}  // namespace

std::optional<json> row_model(const std::string& name, std::string_view source,
                              std::vector<std::string>& assumptions) {
  const auto known = models::model_called(name, models::NameMatch::kRemark);
  if (!known) return model_of_sizes(name, assumptions);
  json model = known->starts_with('{') ? json::parse(*known) : json(*known);
  const auto change = [&](const json& keys) {
    if (model.is_string()) model = {{"base", model}};
    model.update(keys);
  };
  // arXiv 2504.14960: every expert cut into eight.
  if (name.find("G8T8") != std::string::npos)
    change({{"name", *known + "-g8t8"}, {"experts", 64}, {"topk", 8}, {"expert_ffn", 2048}});
  // Table 2 there: no shared experts, every layer the same.
  if (model.is_string() && source.find("2505.11432") != std::string_view::npos)
    change({{"vocabulary", 65536}, {"shared_ffn", 0}, {"dense_layers", 0}});
  if (name.find("without MTP") != std::string::npos) change({{"mtp_layers", 0}});
  return model;
}

}  // namespace moesim::calibration

// What the words of published tables mean: names of models, and notes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/architecture.h"
#include "models/workload/model_config.h"
#include "models/workload/model_names.h"
#include "tools/moesim/validation/rows.h"

namespace moesim::tools {

namespace {

using nlohmann::json;

// Returns the inner size of an expert that gives a model the stated numbers of total and active parameters
// ("about 250B total, 15.95B active"): a multiple of 128 that meets both within 2 %. 0: none.
std::int64_t expert_width_of(const json& model, double total, double active) {
  constexpr std::int64_t kStep = 128, kMost = 1 << 16;
  for (std::int64_t width = kStep; width <= kMost; width += kStep) {
    json sized = model;
    sized["expert_ffn"] = width;
    const models::Architecture a = models::Architecture::parse(JsonNode::from_json(sized, ""));
    const auto off = [](std::int64_t count, double billions) {
      return std::abs(static_cast<double>(count) * 1e-9 / billions - 1);
    };
    if (off(a.parameters(), total) < 0.02 && off(a.active_parameters(), active) < 0.02) return width;
  }
  return 0;
}

// Returns 80 for "80B" before a word; 0 without one.
double billions_before(const std::string& name, std::string_view word) {
  const std::size_t at = name.find(word);
  if (at == std::string::npos) return 0;
  const std::vector<std::string_view> words = split(std::string_view(name).substr(0, at), ' ');
  for (auto w = words.rbegin(); w != words.rend(); ++w) {
    std::string_view text = *w;
    if (text.empty()) continue;
    if (text.front() == '(') text.remove_prefix(1);
    if (text.back() != 'B') return 0;
    return parse_number(text.substr(0, text.size() - 1)).value_or(0);
  }
  return 0;
}

// "GRUG MoE d5120 L48 e256 top8 i1280 + shared 5120": width, layers, experts, top-k, width of an expert, of
// the shared expert; "dense 8192": one leading layer with an FFN of that width.
std::optional<json> model_of_sizes(const std::string& name, std::string_view source,
                                   std::vector<std::string>& assumptions) {
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
  for (const char* key : {"hidden", "layers", "experts", "topk"})
    if (!model.contains(key)) return std::nullopt;
  const double total = billions_before(name, "total"), active = billions_before(name, "active");
  if (!model.contains("expert_ffn") && (total <= 0 || active <= 0)) return std::nullopt;
  const std::int64_t heads = model["hidden"].get<std::int64_t>() / kHead;
  if (heads == 0 || model["hidden"] != heads * kHead) return std::nullopt;
  if (model.contains("dense_ffn")) model["dense_layers"] = 1;
  const std::int64_t keys = heads % 4 == 0 ? heads / 4 : heads;
  model["attention"] = {{"heads", heads}, {"kv_heads", keys}, {"head_dim", kHead}};
  // marin-community/marin issues 7668 and 7201: three of four layers see 2,048 tokens; 7670: 512.
  if (name.starts_with("GRUG")) {
    const bool short_window = source.find("#7670") != std::string_view::npos;
    model["attention"].update({{"window", short_window ? 512 : 2048}, {"window_every", 4}});
  }
  if (!model.contains("expert_ffn")) {
    const std::int64_t width = expert_width_of(model, total, active);
    if (width == 0) return std::nullopt;
    model["expert_ffn"] = width;
    assumptions.push_back(fmt::format(
        "experts of {}, with which it has {:g} B parameters, {:g} B of them active", width, total, active));
  }
  assumptions.push_back(fmt::format("{} heads of {} with {} for keys and values, a vocabulary of {}", heads,
                                    kHead, keys, kVocabulary));
  return model;
}

// Words of notes, longer ones before shorter ones of the same path: the first match decides.
struct Phrase {
  std::string_view words, path, value;
};
constexpr std::array<Phrase, 25> kPhrases{{
    {"recompute norm, act", "training.recompute", "layernorm+moe_act"},
    {"recompute mlp", "training.recompute", "mlp"},
    {"full recomputation", "training.recompute", "full"},
    {"activation checkpointing", "training.recompute", "full"},
    {"no recomputation", "training.recompute", "none"},
    {"no recompute", "training.recompute", "none"},
    {"recomputation off", "training.recompute", "none"},
    {"full-iteration graphs", "training.launch", "graphs"},
    {"no expert-communication overlap", "training.overlap.expert_communication", "false"},
    {"no overlap of communication", "training.overlap.expert_communication", "false"},
    {"A2A overlap", "training.overlap.expert_communication", "true"},
    {"all-to-all overlap", "training.overlap.expert_communication", "true"},
    {"expert-parallel overlap", "training.overlap.expert_communication", "true"},
    {"expert communication overlapped", "training.overlap.expert_communication", "true"},
    {"eight gradients delayed", "training.overlap.delayed_wgrad", "true"},
    {"FSDP2", "training.sharding", "fsdp"},
    {"ZeRO-2 kept parameters", "training.reshard_after_forward", "false"},
    {"without the fused linear cross entropy", "training.loss", "fp32"},
    {"fused linear cross entropy", "training.loss", "chunked"},
    {"loss chunks", "training.loss", "chunked"},
    {"compiled cross entropy", "training.loss", "fused"},
    {"eager cross entropy", "training.loss", "eager"},
    {"attention in FP8", "training.fp8_attention", "true"},
    {"FP8 attention", "training.fp8_attention", "true"},
    {"on attention (base weights frozen", "training.lora_modules", "attention"},
}};

struct Size {
  std::string_view letters, path;
};
constexpr std::array<Size, 8> kSizes{{{"TP", "parallel.tp"},
                                      {"PP", "parallel.pp"},
                                      {"CP", "parallel.cp"},
                                      {"EP", "parallel.ep"},
                                      {"ETP", "parallel.etp"},
                                      {"VPP", "parallel.vpp"},
                                      {"mbs", "parallel.micro_batch"},
                                      {"LoRA rank", "training.lora"}}};

// Returns the integer of "EP8" or "EP 8"; nullopt for none or a range.
std::optional<std::int64_t> size_after(std::string_view text, std::string_view letters) {
  for (std::size_t at = text.find(letters); at != std::string_view::npos; at = text.find(letters, at + 1)) {
    if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1]))) continue;
    std::string_view rest = text.substr(at + letters.size());
    if (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (end == 0 || (end < rest.size() && (rest[end] == '-' || rest[end] == '.'))) continue;
    return parse_int(rest.substr(0, end));
  }
  return std::nullopt;
}

}  // namespace

void shorten_model(json& model, std::int64_t layers) {
  if (model.is_string()) model = {{"base", model}};
  model["layers"] = layers;
  if (model.contains("mixers"))
    model["mixers"] = model["mixers"].get<std::string>().substr(0, static_cast<std::size_t>(layers));
}

std::optional<json> row_model(const std::string& name, std::string_view source,
                              std::vector<std::string>& assumptions) {
  const auto known = models::model_called(name, models::NameMatch::kRemark);
  if (!known) return model_of_sizes(name, source, assumptions);
  json model = known->starts_with('{') ? json::parse(*known) : json(*known);
  const auto change = [&](const json& keys) {
    if (model.is_string()) model = {{"base", model}};
    model.update(keys);
  };
  // arXiv 2504.14960: every expert split into eight.
  if (name.find("G8T8") != std::string::npos)
    change({{"name", *known + "-g8t8"}, {"experts", 64}, {"topk", 8}, {"expert_ffn", 2048}});
  // Table 2 there: no shared experts, all layers equal.
  if (model.is_string() && source.find("2505.11432") != std::string_view::npos)
    change({{"vocabulary", 65536}, {"shared_ffn", 0}, {"dense_layers", 0}});
  // "DeepSeek-V3 style MoE cut to 12 layers"
  if (const std::size_t cut = name.find("cut to "); cut != std::string::npos) {
    const std::vector<std::string_view> words = split(std::string_view(name).substr(cut), ' ');
    const auto count =
        words.size() > 3 && words[3].starts_with("layers") ? parse_int(words[2]) : std::nullopt;
    if (!count || *count < 1) return std::nullopt;
    shorten_model(model, *count);
  }
  if (name.find("without MTP") != std::string::npos) change({{"mtp_layers", 0}});
  return model;
}

std::vector<RowSetting> settings_of_note(std::string_view note) {
  std::vector<RowSetting> all;
  for (const auto& [words, path, value] : kPhrases) {
    if (note.find(words) == std::string_view::npos) continue;
    if (std::ranges::find(all, path, &RowSetting::path) != all.end()) continue;
    all.push_back({std::string(path), value == "true"    ? nlohmann::json(true)
                                      : value == "false" ? nlohmann::json(false)
                                                         : nlohmann::json(value)});
  }
  for (const auto& [letters, path] : kSizes)
    if (const auto size = size_after(note, letters); size && *size > 0)
      all.push_back({std::string(path), *size});
  return all;
}

}  // namespace moesim::tools

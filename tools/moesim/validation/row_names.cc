// What the words of published tables mean: names of models, and notes.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/embedded_profiles.h"
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

// Whether a pattern of row_words.json is, begins (^) or is all of (=) a text.
bool fits(std::string_view pattern, std::string_view text) {
  if (pattern.starts_with('=')) return text == pattern.substr(1);
  return pattern.starts_with('^') ? text.starts_with(pattern.substr(1))
                                  : text.find(pattern) != std::string_view::npos;
}

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

const json& row_words() {
  static const json all = json::parse(models::embedded_table("row_words"));
  return all;
}

std::string meaning(const char* column, std::string_view text) {
  for (const json& one : row_words().at(column))
    if (fits(one[0].get<std::string_view>(), text)) return one[1];
  return "";
}

std::vector<RowSetting> settings_of(const char* column, std::string_view text) {
  std::vector<RowSetting> all;
  for (const json& one : row_words().at("settings").at(column))
    if (const std::string path = one[1]; fits(one[0].get<std::string_view>(), text) &&
                                         std::ranges::find(all, path, &RowSetting::path) == all.end())
      all.push_back({path, one[2]});
  return all;
}

std::vector<RowSetting> settings_of_note(std::string_view note) {
  std::vector<RowSetting> all = settings_of("note", note);
  for (const json& one : row_words().at("note_sizes"))
    if (const auto size = size_after(note, one[0].get<std::string_view>()); size && *size > 0)
      all.push_back({one[1], *size});
  return all;
}

}  // namespace moesim::tools

// Models by name (models.json), and from files of any format.
#include "models/workload/model_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/embedded_profiles.h"
#include "models/workload/model_config.h"
#include "models/workload/model_json.h"

namespace moesim::models {

namespace {

// A model of models.json.
struct Named {
  std::vector<std::string> names;
  JsonNode model;
  bool built_in;
};

const std::vector<Named>& named_models() {
  static const std::vector<Named> all = [] {
    std::vector<Named> list;
    JsonObject file(JsonNode::parse(embedded_table("models"), "models.json"));
    file.string("about", "");
    for (const char* part : {"built_in", "known"})
      for (const JsonNode& node : file.at(part).items()) {
        JsonObject row(node);
        row.at("from");
        const JsonNode model = row.at("model");
        Named& one = list.emplace_back(
            Named{{model.find("name")->string()}, model, part == std::string_view("built_in")});
        if (const auto also = row.find("also"))
          for (const JsonNode& name : also->items()) one.names.push_back(name.string());
        row.finish();
      }
    file.finish();
    return list;
  }();
  return all;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Returns the letters and digits in lower case; "." stands between two numbers ("Qwen2.5-7B" is not "Qwen2-57B").
std::string letters_of(std::string_view text) {
  std::string letters;
  bool apart = false;
  for (const char c : text) {
    if (is_letter(c)) {
      if (apart && !letters.empty() && is_digit(letters.back()) && is_digit(c)) letters += '.';
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    apart = !is_letter(c);
  }
  return letters;
}

// Returns whether the name is these letters without a suffix that makes another name.
bool means(std::string_view name, std::string_view letters, NameMatch match) {
  const std::string own = letters_of(name);
  if (match == NameMatch::kWhole || !own.starts_with(letters)) return own == letters;
  // Where the letters end in the name: a word that goes on, or a version after a dot, is another name.
  std::size_t at = 0;
  for (const char c : letters) {
    while (!is_letter(name[at])) ++at;
    if (c != '.') ++at;
  }
  return at == name.size() || (!is_letter(name[at]) && name[at] != '.');
}

// Returns "; left out: vision_config, 27 layers of 1152 columns with about 0.41 B parameters" for the encoders of
// other data than text: four products of attention and two of an FFN a layer, three where it has a gate. ""
// without any.
std::string without_towers(const JsonNode& node) {
  std::string text;
  for (const char* key : {"vision_config", "audio_config", "vision_tower"}) {
    const auto tower = node.find(key);
    if (!tower || !tower->is_object() || tower->size() == 0) continue;
    const ModelConfig part(*tower);
    const auto size = [&](ModelConfig::Keys keys) -> double {
      const auto value = part.find(keys);
      return value && value->is_integer() ? static_cast<double>(value->integer()) : 0;
    };
    const double layers = size({"depth", "num_hidden_layers", "vt_num_hidden_layers"}),
                 columns = size({"hidden_size", "vt_hidden_size"}),
                 inner = size({"intermediate_size", "vt_intermediate_size"}),
                 products = part.text("hidden_act") == "silu" ? 3 : 2;
    text += (text.empty() ? "; left out: " : ", ") + std::string(key);
    if (layers <= 0 || columns <= 0 || inner <= 0) continue;
    text += fmt::format(", {:.0f} layers of {:.0f} columns with about {:.2g} B parameters", layers, columns,
                        layers * columns * (4 * columns + products * inner) * 1e-9);
  }
  return text;
}

// Replaces numbers of Hugging Face that JSON lacks by equally long JSON numbers, so that places stay.
std::string with_json_numbers(std::string text) {
  constexpr std::string_view kInfinity = "Infinity", kLarge = "1.0e+308";
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      inside = !inside;
    } else if (!inside && std::string_view(text).substr(i).starts_with(kInfinity)) {
      text.replace(i, kInfinity.size(), kLarge);
    }
  }
  return text;
}

// Returns the default name of a model: its file's, or that of the folder of a config.json.
std::string name_of_file(const std::filesystem::path& file) {
  if (file.filename() != "config.json") return file.stem().string();
  const std::string folder =
      std::filesystem::absolute(file).lexically_normal().parent_path().filename().string();
  return folder.empty() ? file.stem().string() : folder;
}

Architecture parse_based(const JsonNode& node, const std::string& name) {
  const auto base = node.find("base");
  if (!base || base->is_null()) return parse_own(node, name, nullptr);
  const auto& all = builtin_architectures();
  const auto found = std::ranges::find(all, base->string(), &Architecture::name);
  if (found == all.end()) {
    const std::vector<std::string> names(Architecture::names().begin(), Architecture::names().end());
    base->fail(base->describe(), "a built-in model" + did_you_mean(base->string(), names));
  }
  return parse_own(node, name, &*found);
}

// Reads a file in which `family` is that of the whole where the part of the language model names none.
Architecture parse_object(const JsonNode& node, const std::string& name, std::string family) {
  if (const auto type = node.find("model_type"); type && type->is_string()) family = type->string();
  // Multimodal checkpoints nest the language model.
  for (const char* part : {"text_config", "language_config", "llm_config", "thinker_config"})
    if (const auto text = node.find(part); text && text->is_object()) {
      Architecture a = parse_object(*text, name, family);
      // The outer config supplies the key where the part lacks it.
      if (const auto tied = node.find("tie_word_embeddings");
          tied && tied->is_boolean() && !text->find("tie_word_embeddings"))
        a.tied_embeddings = tied->boolean();
      a.remarks.push_back(fmt::format("{}: the language model ({}) alone is taken{}", node.place().file, part,
                                      without_towers(node)));
      return a;
    }
  const bool hugging_face =
      node.find("hidden_size") || node.find("d_model") || (node.find("dim") && node.find("n_layers"));
  return hugging_face ? parse_config(node, name, family) : parse_based(node, name);
}

}  // namespace

const std::vector<Architecture>& builtin_architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> models;
    for (const Named& one : named_models())
      if (one.built_in)
        models.push_back(parse_own(one.model, "", nullptr)), models.back().source = "built-in";
    return models;
  }();
  return all;
}

std::span<const std::string> Architecture::names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Architecture& a : builtin_architectures()) all.push_back(a.name);
    return all;
  }();
  return names;
}

std::optional<std::string> model_called(std::string_view name, NameMatch match) {
  // Control characters and similar never occur in a name.
  const auto usual = [](char c) {
    return is_letter(c) || std::string_view(" -_.,:()+/").find(c) != std::string_view::npos;
  };
  if (!std::ranges::all_of(name, usual)) return std::nullopt;
  const Named* best = nullptr;
  std::size_t longest = 0;
  for (const Named& one : named_models())
    for (const std::string& known : one.names)
      if (const std::string letters = letters_of(known);
          letters.size() > longest && means(name, letters, match))
        best = &one, longest = letters.size();
  if (!best) return std::nullopt;
  return best->built_in ? best->names.front() : best->model.to_json().dump();
}

Architecture Architecture::parse(const JsonNode& node, const std::string& name) {
  if (node.is_string()) return load(node.string());
  if (!node.is_object()) node.fail(node.describe(), "a model's name, an object, or a Hugging Face config");
  return parse_object(node, name, "");
}

Architecture Architecture::load(const std::string& name_or_path) {
  for (const Architecture& a : builtin_architectures())
    if (a.name == name_or_path) return a;
  const bool path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json") ||
                    path_exists(name_or_path);
  if (!path) {
    if (const auto model = model_called(name_or_path))
      return model->starts_with('{') ? parse(JsonNode::parse(*model, "")) : load(*model);
    const std::vector<std::string> known(names().begin(), names().end());
    throw InputError(fmt::format("model: found {}, expected one of {} or the path of a JSON file{}",
                                 in_quotes(name_or_path), join(known, ", "),
                                 did_you_mean(name_or_path, known)));
  }
  const std::filesystem::path file = is_folder(name_or_path)
                                         ? std::filesystem::path(name_or_path) / "config.json"
                                         : std::filesystem::path(name_or_path);
  return parse(
      JsonNode::parse(with_json_numbers(read_file(file.string(), std::uint64_t{1} << 30)), file.string()),
      name_of_file(file));
}

}  // namespace moesim::models

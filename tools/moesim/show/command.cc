#include "tools/moesim/show/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"

namespace moesim::tools {

namespace {

using models::Field;
using models::FieldType;
using nlohmann::ordered_json;

// Returns a model by its name or its file, where that still gives the same model, else as an object.
ordered_json model_value(const models::Scenario& s) {
  ordered_json value = models::to_json(s.model);
  if (value.is_string() || !is_file(s.model.source)) return value;
  try {
    if (models::model_object(models::Architecture::load(s.model.source)) == value) return s.model.source;
  } catch (const InputError&) {  // the file has changed since
  }
  return value;
}

// Whether a framework's job file (script, TOML) says the model.
bool of_job_file(const models::Scenario& s) {
  const models::Origin model = s.origin_of("model");
  return model.kind == models::Origin::Kind::kFile && model.where == s.model.source &&
         is_file(s.model.source);
}

std::string text_of(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto is_text = [](const ordered_json& item) { return item.is_string(); };
  if (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_text))
    return join(value.get<std::vector<std::string>>(), ",");
  return value.dump();
}

}  // namespace

std::vector<std::string> command_words(const models::Scenario& s) {
  static const models::Scenario kDefaults;
  std::vector<std::string> words{"moesim", "compare"};
  const bool job = of_job_file(s);
  if (job) words.push_back(s.model.source);
  for (const Field& field : models::scenario_fields()) {
    if (!field.used_in(models::scope_of(s))) continue;
    ordered_json value = field.write(s);
    if (job && (field.path == "model" || field.path.starts_with("job."))) continue;
    if (field.path == "model" && s.model.hidden > 0) value = model_value(s);
    // A dense model has no dispatcher to name.
    if (field.path == "dispatcher" && s.model.hidden > 0 && s.model.experts == 0) continue;
    if (value.is_null()) continue;
    // A size closes the plan, and beside a recipe or a job even a default must be given.
    const bool said = (s.gave(field.path) && (field.path.starts_with("parallel.") || !s.recipe.empty())) ||
                      (job && (s.gave(field.path) || field.path == "dispatcher"));
    if (!said && value == field.write(kDefaults)) continue;
    const std::string text = text_of(value);
    const bool turned_off = job && field.type == FieldType::kBoolean && text == field.fallback;
    if (field.flag.empty() || field.path == "prices" || turned_off) {
      words.insert(words.end(), {"--set", fmt::format("{}={}", field.path, text)});
    } else if (field.type != FieldType::kBoolean) {
      words.insert(words.end(), {std::string(field.flag), text});
    } else if (text != field.fallback) {
      words.emplace_back(field.flag);
    }
  }
  return words;
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) ||
           (c != 0 && std::string_view("_-./,:+=@%").find(static_cast<char>(c)) != std::string_view::npos);
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string command_text(const std::vector<std::string>& words, std::size_t width) {
  constexpr std::string_view kContinued = " \\", kIndent = "  ";
  std::string text, line;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string piece = shell_word(words[i]);
    // Keeps an option with its value.
    if (words[i].starts_with("--") && i + 1 < words.size() && !words[i + 1].starts_with("--"))
      piece += " " + shell_word(words[++i]);
    if (!line.empty() && line.size() + 1 + piece.size() + kContinued.size() > width) {
      text += line + std::string(kContinued) + "\n";
      line = kIndent;
      line += piece;
    } else {
      line += (line.empty() ? "" : " ") + piece;
    }
  }
  return text + line + "\n";
}

const char* version() { return MOESIM_VERSION; }

}  // namespace moesim::tools

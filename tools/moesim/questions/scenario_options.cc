#include "tools/moesim/questions/scenario_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/dispatchers/dispatcher.h"
#include "models/workload/fields.h"
#include "tools/moesim/questions/scenario_document.h"

namespace moesim::tools {

namespace {

using models::Field;
using models::FieldType;

// What stands behind a field's flag in --help: its words, a number, or any text.
std::string type_name(const Field& field) {
  if (field.type == FieldType::kInteger) return "INT";
  if (field.type == FieldType::kChoice) return fmt::format("{}", fmt::join(field.choices, "|"));
  return "TEXT";
}

std::string help_of(const Field& field) {
  std::string help(field.help);
  if (field.scopes != models::Scopes::kBoth)
    help.insert(0, field.scopes == models::Scopes::kStep ? "Scope step: " : "Scope layer: ");
  if (!field.fallback.empty() && field.type != FieldType::kBoolean)
    help += fmt::format(" [{}]", field.fallback);
  return help;
}

}  // namespace

void ScenarioOptions::declare(CLI::App& app) {
  app.add_option("scenario", file_, "Scenario file; the options below change it");
  app.add_option("--scenario", file_, "The same");
  for (const Field& field : models::scenario_fields()) {
    if (field.flag.empty() || field.path == "seed") continue;  // --seed is of every verb
    const std::size_t index = models::index_of(field);
    const std::string flag(field.flag), group(field.group);
    if (field.type == FieldType::kBoolean) {
      const std::string other = field.fallback == "true" ? "false" : "true";
      app.add_flag_callback(
             flag, [this, index, other] { texts_[index] = other; }, help_of(field))
          ->group(group);
      continue;
    }
    app.add_option_function<std::string>(
           flag, [this, index](const std::string& text) { texts_[index] = text; }, help_of(field))
        ->type_name(type_name(field))
        ->group(group);
  }
}

models::Scenario ScenarioOptions::scenario(const CommonOptions& common) const {
  models::Scenario s;
  if (!file_.empty()) {
    s = models::Scenario::parse(JsonNode::read(file_));
    s.files.insert(s.files.begin(), file_);
  }
  for (const auto& [index, text] : texts_) models::set_field(models::scenario_fields()[index], s, text);
  if (common.seed_given) {
    s.seed = common.seed;
    s.give("seed");
  }
  models::name_dispatchers(s);
  if (const Field* unused = models::unused_field(s)) {
    if (!file_.empty() && !texts_.contains(models::index_of(*unused))) refuse_unused(s, file_);
    throw InputError(models::unused_message(*unused, unused->flag.empty() ? unused->path : unused->flag, s));
  }
  return s;
}

}  // namespace moesim::tools

// `moesim list`: the built-in names; `moesim schema`: the JSON schemas among them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "calibration/rows/devices.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"
#include "models/recipes/framework_recipe.h"
#include "models/routing/routing.h"
#include "models/workload/architecture.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "models/workload/model_summary.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;  // name, description

std::string description_of(const models::Architecture& model) {
  return fmt::format("{:.1f} B parameters ({:.1f} B active), {} layers, hidden {}, {} experts, top-{}",
                     static_cast<double>(model.parameters()) / 1e9,
                     static_cast<double>(model.active_parameters()) / 1e9, model.layers, model.hidden,
                     model.experts, model.topk);
}

Entries models_list() {
  Entries out;
  for (const std::string& name : models::Architecture::names()) {
    const auto model = models::Architecture::load(name);
    out.emplace_back(name, description_of(model));
  }
  return out;
}

Entries clusters_list() {
  Entries out;
  for (const auto& pattern : models::Cluster::patterns()) out.emplace_back(pattern.name, pattern.description);
  return out;
}

Entries profiles_list() {
  Entries out;
  for (const std::string& name : models::Profile::names()) {
    const auto profile = models::Profile::load(name);
    out.emplace_back(name, profile.gpu() + "; " + profile.provenance());
  }
  return out;
}

Entries networks_list() {
  Entries out;
  for (const std::string& name : models::NetworkProfile::names()) {
    const auto network = models::NetworkProfile::load(name);
    out.emplace_back(name, fmt::format("{}, {} ports a node of {} GB/s, {} laws{}", network.kind,
                                       network.ports_per_node, network.line_rate * 1e-9, network.laws.size(),
                                       network.gaps.empty() ? "" : "; " + join(network.gaps, "; ")));
  }
  return out;
}

Entries dispatchers_list() {
  Entries out;
  for (const auto& entry : models::dispatcher_registry()) out.emplace_back(entry.name, entry.summary);
  return out;
}

Entries routings_list() {
  Entries out;
  for (const std::string& name : models::RoutingSpec::names())
    out.emplace_back(name, models::RoutingSpec::about(name));
  return out;
}

Entries recipes_list() {
  Entries out;
  for (const models::FrameworkRecipe& recipe : models::FrameworkRecipe::all())
    out.emplace_back(recipe.id(), recipe.about);
  return out;
}

// Returns the JSON schemas by name, with those that are made from tables.
std::map<std::string, nlohmann::ordered_json> all_schemas() {
  std::map<std::string, nlohmann::ordered_json> all;
  for (const auto& [name, text] : written_schemas()) all.emplace(name, nlohmann::ordered_json::parse(text));
  all.merge(ResultSchema::all());
  all["scenario"] = models::scenario_schema();
  all["model"] = models::model_schema();
  return all;
}

Entries schemas_list() {
  Entries out;
  for (const auto& [name, schema] : all_schemas())
    out.emplace_back(name, schema.at("title").get<std::string>());
  return out;
}

int print_schema(const std::string& name, const std::string& folder) {
  const auto all = all_schemas();
  if (name.empty() == folder.empty())
    throw InputError("schema: expected a name of `moesim list schemas`, or --into FOLDER for all of them");
  if (!folder.empty()) {
    for (const auto& [known, schema] : all)
      write_file(fmt::format("{}/{}.schema.json", folder, known), schema.dump(1) + "\n");
    return 0;
  }
  const auto found = all.find(name);
  if (found == all.end()) {
    std::vector<std::string> names(all.size());
    std::ranges::transform(all, names.begin(), [](const auto& one) { return one.first; });
    throw InputError("schema: found " + in_quotes(name) + ", expected a name of `moesim list schemas`" +
                     did_you_mean(name, names));
  }
  print(found->second.dump(1) + "\n");
  return 0;
}

struct Kind {
  std::string name;
  Entries (*entries)();
};

const std::array<Kind, 8>& kinds() {
  static const std::array<Kind, 8> all{{{"models", models_list},
                                        {"clusters", clusters_list},
                                        {"profiles", profiles_list},
                                        {"networks", networks_list},
                                        {"dispatchers", dispatchers_list},
                                        {"routings", routings_list},
                                        {"recipes", recipes_list},
                                        {"schemas", schemas_list}}};
  return all;
}

struct Named {
  std::string name, description;
};

Columns<Named> columns_of(Of<Named>) {
  return {{"name", &Named::name}, {"description", &Named::description}};
}

// Prints every built-in model with its interpretation.
int list_details(const CommonOptions& common) {
  auto result = envelope("list", describe_inputs(common), {});
  result["models"] = nlohmann::ordered_json::array();
  Table table({{"model", Table::Align::kLeft},
               {"parameters [B]"},
               {"active [B]"},
               {"layers", Table::Align::kLeft},
               {"attention", Table::Align::kLeft},
               {"experts", Table::Align::kLeft}});
  for (const std::string& name : models::Architecture::names()) {
    const auto model = models::Architecture::load(name);
    std::vector<std::string> layers;
    for (const models::LayerCount& one : models::layer_counts(model))
      layers.push_back(fmt::format("{} x {}", one.count, one.kind));
    table.row({name, fmt::format("{:.1f}", static_cast<double>(model.parameters()) * 1e-9),
               fmt::format("{:.1f}", static_cast<double>(model.active_parameters()) * 1e-9),
               join(layers, ", "), models::attention_text(model), models::experts_text(model)});
    nlohmann::ordered_json one = models::model_summary(model);
    one["description"] = description_of(model);
    result["models"].push_back(std::move(one));
  }
  if (common.format == Format::kJson)
    print_json(result);
  else
    print(common.format == Format::kCsv ? table.csv() : table.text());
  return 0;
}

// Returns the profile of a GPU as its driver names it.
Entries profile_of_gpu(const std::string& gpu) {
  Entries all = profiles_list();
  const calibration::Device* device = calibration::device_of_gpu(gpu);
  std::erase_if(all, [&](const auto& entry) { return !device || entry.first != device->profile; });
  if (all.empty())
    throw InputError("found the GPU " + in_quotes(gpu) +
                     ", expected one with a profile: " + join(models::Profile::names(), ", "));
  return all;
}

int run(const std::vector<std::string>& wanted, bool detail, const std::optional<std::string>& gpu,
        const CommonOptions& common) {
  if (gpu && wanted != std::vector<std::string>{"profiles"})
    throw InputError("list: found --gpu without profiles alone, expected `list profiles --gpu`");
  if (detail) {
    if (wanted != std::vector<std::string>{"models"})
      throw InputError("list: found --detail without models alone, expected `list models --detail`");
    return list_details(common);
  }
  std::vector<const Kind*> chosen;
  for (const std::string& word : wanted) {
    std::vector<std::string> known;
    for (const Kind& kind : kinds()) known.push_back(kind.name);
    const auto at = std::find(known.begin(), known.end(), word);
    if (at == known.end())
      throw InputError("found " + in_quotes(word) + ", expected one of " + join(known, ", ") +
                       did_you_mean(word, known));
    chosen.push_back(&kinds()[static_cast<std::size_t>(at - known.begin())]);
  }
  if (chosen.empty())
    for (const Kind& kind : kinds()) chosen.push_back(&kind);

  auto result = envelope("list", describe_inputs(common), {});
  Table rows(
      {{"kind", Table::Align::kLeft}, {"name", Table::Align::kLeft}, {"description", Table::Align::kLeft}});
  std::string text;
  for (const Kind* kind : chosen) {
    Table table({{kind->name, Table::Align::kLeft}, {"", Table::Align::kLeft}});
    result[kind->name] = nlohmann::ordered_json::array();
    for (const auto& [name, description] : gpu ? profile_of_gpu(*gpu) : kind->entries()) {
      table.row({name, description});
      rows.row({kind->name, name, description});
      result[kind->name].push_back(json_of(Named{name, description}));
    }
    text += (text.empty() ? "" : "\n") + table.text();
  }
  if (common.format == Format::kJson)
    print_json(result);
  else
    print(common.format == Format::kCsv ? rows.csv() : text);
  return 0;
}

// Of the kinds that were asked for; with --detail models have all that their summary has.
const ResultSchema kSchema("list", "list", [] {
  nlohmann::ordered_json schema{{"required", nlohmann::ordered_json::array()}};
  for (const Kind& kind : kinds()) schema["properties"][kind.name] = schema_of<std::vector<Named>>();
  for (const char* name :
       {"source", "parameters", "layers", "attention", "experts", "ignored_keys", "unknown_keys"})
    schema["properties"]["models"]["items"]["properties"][name]["$ref"] =
        fmt::format("model-summary.schema.json#/properties/{}", name);
  return schema;
});

}  // namespace

Verb list_verb() {
  return {
      "list",
      "what is built in: models, clusters, profiles, networks, dispatchers, routings, recipes, schemas",
      "  moesim list dispatchers\n  moesim list models --detail", [](CLI::App& app) -> Run {
        auto wanted = std::make_shared<std::vector<std::string>>();
        app.add_option(
               "kind", *wanted,
               "models, clusters, profiles, networks, dispatchers, routings, recipes or schemas; default: all")
            ->type_name("KIND");
        auto detail = std::make_shared<bool>(false);
        app.add_flag("--detail", *detail, "With models: layers by kind, attention and experts");
        auto gpu = std::make_shared<std::optional<std::string>>();
        app.add_option("--gpu", *gpu,
                       "With profiles: only that of a GPU, as its driver names it (NVIDIA H100 PCIe)");
        return [wanted, detail, gpu](const CommonOptions& common) {
          return run(*wanted, *detail, *gpu, common);
        };
      }};
}

Verb schema_verb() {
  return {"schema", "the JSON schema of a file that moesim reads or of a result",
          "  moesim schema scenario\n  moesim schema compare > compare.schema.json",
          [](CLI::App& app) -> Run {
            const auto name = std::make_shared<std::string>(), folder = std::make_shared<std::string>();
            app.add_option("name", *name, "A name of `moesim list schemas`")->type_name("NAME");
            app.add_option("--into", *folder, "Write all of them there, as NAME.schema.json")
                ->type_name("FOLDER");
            return [=](const CommonOptions&) { return print_schema(*name, *folder); };
          }};
}

}  // namespace moesim::tools

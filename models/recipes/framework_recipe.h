// What a training framework of a version does unless it is told otherwise, and what it can run: the files of
// models/recipes/*.json, compiled in. Nothing here knows a Scenario; apply_recipe.h does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// What the conditions of a recipe's lines ask for: "model", "gpu" (its profile), "precision", "framework" (as
// a table wrote it), "grade" as texts in small letters, and sizes of the plan ("pp", "gpus", ...).
using RecipeFacts = std::map<std::string, std::variant<std::int64_t, std::string>, std::less<>>;

// One condition on a fact: a text begins with one of `prefixes`, a number equals `equal`, is above `above`,
// or is a multiple of the fact `multiple_of`. A fact that is not there fulfils no condition.
struct RecipeCondition {
  std::string fact;
  std::vector<std::string> prefixes;
  std::int64_t equal = 0, above = 0;  // 0: not asked
  std::string multiple_of;

  bool holds(const RecipeFacts& facts) const;
};

// A setting of a scenario. A text that begins with "=" is computed: "=tp", "=layers/pp".
struct RecipeSetting {
  std::string path;
  std::shared_ptr<const nlohmann::json> value;
};

// Settings under conditions, all of which must hold.
struct RecipeLine {
  std::vector<RecipeCondition> when;
  std::vector<RecipeSetting> set;
  std::string source;

  bool holds(const RecipeFacts& facts) const;
};

// What a framework can run; an empty list: nothing is known.
struct RecipeRuns {
  std::vector<std::string> dispatchers, schedules, launches;
};

struct FrameworkRecipe {
  std::string name;     // "megatron-bridge"
  std::string version;  // "26.04"; empty: there is one
  std::string about;
  // Parts of the names under which tables, logs and people write it, in small letters; "=mcore": the whole
  // name.
  std::vector<std::string> written;
  // Communication hides behind other operations of the same microbatch: the time of that is taken for the
  // overlap of two, and the memory holds one.
  bool holds_one_microbatch = false;
  // Standard deviation of log(measured / forecast) of its steps beside that of tuned ones; 0: none of its own.
  double spread = 0;
  bool trains = true;  // a recipe that an unknown framework may be like (spread_of_unknown)
  // The first line that holds and sets a path decides; lines of a file that extends another come first.
  std::vector<RecipeLine> lines;
  RecipeRuns runs;

  std::string id() const;  // "megatron-bridge@26.04"
  // By the names that scenarios use. True where the recipe does not say.
  bool runs_dispatcher(std::string_view dispatcher) const;
  bool runs_schedule(std::string_view schedule) const;
  bool runs_launch(std::string_view launch) const;

  // Reads a file of models/recipes/; `extended` is the recipe that it names, if any. Throws InputError with
  // the line for unknown keys, and for settings without a source.
  static FrameworkRecipe parse(const JsonNode& node, std::span<const FrameworkRecipe> extended);

  // All that are built in, by name, older versions first.
  static std::span<const FrameworkRecipe> all();
  // "megatron-bridge@26.04.01": the newest file of that name that is not newer; without a version the newest.
  // Throws InputError with the nearest name.
  static FrameworkRecipe find(std::string_view name);
  // The recipe that a free name of a framework means ("Megatron-Bridge / NeMo 26.04"): the one with the
  // longest part of it, at the release that stands there. nullptr: not known.
  static std::shared_ptr<const FrameworkRecipe> recognise(std::string_view framework);
};

}  // namespace moesim::models

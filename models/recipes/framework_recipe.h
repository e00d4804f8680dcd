// Defaults and capabilities of a training framework at a version: the files of models/recipes/*.json,
// compiled in. It does not depend on Scenario; apply_recipe.h does.
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

// Facts for the conditions of a recipe's lines: "model", "gpu" (its profile), "precision", "launch", "framework" (as
// a table wrote it), "grade" as lower-case texts, and sizes of the plan ("pp", "gpus", ...).
using RecipeFacts = std::map<std::string, std::variant<std::int64_t, std::string>, std::less<>>;

// One condition on a fact: a text begins with one of `prefixes`, a number equals `equal`, exceeds `above`, or
// is a multiple of the fact `multiple_of`. A missing fact fulfils no condition.
struct RecipeCondition {
  std::string fact;
  std::vector<std::string> prefixes;
  std::int64_t equal = 0, above = 0;  // 0: no condition
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

// Capabilities of a framework; an empty list: unknown.
struct RecipeRuns {
  std::vector<std::string> dispatchers, schedules, launches, recomputes;
};

struct FrameworkRecipe {
  std::string name;     // "megatron-bridge"
  std::string version;  // "26.04"; empty: the only version
  std::string about;
  // Parts of the framework's name in tables, logs and text, in lower case; "=mcore": the whole name.
  std::vector<std::string> written;
  // Communication hides behind other operations of the same microbatch: its time is modelled as the overlap
  // of two microbatches, its memory as one.
  bool holds_one_microbatch = false;
  // Standard deviation of log(measured / forecast) of its steps beyond that of tuned ones; 0: none of its
  // own.
  double spread = 0;
  bool trains = true;  // a candidate for an unknown framework (spread_of_unknown)
  // The first line that holds and sets a path decides; lines of a file that extends another come first.
  std::vector<RecipeLine> lines;
  RecipeRuns runs;

  std::string id() const;  // "megatron-bridge@26.04"
  // By the names used in scenarios. True where the recipe does not say.
  bool runs_dispatcher(std::string_view dispatcher) const;
  bool runs_schedule(std::string_view schedule) const;
  bool runs_launch(std::string_view launch) const;

  // Reads a file of models/recipes/; `extended`: recipes that it may extend. Throws InputError with the line
  // for unknown keys and for settings without a source.
  static FrameworkRecipe parse(const JsonNode& node, std::span<const FrameworkRecipe> extended);

  // Returns all built-in recipes by name, older versions first.
  static std::span<const FrameworkRecipe> all();
  // Finds "megatron-bridge@26.04.01": the newest file of that name that is not newer; without a version the
  // newest. Throws InputError with the nearest name.
  static FrameworkRecipe find(std::string_view name);
  // Returns the recipe for a free-form framework name ("Megatron-Bridge / NeMo 26.04"): the one whose
  // `written` part matches longest, at the release given in the text. nullptr: unknown.
  static std::shared_ptr<const FrameworkRecipe> recognise(std::string_view framework);
};

}  // namespace moesim::models

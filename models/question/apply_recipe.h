// Applies a framework's recipe to a scenario: given settings take precedence over the recipe, the recipe over
// the fields' defaults.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/recipes/framework_recipe.h"

namespace moesim::models {

struct Scenario;

// The one recipe setting that is a part of a field: trained multi-token-prediction layers.
inline constexpr std::string_view kPrediction = "model.mtp_layers";

// Returns facts about a scenario's model, machine, precision and plan as far as they were given. `more`
// (facts from a table) takes precedence.
RecipeFacts facts_of(const Scenario& scenario, const RecipeFacts& more = {});

// Sets every field that the recipe contains and that was not given, with origin kRecipe and the recipe's id.
// Skips fields that the scope does not use and, for a dense model, those of experts. The conditions read
// model, cluster, precision and plan: set these first. Returns the paths that were set.
std::vector<std::string> apply(const FrameworkRecipe& recipe, Scenario& scenario,
                               const RecipeFacts& more = {});

// Applies a recipe for a search of plans, instead of the one that settings came from: it has others on another machine.
// The sizes of the plan stay open.
void take_recipe(Scenario& scenario, const std::string& name);

// Returns the uncertainty where the framework is not known: the standard deviation of the logarithm of
// `seconds` over the newest training recipes, 0 with fewer than two. Recipes for which `seconds` throws
// InputError (the plan cannot run) are skipped.
double spread_of_unknown(const Scenario& scenario, const std::function<double(const Scenario&)>& seconds);

}  // namespace moesim::models

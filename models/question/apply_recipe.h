// A framework's recipe as settings of a scenario: what was said stands before it, the fields' defaults after.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/recipes/framework_recipe.h"

namespace moesim::models {

struct Scenario;

// The one setting of a recipe that is a part of a field: layers of prediction that are trained.
inline constexpr std::string_view kPrediction = "model.mtp_layers";

// Facts of a scenario whose model, machine, precision and plan stand as far as they were said; numbers of the
// plan only where they are known. `more` (what a table says beside it) stands before them.
RecipeFacts facts_of(const Scenario& scenario, const RecipeFacts& more = {});

// Sets every field that the recipe says and that nobody gave, with an origin of kind kRecipe and the recipe's
// id. Leaves out what the scenario's scope does not use, and for a model without experts what is of experts.
// Asks for model, cluster, precision and plan first: set them before. Returns the paths that were set.
std::vector<std::string> apply(const FrameworkRecipe& recipe, Scenario& scenario,
                               const RecipeFacts& more = {});

// Where the framework is not known, a job may be run as any recipe runs it: the standard deviation of the
// logarithm of what `seconds` says of the scenario under the newest recipes that train, 0 where fewer than
// two can be asked. `seconds` may throw InputError for a plan that a recipe cannot run, which is left out.
double spread_of_unknown(const Scenario& scenario, const std::function<double(const Scenario&)>& seconds);

}  // namespace moesim::models

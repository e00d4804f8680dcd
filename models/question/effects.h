// Refuses settings of a question that change nothing (models/workload/without_effect.h).
#pragma once

#include <string>
#include <vector>

#include "models/question/paths.h"
#include "models/question/question.h"

namespace moesim::models {

// Throws InputError for the first of the user's settings without effect. Scenario::resolve() drops those of a
// job's arguments and of recipes; settings that a searched size leaves without effect are dropped with a note
// in `resolved`. `changed`: checks these paths alone; null: all.
void check_effects(const Question& question, Resolved& resolved,
                   const std::vector<ScenarioPath>* changed = nullptr);

// Returns the beginning of a message about a setting: "train.sh:3: " for a line of a file, else "".
std::string place_of(const Origin& origin);

}  // namespace moesim::models

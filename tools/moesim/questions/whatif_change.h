// `moesim whatif --set`: compares a scenario with a changed one and explains the difference; or many changes,
// one by one.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// Returns the base with all changes ("path=value"). Throws InputError for invalid paths and values.
Base with_changes(const Base& base, const std::vector<std::string>& sets);

// "path=value" as written; values may be multiples of the baseline's ("x2").
int run_changes(const Base& base, const std::vector<std::string>& sets, const AskOptions& asked,
                const CommonOptions& common);
// Tries every change separately, most helpful first by tokens per second and GPU, which orders like time
// where the work is constant. An impossible change is listed with its error.
int run_each(const Base& base, const std::vector<std::string>& sets, const AskOptions& asked,
             const CommonOptions& common);

}  // namespace moesim::tools

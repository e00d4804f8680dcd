// `moesim whatif --set`: a scenario beside a changed one, and why they differ; or many changes, one by one.
#pragma once

#include <string>
#include <vector>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// The base with all changes ("path=value") made. Throws InputError for paths and values that are none.
Base with_changes(const Base& base, const std::vector<std::string>& sets);

// "path=value" as written; values may be multiples of the baseline's ("x2").
int run_changes(const Base& base, const std::vector<std::string>& sets, const AskOptions& asked,
                const CommonOptions& common);
// Every change by itself, the most helpful first: by tokens per second and GPU, which is the same order as by
// time where the work stays the same. One that cannot be is listed with its error.
int run_each(const Base& base, const std::vector<std::string>& sets, const AskOptions& asked,
             const CommonOptions& common);

}  // namespace moesim::tools

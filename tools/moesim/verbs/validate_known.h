// `moesim validate --known`: figures that the field knows, ours beside each.
#pragma once

#include <string>

#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// `folder`: that of collectives.csv, kernels.csv, steps.csv and memory.csv, published rows in the columns of
// their kinds, each with what it is ("what") and the band of ours over the published figure ("low", "high").
// Returns 1 where one lies outside of its band. Throws InputError for a row that has no forecast.
int validate_known(const std::string& folder, const CommonOptions& common);

}  // namespace moesim::tools

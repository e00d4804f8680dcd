// `moesim validate --known`: well-known figures with our forecast beside each.
#pragma once

#include <string>

#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// `folder`: contains collectives.csv, kernels.csv, steps.csv and memory.csv, published rows in the columns of
// their kinds, each with a description ("what") and a band for the ratio of forecast to published figure
// ("low", "high"). Returns 1 where one lies outside of its band. Throws InputError for a row without a
// forecast.
int validate_known(const std::string& folder, const CommonOptions& common);

}  // namespace moesim::tools

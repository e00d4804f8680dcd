// Models of published tables: built-in ones by the names that tables use, others by the sizes that stand in
// their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/workload/architecture.h"

namespace moesim::calibration {

// The dense model that a table of memory means; nullopt for a name that is none.
std::optional<models::Architecture> dense_model(const std::string& name);

// nullopt where nothing says what the layers are. `source` decides between versions of a model; what the name
// does not say is taken as usual and noted in `assumptions`.
std::optional<models::Architecture> training_model(const std::string& name, const std::string& source,
                                                   std::vector<std::string>& assumptions);

}  // namespace moesim::calibration

// The model named by a row of a table of training runs, as JSON for a scenario's `model`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim::calibration {

// Returns a built-in name or an object: by its name, by the sizes in its name, with the changes of its
// `source`. nullopt where the layers are unknown; usual values taken are noted in `assumptions`. Throws
// InputError for impossible sizes.
std::optional<nlohmann::json> row_model(const std::string& name, std::string_view source,
                                        std::vector<std::string>& assumptions);

}  // namespace moesim::calibration

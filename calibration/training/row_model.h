// The model that a row of a table of training runs names, as a scenario's `model` would say it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim::calibration {

// A built-in name or an object: by its name, by the sizes in its name, as its `source` changed it.
// nullopt where nothing says what the layers are; what is taken as usual is noted in `assumptions`. Throws
// InputError for sizes that no model has.
std::optional<nlohmann::json> row_model(const std::string& name, std::string_view source,
                                        std::vector<std::string>& assumptions);

}  // namespace moesim::calibration

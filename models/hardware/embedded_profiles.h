// The files of calibration/profiles/gpu/ and network/, of models/recipes/ and models/hardware/, compiled in
// so that moesim needs no data folder.
#pragma once

#include <span>
#include <string_view>

namespace moesim::models {

struct EmbeddedProfile {
  std::string_view name;  // file name without ".json"
  std::string_view json;
};

std::span<const EmbeddedProfile> embedded_profiles();
std::span<const EmbeddedProfile> embedded_networks();
std::span<const EmbeddedProfile> embedded_recipes();
// NAME.json of models/hardware, models/answers, calibration/rows and tools/moesim/read: "rental_prices".
std::string_view embedded_table(std::string_view name);

}  // namespace moesim::models

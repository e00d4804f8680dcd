// The files of calibration/profiles/gpu/ and network/, compiled in so that moesim needs no data folder.
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

}  // namespace moesim::models

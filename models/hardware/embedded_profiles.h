// The files of calibration/profiles/gpu/, compiled in so that moesim needs no data folder.
#pragma once

#include <span>
#include <string_view>

namespace moesim::models {

struct EmbeddedProfile {
  std::string_view name;  // file name without ".json"
  std::string_view json;
};

std::span<const EmbeddedProfile> embedded_profiles();

}  // namespace moesim::models

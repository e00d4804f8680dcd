// The origin of a dispatcher that was taken because none was said (DispatcherSpec::origin).
#pragma once

namespace moesim::models {

inline constexpr const char* kUsualOrigin = "default";

}  // namespace moesim::models

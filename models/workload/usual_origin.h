// Origin of a dispatcher that was chosen because none was given (DispatcherSpec::origin).
#pragma once

namespace moesim::models {

inline constexpr const char* kUsualOrigin = "default";

}  // namespace moesim::models

#pragma once

namespace moesim::tools {

// Version in every output, e.g. "0.1.0".
const char* version();

}  // namespace moesim::tools

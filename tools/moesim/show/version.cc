#include "tools/moesim/show/version.h"

namespace moesim::tools {

const char* version() { return MOESIM_VERSION; }

}  // namespace moesim::tools

// The pages of reports and of `moesim serve`; tools/report/build.mjs writes the source that defines them.
#pragma once

#include <string_view>

namespace moesim::tools {

// Returns one HTML page with a marker for the data; empty in a build without Node.
std::string_view report_template();

// Likewise for the page of `moesim serve`, and the Content-Security-Policy that allows only its script.
std::string_view live_template();
std::string_view live_policy();

// Returns why there is no page; empty where there is one.
std::string_view report_missing();

}  // namespace moesim::tools

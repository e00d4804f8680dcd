// The pages that reports and `moesim serve` are made of; tools/report/build.mjs writes the source that
// defines it.
#pragma once

#include <string_view>

namespace moesim::tools {

// One HTML page with the marker where the data goes; empty in a build without Node.
std::string_view report_template();

// The same for the page of `moesim serve`, and the Content-Security-Policy that lets its script and no other
// run.
std::string_view live_template();
std::string_view live_policy();

// Why there is none, for the user; empty where there is one.
std::string_view report_missing();

}  // namespace moesim::tools

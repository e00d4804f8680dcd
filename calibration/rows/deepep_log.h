// What the tests of DeepEP print: test_intranode, test_internode and test_low_latency (V1), test_ep (V2), and
// HybridEP's test_hybrid_ep.
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

// One row per kernel, precision and number of SMs: the best of a tuning, the mean over the ranks that print.
// What the log does not say (the GPU; ranks of V1; tokens, width and experts of low latency and HybridEP) has
// to stand in `facts`. Throws InputError by line for what is missing, and for a bandwidth and a time whose
// bytes are not those of the sizes.
Imported import_deepep(std::string_view text, const std::string& file, const ImportFacts& facts);

}  // namespace moesim::calibration

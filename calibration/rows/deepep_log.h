// Output of DeepEP's tests: test_intranode, test_internode and test_low_latency (V1), test_ep (V2), and
// HybridEP's test_hybrid_ep.
#pragma once

#include <string>
#include <string_view>

#include "calibration/rows/import_logs.h"

namespace moesim::calibration {

// Returns one row per kernel, precision and number of SMs: the best of a tuning, the mean over the printing
// ranks. `facts` must give what the log does not contain (the GPU; ranks of V1; tokens, width and experts of
// low latency and HybridEP). Throws InputError with the line for missing facts, and for a bandwidth and a
// time that contradict the sizes.
Imported import_deepep(std::string_view text, const std::string& file, const ImportFacts& facts);

}  // namespace moesim::calibration

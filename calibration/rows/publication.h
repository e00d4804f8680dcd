#pragma once

#include <string>
#include <string_view>

namespace moesim::calibration {

// Returns the publication of a row's source without table, file or remark: "arXiv 2504.14960",
// "NVIDIA-NeMo/Megatron-Bridge", "MLPerf".
std::string publication_of(std::string_view source);

}  // namespace moesim::calibration

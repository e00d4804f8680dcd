// Why arguments of any framework do not change a step's cost: one sentence each, for all tables.
#pragma once

#include <string_view>

namespace moesim::tools::reasons {

inline constexpr std::string_view kData = "files, tokens and their order change no size";
inline constexpr std::string_view kLogging = "it is written beside a step, not in one";
inline constexpr std::string_view kCheckpoints =
    "checkpoints are written between steps (faults.checkpoint_s prices them)";
inline constexpr std::string_view kNumbers = "numbers of the optimizer take no time of their own";
inline constexpr std::string_view kRun = "how long a job runs, not how long a step";
inline constexpr std::string_view kCompiled = "torch.compile's kernels are not priced apart";

}  // namespace moesim::tools::reasons

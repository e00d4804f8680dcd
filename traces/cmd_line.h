// Parses one line of a CMD recording key by key in the order of the grammar; inside traces/ only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "traces/recording.h"

namespace moesim::traces {

// Limits on the values of a line; generous for any real job, small enough that nothing downstream overflows.
inline constexpr std::int64_t kMaxRank = (1 << 24) - 1;
inline constexpr std::int64_t kMaxStage = 65535;
inline constexpr std::int64_t kMaxBatch = 999'999;
inline constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 39;  // no device holds a tensor of 512 GiB

// Returns whether a tensor exceeds kMaxTensorBytes; elements of an unknown type count one byte.
bool too_large(std::int64_t elements, std::string_view dtype);
inline constexpr const char* kPossibleTensor = "a tensor of at most 512 GiB";

// Parses `line` (without its line break) and appends the operation with all it holds to `rank`. Sets
// rank.rank from the first line and refuses another rank later. Throws InputError with file, line and column.
void parse_cmd_line(std::string_view line, std::uint32_t line_number, RankRecording& rank, Pool& pool);

}  // namespace moesim::traces

// Recovers the split matrix of an all-to-all from a recording, which holds rows sent and received per rank,
// not per pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesim::replay {

// Returns rows[sender * n + receiver] with exactly these row sums and column sums, each row spread like the
// remaining column sums, that is sent[i] * received[j] / total up to rounding. That is correct where the
// popularity of experts is the same for all tokens, as in the public recordings (docs/replay.md). Throws
// InputError when the sums differ.
std::vector<std::uint32_t> recover_split_matrix(std::span<const std::int64_t> sent,
                                                std::span<const std::int64_t> received);

}  // namespace moesim::replay

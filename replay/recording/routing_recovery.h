// The split matrix of an all-to-all from what a recording holds: rows sent and received per rank, not per
// pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesim::replay {

// rows[sender * n + receiver] with exactly these row sums and column sums, each row spread like what the
// columns still miss, that is sent[i] * received[j] / total up to rounding. That is right where experts are
// popular or not for all tokens alike, as in the public recordings (docs/replay.md). Throws InputError when
// the sums differ.
std::vector<std::uint32_t> recover_split_matrix(std::span<const std::int64_t> sent,
                                                std::span<const std::int64_t> received);

}  // namespace moesim::replay

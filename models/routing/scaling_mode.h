// Scaling mode (docs/spec.md 3): one GPU plays every rank of a large job in turn. Routing comes
// from per-rank dispatching results, in which rows sent and rows received are different things.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moesim::models {

// The dispatching results of one imitated expert rank; empty where the file has none.
struct ScalingRank {
  std::vector<std::int64_t> sent;      // num_local_tokens_per_expert, [E]
  std::vector<std::int64_t> received;  // tokens_per_local_expert, [E/EP]
};

struct ScalingRows {
  std::vector<std::int64_t> rows;  // rows of the local experts of the imitated rank
  std::string warning;             // "" or why they are not representative
};

// Rows that the experts of `exp_rank` compute. From `received` where it is there, else from what all ranks
// send, else from `own_histogram` ([E], the routing that the single GPU made up), with a warning. Throws
// InputError where sizes do not fit, and where `received` is the slice of the rank's own `sent` although
// others send too: the known mix-up of the two keys, too small by about the group's size.
ScalingRows scaling_rows(const std::vector<ScalingRank>& ranks, int exp_rank, std::int64_t experts,
                         const std::vector<std::int64_t>& own_histogram);

}  // namespace moesim::models

// Scaling mode (docs/spec.md 3): one GPU plays every rank of a large job in turn. Routing comes
// from per-rank dispatching results, in which rows sent and rows received are different things; group labels
// do not say who takes part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/routing/routing.h"

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

// Who takes part in an operation with a recorded group label: "exp" is EP for all-to-all, but TP x EP for the
// gathers and scatters of the legacy AllGather dispatcher; "ep", "tp", "tp_ep" are what they say. nullopt for
// other labels (pp, dp).
std::optional<GroupKind> group_of_label(std::string_view label, std::string_view comm_func);

}  // namespace moesim::models

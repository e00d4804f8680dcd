// Runs lockstep programs whose operations slow each other down where they overlap: rates change over time, so
// that the operations are processed by events of the ranks instead of in issue order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/run/lockstep.h"

namespace moesim::sim {

// As Lockstep::run(). `ready` and `host`: the clocks before and after.
void run_with_rates(std::span<const LockstepChain> chains, std::span<const LockstepPiece> order,
                    const LockstepOptions& options, std::vector<std::int64_t>& ready,
                    std::vector<std::int64_t>& host, LockstepWatch* watch);

// Appends the spans of one operation on one rank.
void note_spans(const LockstepOp& op, std::int64_t host_from, std::int64_t host_to, std::int64_t start,
                std::int64_t begin, std::int64_t end, std::vector<BusySpan>& spans);

}  // namespace moesim::sim

// Completes a recording of some expert ranks: one rank in scaling mode and a dispatching file determine the
// others.
#pragma once

#include <string>
#include <vector>

#include "models/routing/routing.h"
#include "replay/recording/steps.h"

namespace moesim::replay {

// Adds to a scaling recording the missing expert ranks, stage by stage: each copies the nearest recorded one,
// with its rows in `routing`, a dispatching file, and scales the experts' time in proportion. Notes it in
// `warnings`. Returns the job unchanged where no rank is missing, where a stage has none, or where the file
// has routings by layer or microbatch. Throws InputError where the file contradicts the rows of a recorded
// rank.
RecordedJob with_all_expert_ranks(const RecordedJob& job, const models::RoutingSpec& routing,
                                  std::vector<std::string>& warnings);

}  // namespace moesim::replay

// A recording of some expert ranks made whole: one rank in scaling mode and a dispatching file tell what the
// others would have shown.
#pragma once

#include <string>
#include <vector>

#include "models/routing/routing.h"
#include "replay/recording/steps.h"

namespace moesim::replay {

// Adds to a scaling recording the expert ranks that it lacks, stage by stage: each does what the nearest
// recorded one did, with the rows that `routing`, a dispatching file, has for it, and its experts take time
// in proportion. Says so in `warnings`. Returns the job as it is where no rank lacks, where a stage has none,
// or where the file has routings by layer or microbatch. Throws InputError where the file's rows are not
// those that a recorded rank got.
RecordedJob with_all_expert_ranks(const RecordedJob& job, const models::RoutingSpec& routing,
                                  std::vector<std::string>& warnings);

}  // namespace moesim::replay

// Overload factors of a recording: rows that its ranks computed over a balanced share (docs/spec.md 4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/routing/overload.h"
#include "replay/recording/denoise.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

struct RecordedOverload {
  std::vector<models::Overload> stages;  // of the routing, by stage
  std::vector<models::Overload> logged;  // as the job's log shows them: ETP times larger
  std::int64_t entries = 0;              // MoE layers x microbatches over all stages
  int replicas = 1;                      // of the experts
};

// For the plans of an iteration, in their order. Rows are those of the exchanges between the experts' ranks;
// where the calls do not show them (AllGather), those of a given routing in `clean`. nullopt where they are
// unknown.
std::optional<RecordedOverload> recorded_overload(const Topology& topology,
                                                  std::span<const RankSchedule> plans, const CleanJob* clean);

}  // namespace moesim::replay

// Requirements of a replay on the lines of one rank, shared by `trace check`, which reports violations, and
// replay, which refuses them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "traces/recording.h"

namespace moesim::traces {

struct Fault {
  std::string found;
  std::string expected;
};

// Windows of calls hidden by computing are stamped over that computing: no rule holds for their times.
bool is_asynchronous(const SubOperation& sub);

// Returns when a call of `operation` began, host ms: writers of 2025 stamp the end of a call, those of 2026
// (v2 lines) its start.
double call_start_ms(const Operation& operation, const SubOperation& sub);

// Recorders stamp on the host, late and rounded. Contradictions up to this limit are repaired by the order of
// the lines; larger ones have another cause.
inline constexpr double kRepairedMs = 5.0;

// Checks that collectives are in order of time and inside the operation, within the precision of host clocks;
// returns nullopt where they are. Placeholders were never measured and may end anywhere.
std::optional<Fault> fault_in_times(const RankRecording& rank, const Operation& operation);

// Repaired times: calls keep their order and durations, and the computing between them shrinks.
struct ClockRepair {
  double ms = 0;  // size of the contradiction
  std::string what;
};
std::vector<ClockRepair> repairs_in_times(const RankRecording& rank, const Operation& operation);

// Returns the first gradient bucket without a later line for its trigger; nullptr where each has one.
const Operation* bucket_without_trigger(const RankRecording& rank);
Fault fault_of_bucket(const RankRecording& rank, const Operation& bucket);

}  // namespace moesim::traces

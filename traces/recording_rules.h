// What a replay requires of the lines of a recording, and of the sizes in its names.
#pragma once

#include <string>
#include <vector>

#include "traces/recording.h"
#include "traces/recording_facts.h"

namespace moesim::traces {

// Windows of calls hidden by computing are stamped over that computing: no rule holds for their times.
bool is_asynchronous(const SubOperation& sub);

// Returns when a call of `operation` began, host ms: writers of 2025 stamp the end of a call, those of 2026
// (v2 lines) its start.
double call_start_ms(const Operation& operation, const SubOperation& sub);

// Recorders stamp on the host, late and rounded. Contradictions up to this limit are repaired by the order of
// the lines; larger ones have another cause.
inline constexpr double kRepairedMs = 5.0;

// Throws InputError unless collectives are in order of time and inside the operation, within the precision of
// host clocks. Placeholders were never measured and may end anywhere.
void require_times(const RankRecording& rank, const Operation& operation);

// Repaired times: calls keep their order and durations, and the computing between them shrinks.
struct ClockRepair {
  double ms = 0;  // size of the contradiction
  std::string what;
};
std::vector<ClockRepair> repairs_in_times(const RankRecording& rank, const Operation& operation);

// Throws InputError for a gradient bucket without a later line for its trigger.
void require_triggers(const RankRecording& rank);

// Throws InputError for the first size that differs between names and lines: experts, MoE layers, tokens and
// hidden size of messages between stages, hidden size of the experts' exchanges. A size that names or lines
// lack is not checked, except for the sequences of a microbatch, which default to 1.
void require_names(const Recording& recording, const ExpertRows& shown);

// Returns a sentence where the names give tensor parallelism and no rank makes calls over it; "" otherwise.
std::string unseen_tensor_parallelism(const Recording& recording);

}  // namespace moesim::traces

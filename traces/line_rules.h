// What a replay asks of the lines of one rank. One place says it: `trace check` reports what breaks a rule,
// and replay refuses it.
#pragma once

#include <optional>
#include <string>

#include "traces/recording.h"

namespace moesim::traces {

struct Fault {
  std::string found;
  std::string expected;
};

// Windows of calls that computing hides are stamped over that computing: no rule holds for their times.
bool is_asynchronous(const SubOperation& sub);

// When a call of `operation` began, host ms: writers of 2025 stamp the end of a call, those of 2026 (v2
// lines) its start.
double call_start_ms(const Operation& operation, const SubOperation& sub);

// Collectives stand in the order of their times and inside the operation, as far as rounded clocks can tell;
// nullopt where they do. Placeholders were never measured and may end anywhere.
std::optional<Fault> fault_in_times(const RankRecording& rank, const Operation& operation);

// The first gradient bucket whose trigger no later line is; nullptr where each has one.
const Operation* bucket_without_trigger(const RankRecording& rank);
Fault fault_of_bucket(const RankRecording& rank, const Operation& bucket);

}  // namespace moesim::traces

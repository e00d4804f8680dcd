// What a replay asks of the lines of one rank. One place says it: `trace check` reports what breaks a rule,
// and replay refuses it.
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

// Windows of calls that computing hides are stamped over that computing: no rule holds for their times.
bool is_asynchronous(const SubOperation& sub);

// When a call of `operation` began, host ms: writers of 2025 stamp the end of a call, those of 2026 (v2
// lines) its start.
double call_start_ms(const Operation& operation, const SubOperation& sub);

// Recorders stamp on the host, late and rounded. What contradicts itself by up to this much means what the
// order of the lines says, and is repaired; more is another meaning.
inline constexpr double kRepairedMs = 5.0;

// Collectives stand in the order of their times and inside the operation, as far as host clocks can tell;
// nullopt where they do. Placeholders were never measured and may end anywhere.
std::optional<Fault> fault_in_times(const RankRecording& rank, const Operation& operation);

// What is repaired: calls keep their order and durations, and the computing between them gives way.
struct ClockRepair {
  double ms = 0;  // by how much the stamps contradict each other
  std::string what;
};
std::vector<ClockRepair> repairs_in_times(const RankRecording& rank, const Operation& operation);

// The first gradient bucket whose trigger no later line is; nullptr where each has one.
const Operation* bucket_without_trigger(const RankRecording& rank);
Fault fault_of_bucket(const RankRecording& rank, const Operation& bucket);

}  // namespace moesim::traces

// Compares the sizes in a recording's names with its lines, for `trace check`, which reports differences, and
// replay, which refuses them.
#pragma once

#include <optional>
#include <string>

#include "base/input_error.h"
#include "traces/recording.h"
#include "traces/recording_facts.h"

namespace moesim::traces {

struct NameFault {
  SourcePlace place;
  std::string found;     // in the lines
  std::string expected;  // from the name
};

// Returns the first size that differs between names and lines: experts, MoE layers, tokens and hidden size of
// messages between stages, hidden size of the experts' exchanges. A size that names or lines lack is not
// checked, except for the sequences of a microbatch, which default to 1.
std::optional<NameFault> fault_in_names(const Recording& recording, const ExpertRows& shown);

// Returns a sentence where the names give tensor parallelism and no rank makes calls over it; "" otherwise.
std::string unseen_tensor_parallelism(const Recording& recording);

}  // namespace moesim::traces

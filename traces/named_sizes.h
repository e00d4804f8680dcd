// The sizes that the names of a recording claim, held against what its lines show. One place says it: `trace
// check` reports what differs, and replay refuses it.
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

// Returns the first size that names and lines say differently: experts, MoE layers, the tokens and the hidden
// size of what stages send each other, the hidden size of what experts exchange. A size that no name or no
// line says is not doubted, but for the sequences of a microbatch, which are 1 where no name says them.
std::optional<NameFault> fault_in_names(const Recording& recording, const ExpertRows& shown);

// A sentence where the names say tensor parallelism and no rank calls over it: "" where that is not so.
std::string unseen_tensor_parallelism(const Recording& recording);

}  // namespace moesim::traces

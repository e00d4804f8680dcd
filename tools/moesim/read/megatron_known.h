// Megatron's arguments that do not change a step's cost, that moesim models approximately, and that it
// refuses, each with the reason.
#pragma once

#include <span>

#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

std::span<const KnownArgument> megatron_irrelevant();
std::span<const KnownArgument> megatron_approximated();
std::span<const KnownArgument> megatron_refused();

}  // namespace moesim::tools

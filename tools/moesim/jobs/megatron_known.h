// Megatron's arguments that say nothing of a step's cost, what moesim models only nearly, and what it
// refuses, each with the reason.
#pragma once

#include <span>

#include "tools/moesim/jobs/arguments.h"

namespace moesim::tools {

std::span<const KnownArgument> megatron_irrelevant();
std::span<const KnownArgument> megatron_approximated();
std::span<const KnownArgument> megatron_refused();

}  // namespace moesim::tools

// Conservation of bytes, which holds for every legal program.
#pragma once

#include <string>
#include <vector>

#include "models/programs/program.h"

namespace moesim::models::testing {

// Returns the errors in a program's numbers, one line each; empty without any: for every collective the bytes
// sent over a group are the bytes received, in and out fit the kind, an uneven exchange is its matrix, and
// the matrix of the return is the transpose.
std::vector<std::string> check_bytes(const Program& program);

}  // namespace moesim::models::testing

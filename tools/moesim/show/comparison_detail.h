// The details of a comparison, on request: messages, operations, ranks, memory.
#pragma once

#include <optional>

#include "tools/moesim/show/comparison.h"

namespace moesim::tools {

// Adds "messages", "operations" or "ranks" to an answer's JSON.
void add_detail(nlohmann::ordered_json& answer_json, const models::Answer& answer, Detail detail);
// Returns the memory of each dispatcher's fullest stage by cause, and how full the other stages are.
std::string memory_tree(const models::Comparison& comparison);
std::optional<Table> table_of_detail(const models::Comparison& comparison, Detail detail);

}  // namespace moesim::tools

// The words that CMD lines use, collected from every public writer (2025 and 2026).
#pragma once

#include <span>
#include <string_view>

namespace moesim::traces {

// Operations that stand at the start of a line.
std::span<const std::string_view> cmd_operations();
// Closed lists: a word outside them is refused, since nothing above could tell what it costs.
std::span<const std::string_view> cmd_states();
std::span<const std::string_view> cmd_groups();  // of operations and of sub-operations
std::span<const std::string_view> cmd_dtypes();
std::span<const std::string_view> cmd_comm_functions();
std::span<const std::string_view> cmd_op_semantics();

bool contains(std::span<const std::string_view> words, std::string_view word);

}  // namespace moesim::traces

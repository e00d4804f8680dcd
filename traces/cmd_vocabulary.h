// The words of CMD lines, collected from every public writer (2025 and 2026).
#pragma once

#include <span>
#include <string_view>

namespace moesim::traces {

// Operations at the start of a line.
std::span<const std::string_view> cmd_operations();
// Closed lists: other words are refused, since their cost would be unknown.
std::span<const std::string_view> cmd_states();
std::span<const std::string_view> cmd_groups();  // of operations and of sub-operations
std::span<const std::string_view> cmd_dtypes();
std::span<const std::string_view> cmd_comm_functions();
std::span<const std::string_view> cmd_op_semantics();

bool contains(std::span<const std::string_view> words, std::string_view word);

}  // namespace moesim::traces

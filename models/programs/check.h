// Checks that the collectives of a program match: by position on each communicator, and without cycles of
// waits between communicators (docs/spec.md 2.11, rules P and F).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/programs/program.h"

namespace moesim::models {

// One collective as one rank issues it.
struct IssuedCollective {
  std::string name;  // for messages: "dispatch of layer 2"
  CommKind kind = CommKind::kAllToAllV;
  DType dtype = DType::kBf16;
  std::vector<std::int64_t> sends, receives;  // rows per member; empty for equal collectives
  std::int64_t bytes = 0;                     // for equal collectives
  std::string place;                          // file:line of a recording, or empty
};

struct Mismatch {
  int position = 0;        // counted from 1
  std::vector<int> ranks;  // members that differ from member 0
  std::string text;        // "mismatch at position 2: ... ; hang"
};

// Rule P: the sequences of all members of one communicator must agree in kind, dtype and size, and for uneven
// exchanges every rank must expect what its peer sends. Returns the first position where they do not.
std::optional<Mismatch> match_positions(std::span<const std::vector<IssuedCollective>> members);

// Returns the sequence of one pass on the members of the `group`-th group of `kind`, names prefixed by
// `prefix`.
std::vector<std::vector<IssuedCollective>> issued(const Program& program, const std::vector<Op>& pass,
                                                  GroupKind kind, int group, const std::string& prefix = "");

// Rule F: all communicators of a GPU share its resources, so ranks must reach collectives of different
// communicators in compatible orders. `order[rank]` lists (communicator, index on it) in issue order. Returns
// the communicators around a cycle of waits, or nullopt.
struct IssuedPosition {
  int communicator = 0;
  int position = 0;
};
std::optional<std::vector<IssuedPosition>> find_order_cycle(
    std::span<const std::vector<IssuedPosition>> order);

}  // namespace moesim::models

// The role of a recorded communication call in a training step: the collective, its participants, and whether
// it carries tokens. Recorders name their functions freely ("gather_from_sequence_parallel_region_to_moe",
// "_gather_along_first_dim_moe"), so the kind comes from comm_func, the group from its label and the shape,
// and names decide only where these are missing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "traces/recording.h"

namespace moesim::traces {

enum class CommKind : std::uint8_t { all_gather, reduce_scatter, all_reduce, all_to_all, broadcast };

// `expert` is EP, `tp_expert` TP x EP: the label "exp" stands for both.
enum class CallGroup : std::uint8_t { tp, dp, expert, expert_dp, tp_expert };

struct CallRole {
  CommKind kind = CommKind::all_gather;
  CallGroup group = CallGroup::expert;
  // Token counts exchanged by the experts' ranks: one-dimensional integers, whereas tokens have a row each.
  bool counts = false;
  // Routing probabilities of another exchange's rows, one number per row; set by roles_of only.
  bool probabilities = false;

  bool exchanges_tokens() const {
    return kind == CommKind::all_to_all && group == CallGroup::expert && !counts && !probabilities;
  }
  // Returns the tokens that the AllGather dispatcher gathered.
  bool combines_gathered() const {
    return group == CallGroup::tp_expert &&
           (kind == CommKind::reduce_scatter || kind == CommKind::all_reduce);
  }
};

// Whether a sub-operation claims to be communication.
bool is_communication(const SubOperation& sub);

// Returns the role of a call; nullopt where neither fields nor names determine it.
//
// "exp" is EP for all-to-all, for counts and for tensors without rows; it is TP x EP for gathers and
// reductions of rows, which the AllGather dispatcher makes (docs/spec.md 3.4).
std::optional<CallRole> role_of(const SubOperation& sub);

// Returns the roles of an operation's calls, in order. Megatron's AlltoAll dispatcher sends probabilities
// after their rows, in a call like any exchange: as many rows, one column.
std::vector<std::optional<CallRole>> roles_of(std::span<const SubOperation> subs);

// Communication calls of a recording that have no role.
struct CallsWithoutRole {
  std::int64_t count = 0;
  SourcePlace first;
  std::string what;  // the first one: function, collective and label

  std::string sentence() const;  // "" without any
};
CallsWithoutRole calls_without_role(const Recording& recording);

}  // namespace moesim::traces

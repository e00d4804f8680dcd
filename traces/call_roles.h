// What a recorded communication call is in a training step: the collective, who takes part, and whether it
// carries tokens. Recorders name their functions as they like ("gather_from_sequence_parallel_region_to_moe",
// "_gather_along_first_dim_moe"), so that the kind comes from comm_func, the group from its label and the
// shape, and names decide only where these are silent.
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
  // Token counts that the experts' ranks tell each other: one-dimensional integers, where tokens have a row
  // each.
  bool counts = false;
  // The routing probabilities of rows that another exchange moves, one number a row; only roles_of tells.
  bool probabilities = false;

  bool exchanges_tokens() const {
    return kind == CommKind::all_to_all && group == CallGroup::expert && !counts && !probabilities;
  }
  // Brings back the tokens that the AllGather dispatcher gathered.
  bool combines_gathered() const {
    return group == CallGroup::tp_expert &&
           (kind == CommKind::reduce_scatter || kind == CommKind::all_reduce);
  }
};

// Whether a sub-operation claims to be communication.
bool is_communication(const SubOperation& sub);

// nullopt where neither fields nor names say what a call is.
//
// "exp" is EP for all-to-all, for counts and for tensors without rows; it is TP x EP for gathers and
// reductions of rows, which the AllGather dispatcher makes (docs/spec.md 3.4).
std::optional<CallRole> role_of(const SubOperation& sub);

// The roles of an operation's calls, in order. Megatron's AlltoAll dispatcher sends probabilities after the
// rows they belong to, in a call like any exchange: as many rows, one column.
std::vector<std::optional<CallRole>> roles_of(std::span<const SubOperation> subs);

// Communication calls of a recording that have no role.
struct CallsWithoutRole {
  std::int64_t count = 0;
  SourcePlace first;
  std::string what;  // the first one: function, collective and label

  std::string sentence() const;  // "" where there are none
};
CallsWithoutRole calls_without_role(const Recording& recording);

}  // namespace moesim::traces

#include "models/programs/program.h"

#include <algorithm>

#include "base/check.h"

namespace moesim::models {

std::string_view name_of(CommKind kind) {
  static constexpr std::string_view kNames[] = {"all_gather",      "reduce_scatter", "all_reduce",
                                                "all_to_all",      "all_to_all_v",   "all_gather_v",
                                                "reduce_scatter_v"};
  return kNames[static_cast<std::size_t>(kind)];
}

sim::CollectiveOp simulated(CommKind kind) {
  switch (kind) {
    case CommKind::kAllGather:
    case CommKind::kAllGatherV:
      return sim::CollectiveOp::all_gather;
    case CommKind::kReduceScatter:
    case CommKind::kReduceScatterV:
      return sim::CollectiveOp::reduce_scatter;
    case CommKind::kAllReduce:
      return sim::CollectiveOp::all_reduce;
    case CommKind::kAllToAll:
    case CommKind::kAllToAllV:
      return sim::CollectiveOp::all_to_all;
  }
  check_failed("unknown collective");
}

std::string_view name_of(GroupKind group) {
  static constexpr std::string_view kNames[] = {"tp_ep", "ep", "tp", "dense_tp"};
  return kNames[static_cast<std::size_t>(group)];
}

int Program::group_size(GroupKind group) const {
  switch (group) {
    case GroupKind::kTpEp:
      return ranks();
    case GroupKind::kEp:
      return ep_;
    case GroupKind::kTp:
      return etp_;
    case GroupKind::kDense:
      return dense_tp_;
  }
  return 1;
}

int Program::group_count(GroupKind group) const { return std::max(1, ranks() / group_size(group)); }

int Program::rank_of(GroupKind kind, int group, int member) const {
  switch (kind) {
    case GroupKind::kTpEp:
      return member;
    case GroupKind::kEp:
      return group + etp_ * member;
    case GroupKind::kTp:
      return member + etp_ * group;
    case GroupKind::kDense:
      return (member + group_size(kind) * group) % ranks();
  }
  return 0;
}

int Program::group_index(GroupKind kind, int rank) const {
  switch (kind) {
    case GroupKind::kTpEp:
      return 0;
    case GroupKind::kEp:
      return rank % etp_;
    case GroupKind::kTp:
      return rank / etp_;
    case GroupKind::kDense:
      return std::min(rank / group_size(kind), group_count(kind) - 1);
  }
  return 0;
}

int Program::member_index(GroupKind kind, int rank) const {
  switch (kind) {
    case GroupKind::kTpEp:
      return rank;
    case GroupKind::kEp:
      return rank / etp_;
    case GroupKind::kTp:
      return rank % etp_;
    case GroupKind::kDense:
      return rank % group_size(kind);
  }
  return 0;
}

int Program::host_syncs(const std::vector<Op>& pass) const {
  int most = 0;
  for (int r = 0; r < ranks(); ++r)
    most = std::max(most, static_cast<int>(std::count_if(pass.begin(), pass.end(), [&](const Op& op) {
                      return op.kind == OpKind::kHostWait && issues(op, r);
                    })));
  return most;
}

}  // namespace moesim::models

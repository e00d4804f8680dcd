#include "traces/call_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "traces/recording_rules.h"

namespace moesim::traces {

namespace {

// Returns whether the function or its caller has `word` in its name.
bool named(const SubOperation& sub, std::string_view word) {
  return sub.source.view().find(word) != std::string_view::npos ||
         sub.func_name.view().find(word) != std::string_view::npos;
}

std::optional<CommKind> kind_of(const SubOperation& sub) {
  const std::string_view comm = sub.comm_func.view();
  if (comm == "allgather") return CommKind::all_gather;
  if (comm == "reduce_scatter") return CommKind::reduce_scatter;
  if (comm == "allreduce") return CommKind::all_reduce;
  if (comm == "all_to_all" || comm == "alltoall") return CommKind::all_to_all;
  if (comm == "broadcast") return CommKind::broadcast;
  if (named(sub, "reduce_scatter")) return CommKind::reduce_scatter;
  if (named(sub, "all_to_all")) return CommKind::all_to_all;
  if (named(sub, "gather")) return CommKind::all_gather;
  if (named(sub, "allreduce") || named(sub, "all_reduce")) return CommKind::all_reduce;
  if (named(sub, "broadcast")) return CommKind::broadcast;
  return std::nullopt;
}

bool has_rows(const SubOperation& sub) { return sub.shape.has_dims() && sub.shape.dims().size() > 1; }

bool is_list(const SubOperation& sub) { return sub.shape.has_dims() && sub.shape.dims().size() == 1; }

bool has_integers(const SubOperation& sub) {
  return sub.dtype == "torch.int64" || sub.dtype == "torch.int32";
}

// Returns which of the two expert groups a call uses.
CallGroup expert_group(const SubOperation& sub, CommKind kind) {
  const bool gathers_or_reduces =
      kind == CommKind::all_gather || kind == CommKind::reduce_scatter || kind == CommKind::all_reduce;
  if (!gathers_or_reduces || named(sub, "expert_parallel")) return CallGroup::expert;
  return has_rows(sub) || named(sub, "_moe") ? CallGroup::tp_expert : CallGroup::expert;
}

std::optional<CallGroup> group_of(const SubOperation& sub, CommKind kind) {
  const std::string_view label = sub.group.view();
  if (label == "tp") return CallGroup::tp;
  if (label == "dp") return CallGroup::dp;
  if (label == "exp_dp" || label == "ep_dp") return CallGroup::expert_dp;
  if (label == "tp_exp" || label == "tp_ep") return CallGroup::tp_expert;
  // "ep" is the embedding group on lines of their own, which no call inside a step uses.
  if (label == "exp" || label == "ep") return expert_group(sub, kind);
  if (named(sub, "_moe") || named(sub, "expert_parallel")) return expert_group(sub, kind);
  if (named(sub, "sequence_parallel") || named(sub, "tensor_parallel")) return CallGroup::tp;
  return std::nullopt;
}

// Finds which of three consecutive exchanges holds probabilities where shapes are numbers of elements, as
// profilers write them: forward sends rows, probabilities and results, backward the gradients of results and
// then the other two in either order. `columns`: width of a row, the same for all. nullopt without a match.
struct Third {
  std::size_t probabilities = 0, rows = 0;
  std::int64_t columns = 0;
};

// For any hidden size: no such multiple occurs by chance in every layer.
constexpr std::int64_t kLeastColumns = 64;

std::optional<Third> third_of(std::span<const std::int64_t> elements) {
  if (elements.empty() || elements.size() % 3 != 0) return std::nullopt;
  for (Third found : {Third{1, 0}, Third{2, 1}, Third{1, 2}}) {
    found.columns = elements[found.rows] / std::max<std::int64_t>(1, elements[found.probabilities]);
    bool fits = found.columns >= kLeastColumns;
    for (std::size_t i = 0; fits && i < elements.size(); i += 3) {
      const std::int64_t probabilities = elements[i + found.probabilities], rows = elements[i + found.rows];
      fits = probabilities > 0 && rows % probabilities == 0 && rows / probabilities == found.columns &&
             elements[i + 3 - found.rows - found.probabilities] % found.columns == 0;
    }
    if (fits) return found;
  }
  return std::nullopt;
}

}  // namespace

bool is_communication(const SubOperation& sub) { return sub.comm_func.present() || sub.group.present(); }

std::optional<CallRole> role_of(const SubOperation& sub) {
  if (!is_communication(sub)) return std::nullopt;
  const auto kind = kind_of(sub);
  if (!kind) return std::nullopt;
  const auto group = group_of(sub, *kind);
  if (!group) return std::nullopt;
  const bool counts = *group == CallGroup::expert && is_list(sub) &&
                      (has_integers(sub) || named(sub, "expert_parallel")) &&
                      (*kind == CommKind::all_to_all || *kind == CommKind::all_gather);
  return CallRole{*kind, *group, counts};
}

std::vector<std::optional<CallRole>> roles_of(std::span<const SubOperation> subs) {
  std::vector<std::optional<CallRole>> roles;
  std::vector<std::size_t> exchanges;
  for (const SubOperation& sub : subs) {
    roles.push_back(role_of(sub));
    if (roles.back() && roles.back()->exchanges_tokens() && !sub.shape.dims().empty())
      exchanges.push_back(roles.size() - 1);
  }
  const auto rows = [&](std::size_t call) { return subs[call].shape.dims()[0]; };
  const auto one_column = [&](std::size_t call) { return subs[call].shape.elements() == rows(call); };
  const auto are_of = [&](std::size_t call, std::size_t other) {
    return rows(call) == rows(other) && !one_column(other);
  };
  if (std::ranges::all_of(exchanges, one_column)) {
    std::vector<std::int64_t> elements;
    elements.reserve(exchanges.size());
    for (const std::size_t call : exchanges) elements.push_back(rows(call));
    if (const auto third = third_of(elements))
      for (std::size_t i = third->probabilities; i < exchanges.size(); i += 3)
        roles[exchanges[i]]->probabilities = true;
    return roles;
  }
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    if (!one_column(exchanges[i])) continue;
    const bool after = i > 0 && are_of(exchanges[i], exchanges[i - 1]);
    const bool before = i + 1 < exchanges.size() && are_of(exchanges[i], exchanges[i + 1]);
    roles[exchanges[i]]->probabilities = after || before;
  }
  return roles;
}

std::string CallsWithoutRole::sentence() const {
  if (count == 0) return "";
  return fmt::format(
      "{} communication call{} cannot be given a role: {} is the first, {}; the replay knows nothing of {} "
      "and takes {} time for computing",
      count, count == 1 ? "" : "s", first.str(), what, count == 1 ? "it" : "them",
      count == 1 ? "its" : "their");
}

CallsWithoutRole calls_without_role(const Recording& recording) {
  CallsWithoutRole out;
  for (const RankRecording& rank : recording.ranks)
    for (const Operation& operation : rank.operations)
      for (const SubOperation& sub : rank.subs(operation)) {
        if (!is_communication(sub) || is_asynchronous(sub) || role_of(sub)) continue;
        if (out.count++ > 0) continue;
        out.first = rank.place(operation);
        out.what = fmt::format("{}, {} over {}", sub.source.view(),
                               sub.comm_func.present() ? sub.comm_func.view() : "no comm_func",
                               sub.group.present() ? sub.group.view() : "no group");
      }
  return out;
}

}  // namespace moesim::traces

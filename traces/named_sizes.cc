#include "traces/named_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>

#include "base/checked.h"
#include "traces/call_roles.h"

namespace moesim::traces {
namespace {

// Sequence parallelism divides an activation among the tensor-parallel ranks, by tokens or by columns.
bool whole_or_divided(std::int64_t shown, std::int64_t named, std::int64_t tp) {
  return shown == named || (named % tp == 0 && shown == named / tp);
}

class Names {
 public:
  explicit Names(const Recording& recording) : recording_(recording), named_(recording.named) {
    tp_ = std::max<std::int64_t>(1, named_.tp.value_or(1));
    tokens_ =
        checked_product("sl x bs of the name", {std::max<std::int64_t>(0, named_.seq.value_or(0)),
                                                std::max<std::int64_t>(1, named_.micro_batch.value_or(1))});
    hidden_ = std::max<std::int64_t>(0, named_.hidden.value_or(0));
  }

  std::optional<NameFault> experts(const ExpertRows& shown) const {
    const SourcePlace place{recording_.source};
    if (named_.experts && *named_.experts > 0 && shown.experts > 0 && *named_.experts != shown.experts)
      return NameFault{place, fmt::format("{} experts in the lines", shown.experts),
                       fmt::format("{} of the name", *named_.experts)};
    if (named_.layers && shown.moe_layers > *named_.layers)
      return NameFault{place, fmt::format("{} MoE layers in the lines", shown.moe_layers),
                       fmt::format("at most the {} layers of the name", *named_.layers)};
    return std::nullopt;
  }

  // Checks the first activation that a rank sends, and the first rows that its experts exchange.
  std::optional<NameFault> shapes(const RankRecording& rank) const {
    for (const Operation& operation : rank.operations)
      if ((operation.name == "send_forward" || operation.name == "send_backward") &&
          operation.shape.dims().size() > 1)
        return sent(rank.place(operation), operation.shape);
    for (const Operation& operation : rank.operations)
      if (operation.name == "forward_step") return exchanged(rank, operation);
    return std::nullopt;
  }

 private:
  // [sequence, micro batch, hidden], with the first two in either order.
  std::optional<NameFault> sent(const SourcePlace& place, Shape shape) const {
    const std::span<const std::int64_t> dims = shape.dims();
    const std::int64_t tokens =
        std::accumulate(dims.begin(), dims.end() - 1, std::int64_t{1}, std::multiplies<>());
    if (tokens_ > 0 && !whole_or_divided(tokens, tokens_, tp_))
      return NameFault{
          place, fmt::format("{} tokens in what is sent ({})", tokens, shape.str()),
          named_.micro_batch
              ? fmt::format("{} of sl{} and bs{} in the name", tokens_, *named_.seq, *named_.micro_batch)
              : fmt::format("{} of sl{} in the name, or a name with bs", tokens_, *named_.seq)};
    if (hidden_ > 0 && !whole_or_divided(dims.back(), hidden_, tp_))
      return NameFault{place, fmt::format("{} columns in what is sent ({})", dims.back(), shape.str()),
                       fmt::format("the hidden size {} of the name", hidden_)};
    return std::nullopt;
  }

  // One exchange of the hidden size suffices, since recorders may include other exchanges.
  std::optional<NameFault> exchanged(const RankRecording& rank, const Operation& forward) const {
    if (hidden_ == 0) return std::nullopt;
    Shape widest;
    for (const SubOperation& sub : rank.subs(forward)) {
      const std::optional<CallRole> role = role_of(sub);
      if (!role || !role->exchanges_tokens() || sub.shape.dims().size() < 2) continue;
      if (whole_or_divided(sub.shape.dims().back(), hidden_, tp_)) return std::nullopt;
      if (!widest.present() || sub.shape.dims().back() > widest.dims().back()) widest = sub.shape;
    }
    if (!widest.present()) return std::nullopt;
    return NameFault{
        rank.place(forward),
        fmt::format("{} columns in what experts exchange ({})", widest.dims().back(), widest.str()),
        fmt::format("the hidden size {} of the name", hidden_)};
  }

  const Recording& recording_;
  const NamedTopology& named_;
  std::int64_t tp_ = 1;
  std::int64_t tokens_ = 0;  // of a microbatch; 0: not named
  std::int64_t hidden_ = 0;  // 0: not named
};

}  // namespace

std::optional<NameFault> fault_in_names(const Recording& recording, const ExpertRows& shown) {
  const Names names(recording);
  if (auto fault = names.experts(shown)) return fault;
  for (const RankRecording& rank : recording.ranks)
    if (auto fault = names.shapes(rank)) return fault;
  return std::nullopt;
}

std::string unseen_tensor_parallelism(const Recording& recording) {
  if (recording.named.tp.value_or(1) < 2) return "";
  for (const RankRecording& rank : recording.ranks)
    for (const SubOperation& sub : rank.sub_operations)
      if (const auto role = role_of(sub);
          role && (role->group == CallGroup::tp || role->group == CallGroup::tp_expert))
        return "";
  return fmt::format(
      "suspect: the name says tp {} and no line has a call of that group; what the recorder did not see is "
      "priced as computing",
      *recording.named.tp);
}

}  // namespace moesim::traces

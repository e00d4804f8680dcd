#include "traces/recording_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/input_error.h"
#include "traces/call_roles.h"

namespace moesim::traces {

namespace {

// Host clocks are rounded to 0.01 ms and calls collect their attributes after the event: overlaps up to this
// limit are rounding, larger ones a broken recording.
constexpr double kClockSlackMs = 0.1;

}  // namespace

bool is_asynchronous(const SubOperation& sub) { return sub.source.view().ends_with("_async"); }

double call_start_ms(const Operation& operation, const SubOperation& sub) {
  const double stamp = sub.timestamp.value();
  return operation.form == LineForm::kV2 ? stamp : stamp - sub.duration.value();
}

namespace {

// A contradiction between the time stamps of an operation's calls, and its size.
struct Contradiction {
  double ms = 0;
  std::string found, expected;
};

std::vector<Contradiction> contradictions(const RankRecording& rank, const Operation& operation) {
  std::vector<Contradiction> all;
  const bool measured = !operation.timestamp.is_placeholder();
  double reached = measured ? operation.start_ms() : 0.0;
  double stamped = reached;  // stamp of the previous call
  for (const SubOperation& sub : rank.subs(operation)) {
    if (!is_communication(sub) || is_asynchronous(sub)) continue;
    const double begin = call_start_ms(operation, sub);
    // A late stamp moves a whole call, however long it waited: then the stamps give the distance.
    const double back = stamped - sub.timestamp.value();
    const double by = back > 0 ? std::min(back, reached - begin) : reached - begin;
    if (by > kClockSlackMs)
      all.push_back({by,
                     fmt::format("a call of {} at {:.2f} ms, before {:.2f} ms where the one before ends",
                                 sub.source.view(), begin, reached),
                     "calls in the order of their time stamps"});
    stamped = std::max(stamped, sub.timestamp.value());
    reached = std::max(reached, begin + sub.duration.value());
  }
  const double end = operation.timestamp.value();
  if (measured && reached > end + kClockSlackMs)
    all.push_back({reached - end,
                   fmt::format("calls that end {:.2f} ms after {}", reached - end, operation.name.view()),
                   "calls inside the operation"});
  return all;
}

}  // namespace

void require_times(const RankRecording& rank, const Operation& operation) {
  for (const Contradiction& one : contradictions(rank, operation))
    if (one.ms > kRepairedMs) throw InputError(rank.place(operation), one.found, one.expected);
}

std::vector<ClockRepair> repairs_in_times(const RankRecording& rank, const Operation& operation) {
  std::vector<ClockRepair> all;
  for (const Contradiction& one : contradictions(rank, operation))
    if (one.ms <= kRepairedMs) all.push_back({one.ms, one.found});
  return all;
}

void require_triggers(const RankRecording& rank) {
  std::vector<const Operation*> launched;
  for (const Operation& operation : rank.operations) {
    if (operation.form == LineForm::kGradientBucket) {
      launched.push_back(&operation);
      continue;
    }
    std::erase_if(launched, [&](const Operation* bucket) {
      return operation.cmd_uid.view() == rank.gradient_buckets.at(bucket->bucket).trigger_cmd_uid.view();
    });
  }
  if (launched.empty()) return;
  const GradientBucket& first = rank.gradient_buckets.at(launched.front()->bucket);
  throw InputError(rank.place(*launched.front()),
                   fmt::format("a gradient bucket launched by {}", first.trigger_cmd_uid.view()),
                   "a later line with this cmd_uid");
}

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

  void require_experts(const ExpertRows& shown) const {
    const SourcePlace place{recording_.source};
    if (named_.experts && *named_.experts > 0 && shown.experts > 0 && *named_.experts != shown.experts)
      throw InputError(place, fmt::format("{} experts in the lines", shown.experts),
                       fmt::format("{} of the name", *named_.experts));
    if (named_.layers && shown.moe_layers > *named_.layers)
      throw InputError(place, fmt::format("{} MoE layers in the lines", shown.moe_layers),
                       fmt::format("at most the {} layers of the name", *named_.layers));
  }

  // Checks the first activation that a rank sends, and the first rows that its experts exchange.
  void require_shapes(const RankRecording& rank) const {
    for (const Operation& operation : rank.operations)
      if ((operation.name == "send_forward" || operation.name == "send_backward") &&
          operation.shape.dims().size() > 1)
        return sent(rank.place(operation), operation.shape);
    for (const Operation& operation : rank.operations)
      if (operation.name == "forward_step") return exchanged(rank, operation);
  }

 private:
  // [sequence, micro batch, hidden], with the first two in either order.
  void sent(const SourcePlace& place, Shape shape) const {
    const std::span<const std::int64_t> dims = shape.dims();
    const std::int64_t tokens =
        std::accumulate(dims.begin(), dims.end() - 1, std::int64_t{1}, std::multiplies<>());
    if (tokens_ > 0 && !whole_or_divided(tokens, tokens_, tp_))
      throw InputError(
          place, fmt::format("{} tokens in what is sent ({})", tokens, shape.str()),
          named_.micro_batch
              ? fmt::format("{} of sl{} and bs{} in the name", tokens_, *named_.seq, *named_.micro_batch)
              : fmt::format("{} of sl{} in the name, or a name with bs", tokens_, *named_.seq));
    if (hidden_ > 0 && !whole_or_divided(dims.back(), hidden_, tp_))
      throw InputError(place, fmt::format("{} columns in what is sent ({})", dims.back(), shape.str()),
                       fmt::format("the hidden size {} of the name", hidden_));
  }

  // One exchange of the hidden size suffices, since recorders may include other exchanges.
  void exchanged(const RankRecording& rank, const Operation& forward) const {
    if (hidden_ == 0) return;
    Shape widest;
    for (const SubOperation& sub : rank.subs(forward)) {
      const std::optional<CallRole> role = role_of(sub);
      if (!role || !role->exchanges_tokens() || sub.shape.dims().size() < 2) continue;
      if (whole_or_divided(sub.shape.dims().back(), hidden_, tp_)) return;
      if (!widest.present() || sub.shape.dims().back() > widest.dims().back()) widest = sub.shape;
    }
    if (!widest.present()) return;
    throw InputError(
        rank.place(forward),
        fmt::format("{} columns in what experts exchange ({})", widest.dims().back(), widest.str()),
        fmt::format("the hidden size {} of the name", hidden_));
  }

  const Recording& recording_;
  const NamedTopology& named_;
  std::int64_t tp_ = 1;
  std::int64_t tokens_ = 0;  // of a microbatch; 0: not named
  std::int64_t hidden_ = 0;  // 0: not named
};

}  // namespace

void require_names(const Recording& recording, const ExpertRows& shown) {
  const Names names(recording);
  names.require_experts(shown);
  for (const RankRecording& rank : recording.ranks) names.require_shapes(rank);
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

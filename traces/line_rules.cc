#include "traces/line_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

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
  Fault fault;
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
                     {fmt::format("a call of {} at {:.2f} ms, before {:.2f} ms where the one before ends",
                                  sub.source.view(), begin, reached),
                      "calls in the order of their time stamps"}});
    stamped = std::max(stamped, sub.timestamp.value());
    reached = std::max(reached, begin + sub.duration.value());
  }
  const double end = operation.timestamp.value();
  if (measured && reached > end + kClockSlackMs)
    all.push_back({reached - end,
                   {fmt::format("calls that end {:.2f} ms after {}", reached - end, operation.name.view()),
                    "calls inside the operation"}});
  return all;
}

}  // namespace

std::optional<Fault> fault_in_times(const RankRecording& rank, const Operation& operation) {
  for (Contradiction& one : contradictions(rank, operation))
    if (one.ms > kRepairedMs) return std::move(one.fault);
  return std::nullopt;
}

std::vector<ClockRepair> repairs_in_times(const RankRecording& rank, const Operation& operation) {
  std::vector<ClockRepair> all;
  for (const Contradiction& one : contradictions(rank, operation))
    if (one.ms <= kRepairedMs) all.push_back({one.ms, one.fault.found});
  return all;
}

const Operation* bucket_without_trigger(const RankRecording& rank) {
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
  return launched.empty() ? nullptr : launched.front();
}

Fault fault_of_bucket(const RankRecording& rank, const Operation& bucket) {
  return {fmt::format("a gradient bucket launched by {}",
                      rank.gradient_buckets.at(bucket.bucket).trigger_cmd_uid.view()),
          "a later line with this cmd_uid"};
}

}  // namespace moesim::traces

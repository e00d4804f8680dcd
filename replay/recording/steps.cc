#include "replay/recording/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "base/units.h"
#include "traces/call_roles.h"
#include "traces/recording_facts.h"
#include "traces/recording_rules.h"

namespace moesim::replay {

namespace {

constexpr std::array<std::pair<std::string_view, StepKind>, 13> kSteps{{
    {"get_batch", StepKind::get_batch},
    {"forward_step", StepKind::forward},
    {"loss_func", StepKind::loss},
    {"backward_step", StepKind::backward},
    {"send_forward", StepKind::send_forward},
    {"recv_forward", StepKind::recv_forward},
    {"send_backward", StepKind::send_backward},
    {"recv_backward", StepKind::recv_backward},
    {"dp_allreduce", StepKind::dp_all_reduce},
    {"exp_dp_allreduce", StepKind::expert_all_reduce},
    {"ep_dp_allreduce", StepKind::expert_all_reduce},
    {"ep_allreduce", StepKind::embedding_all_reduce},
    {"optimizer_step", StepKind::optimizer},
}};

StepKind kind_of(std::string_view name) {
  for (const auto& [word, kind] : kSteps)
    if (word == name) return kind;
  return StepKind::other;
}

sim::CollectiveOp op_of(traces::CommKind kind) {
  switch (kind) {
    case traces::CommKind::all_gather:
      return sim::CollectiveOp::all_gather;
    case traces::CommKind::reduce_scatter:
      return sim::CollectiveOp::reduce_scatter;
    case traces::CommKind::all_reduce:
      return sim::CollectiveOp::all_reduce;
    case traces::CommKind::all_to_all:
      return sim::CollectiveOp::all_to_all;
    case traces::CommKind::broadcast:
      return sim::CollectiveOp::broadcast;
  }
  check_failed("unknown kind of communication");
}

GroupKind group_of(traces::CallGroup group) {
  switch (group) {
    case traces::CallGroup::tp:
      return GroupKind::tp;
    case traces::CallGroup::dp:
      return GroupKind::dp;
    case traces::CallGroup::expert:
      return GroupKind::expert;
    case traces::CallGroup::expert_dp:
      return GroupKind::expert_dp;
    case traces::CallGroup::tp_expert:
      return GroupKind::tp_expert;
  }
  check_failed("unknown group of a call");
}

// Bytes of an element without a recorded type: torch's default, with a warning.
constexpr int kUntypedBytes = 4;

Call call_of(const traces::SubOperation& sub, const traces::CallRole& role) {
  Call call;
  call.source = sub.source.view();
  // Counts replace the gather of counts and cost the same, a latency.
  call.op = role.counts ? sim::CollectiveOp::all_gather : op_of(role.kind);
  call.group = group_of(role.group);
  const auto dims = sub.shape.dims();
  call.rows = dims.empty() ? 1 : dims[0];
  for (std::size_t d = 1; d < dims.size(); ++d) call.row_elements *= dims[d];
  call.element_bytes = traces::dtype_bytes(sub.dtype.view()).value_or(kUntypedBytes);
  call.probabilities = role.probabilities;
  call.recorded_us = sub.duration.value() * kUsPerMs;
  return call;
}

// Finds the position in a step's segments of a moment `at_us` after its start.
void place_bucket(const Step& step, double at_us, Bucket& bucket) {
  double reached = 0;
  for (std::size_t s = 0; s < step.segments_us.size(); ++s) {
    const double length = step.segments_us[s];
    bucket.segment = s;
    bucket.fraction = length > 0 ? std::clamp((at_us - reached) / length, 0.0, 1.0) : 0.0;
    reached += length;
    if (at_us <= reached || s == step.calls.size()) return;
    reached += step.calls[s].recorded_us;
    bucket.fraction = 1;
  }
}

// Buffer 1 holds the experts' gradients, whatever the label says (docs/formats.md).
Bucket bucket_of(const traces::GradientBucket& line) {
  Bucket bucket;
  bucket.group = line.buffer_id == 1 ? GroupKind::expert_dp : GroupKind::dp;
  bucket.elements = line.bucket_numel;
  bucket.element_bytes = traces::dtype_bytes(line.grad_dtype.view()).value_or(kUntypedBytes);
  if (line.completion_timestamp && line.launch_timestamp)
    bucket.recorded_us =
        std::max(0.0, line.completion_timestamp->value() - line.launch_timestamp->value()) * kUsPerMs;
  return bucket;
}

// Returns whether a call in a scaling recording is hidden in runs: tensor-parallel reductions of backward,
// launched before the product of the weights' gradient and awaited after it.
bool is_hidden_in_runs(const traces::SubOperation& sub, StepKind step) {
  const std::string_view what = sub.func_name.view();
  return step == StepKind::backward && sub.group.view() == "tp" && sub.comm_func.view() == "allreduce" &&
         (what.starts_with("normlinear_bwd") || what.starts_with("embedding_bwd"));
}

}  // namespace

std::string_view name(StepKind kind) {
  static constexpr std::array<std::string_view, kStepKinds> kNames{
      "get_batch",    "forward",       "loss",          "backward",     "send_forward",
      "recv_forward", "send_backward", "recv_backward", "dp_allreduce", "exp_dp_allreduce",
      "ep_allreduce", "optimizer",     "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool is_p2p(StepKind kind) { return kind >= StepKind::send_forward && kind <= StepKind::recv_backward; }

bool is_gradient_sync(StepKind kind) {
  return kind >= StepKind::dp_all_reduce && kind <= StepKind::embedding_all_reduce;
}

bool is_exchange(const Call& call) {
  return call.op == sim::CollectiveOp::all_to_all && call.group == GroupKind::expert && !call.probabilities;
}

bool in_experts(const Step& step, std::size_t segment) {
  if (!step.expert_segments.empty()) return step.expert_segments.at(segment);
  if (segment == 0 || segment >= step.calls.size()) return false;
  std::size_t exchanges = 0;
  for (std::size_t c = 0; c < segment; ++c) exchanges += is_exchange(step.calls[c]);
  if (exchanges % 2 == 1) return true;
  const Call& before = step.calls[segment - 1];
  const Call& after = step.calls[segment];
  return before.op == sim::CollectiveOp::all_gather && before.group == GroupKind::tp_expert &&
         (after.op == sim::CollectiveOp::reduce_scatter || after.op == sim::CollectiveOp::all_reduce) &&
         after.group == GroupKind::tp_expert;
}

SourcePlace place_of(const RankSteps& rank, const Step& step) {
  return rank.recording && step.line ? rank.recording->place(*step.line) : SourcePlace{};
}

namespace {

// Removes time from a step whose calls were stamped late, until it has its recorded length: from the
// computing between calls, the last first, then from the calls.
void give_way(Step& step, double excess_us) {
  for (auto segment = step.segments_us.rbegin(); segment != step.segments_us.rend(); ++segment) {
    const double taken = std::min(*segment, excess_us);
    *segment -= taken, excess_us -= taken;
  }
  for (auto call = step.calls.rbegin(); call != step.calls.rend(); ++call) {
    const double taken = std::min(call->recorded_us, excess_us);
    call->recorded_us -= taken, excess_us -= taken;
  }
}

// Makes steps of the lines of a recording, one rank after the other.
class Interpreter {
 public:
  explicit Interpreter(const traces::Recording& recording) : recording_(recording) {}

  RecordedJob job() {
    job_.topology = topology_of(recording_);
    traces::require_names(recording_, traces::expert_rows(recording_));
    if (std::string suspect = traces::unseen_tensor_parallelism(recording_); !suspect.empty())
      job_.warnings.push_back(std::move(suspect));
    if (const auto strangers = traces::calls_without_role(recording_); strangers.count > 0)
      job_.unknown_calls = strangers.sentence();
    for (const traces::RankRecording& recorded : recording_.ranks) add_rank(recorded);
    if (!job_.realistic)
      for (const Place& at : hidden_) job_.ranks[at.rank].steps[at.step].calls[at.call].modelled_us = 0;
    warn();
    return std::move(job_);
  }

 private:
  struct Place {
    std::size_t rank, step, call;
  };

  void add_rank(const traces::RankRecording& recorded) {
    RankSteps rank;
    rank.recording = &recorded;
    rank.rank = recorded.rank;
    job_.realistic = job_.realistic || traces::says_real_run(recorded);
    launched_.clear();
    for (std::size_t i = 0; i < recorded.operations.size(); ++i) {
      const traces::Operation& line = recorded.operations[i];
      if (line.form == traces::LineForm::kGradientBucket)
        launched_.push_back(&line);
      else
        rank.steps.push_back(step_of(recorded, i, rank.steps.size()));
    }
    traces::require_triggers(recorded);
    // Placeholders of a rank without buckets represent their own reduction.
    if (std::ranges::none_of(rank.steps, [](const Step& step) { return !step.buckets.empty(); }))
      for (Step& step : rank.steps) step.waits_for_buckets = false;
    job_.ranks.push_back(std::move(rank));
  }

  // The step of line `i`, the rank's `number`-th.
  Step step_of(const traces::RankRecording& recorded, std::size_t i, std::size_t number) {
    const traces::Operation& line = recorded.operations[i];
    Step step;
    step.kind = kind_of(line.name.view());
    step.microbatch = line.batch_id;
    step.line = &line;
    step.fused_with_next = traces::is_fused_pair(recorded.operations, i);
    step.duration_us = line.duration.value() * kUsPerMs;
    // Placeholders were never measured and have no time.
    const bool measured = !line.timestamp.is_placeholder();
    const double end = line.timestamp.value() * kUsPerMs;
    step.start_us = measured ? end - step.duration_us : 0;
    step.elements = line.shape.elements();
    step.element_bytes = traces::dtype_bytes(line.dtype.view()).value_or(kUntypedBytes);
    const bool transfer = is_p2p(step.kind) || is_gradient_sync(step.kind);
    if (transfer) look_at_type(recorded, line, line.shape.has_dims(), line.dtype.view());
    if (is_p2p(step.kind) || (step.kind == StepKind::forward && step.microbatch > 0)) job_.realistic = true;

    traces::require_times(recorded, line);
    const std::vector<traces::ClockRepair> repaired = traces::repairs_in_times(recorded, line);
    for (const traces::ClockRepair& repair : repaired) {
      ++repairs_;
      most_ms_ = std::max(most_ms_, repair.ms);
    }
    const double reached = add_calls(recorded, line, number, step);
    const std::vector<double> pending = take_buckets(recorded, line, step);
    step.waits_for_buckets =
        is_gradient_sync(step.kind) &&
        (line.op_semantics.view() == "wait_flush_only" || line.op_semantics.view() == "metadata_placeholder");
    if (transfer)
      step.segments_us.clear();  // the step is the transfer itself
    else
      step.segments_us.push_back(measured ? std::max(0.0, end - reached) : step.duration_us);
    if (measured && !repaired.empty() && reached > end) give_way(step, reached - end);
    for (std::size_t b = 0; b < step.buckets.size(); ++b) place_bucket(step, pending[b], step.buckets[b]);
    return step;
  }

  // Returns the end of the last call, us.
  double add_calls(const traces::RankRecording& recorded, const traces::Operation& line, std::size_t number,
                   Step& step) {
    double reached = step.start_us;
    const auto subs = recorded.subs(line);
    const auto roles = traces::roles_of(subs);
    for (std::size_t c = 0; c < subs.size(); ++c) {
      const traces::SubOperation& sub = subs[c];
      const auto& role = roles[c];
      if (!role || traces::is_asynchronous(sub)) continue;
      Call call = call_of(sub, *role);
      look_at_type(recorded, line, sub.shape.has_dims(), sub.dtype.view());
      const double begin = traces::call_start_ms(line, sub) * kUsPerMs;
      step.segments_us.push_back(std::max(0.0, begin - reached));
      reached = std::max(reached, begin) + call.recorded_us;
      if (is_hidden_in_runs(sub, step.kind))
        hidden_.push_back({job_.ranks.size(), number, step.calls.size()});
      step.calls.push_back(call);
    }
    return reached;
  }

  // Gives the step the launched buckets that it triggers. Returns their launch times, us after its start.
  std::vector<double> take_buckets(const traces::RankRecording& recorded, const traces::Operation& line,
                                   Step& step) {
    std::vector<double> pending;
    std::erase_if(launched_, [&](const traces::Operation* other) {
      const traces::GradientBucket& bucket = recorded.gradient_buckets.at(other->bucket);
      if (line.cmd_uid.view() != bucket.trigger_cmd_uid.view()) return false;
      step.buckets.push_back(bucket_of(bucket));
      pending.push_back(bucket.launch_timestamp ? bucket.launch_timestamp->value() * kUsPerMs - step.start_us
                                                : step.duration_us);
      unseen_ = unseen_ || (step.buckets.back().recorded_us <= 0 && !bucket.metadata_only);
      return true;
    });
    return pending;
  }

  void look_at_type(const traces::RankRecording& of, const traces::Operation& line, bool sized,
                    std::string_view dtype) {
    if (sized && !traces::dtype_bytes(dtype) && untyped_++ == 0) first_untyped_ = of.place(line);
  }

  void warn() {
    if (untyped_ > 0)
      job_.warnings.push_back(
          fmt::format("{} transfer{} without a data type, {} is the first: counted with {} bytes an element",
                      untyped_, untyped_ == 1 ? "" : "s", first_untyped_.str(), kUntypedBytes));
    if (repairs_ > 0)
      job_.warnings.push_back(fmt::format(
          "{} time stamp{} of calls contradict{} the order of lines, by up to {:.2f} ms: repaired, calls keep "
          "their order and durations (moesim trace check lists them)",
          repairs_, repairs_ == 1 ? "" : "s", repairs_ == 1 ? "s" : "", most_ms_));
    if (unseen_)
      job_.warnings.push_back(
          "gradient buckets without a time of completion: their transfers are taken as hidden behind "
          "backward");
  }

  const traces::Recording& recording_;
  RecordedJob job_;
  std::vector<const traces::Operation*> launched_;  // buckets without the line of their trigger so far
  std::vector<Place> hidden_;                       // calls hidden by computing in a run
  std::size_t repairs_ = 0;                         // of time stamps
  double most_ms_ = 0;
  bool unseen_ = false;      // a bucket of a run whose end was not observed
  std::size_t untyped_ = 0;  // transfers of a shape without a data type
  SourcePlace first_untyped_;
};

}  // namespace

RecordedJob interpret(const traces::Recording& recording) { return Interpreter(recording).job(); }

}  // namespace moesim::replay

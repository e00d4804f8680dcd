// A recording interpreted: what each rank did, cut at its communication calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/recording/topology.h"
#include "sim/graph/collective.h"
#include "sim/graph/task_graph.h"
#include "traces/recording.h"

namespace moesim::replay {

// Top-level operations by what they are to a schedule.
enum class StepKind : std::uint8_t {
  get_batch,
  forward,
  loss,
  backward,
  send_forward,
  recv_forward,
  send_backward,
  recv_backward,
  dp_all_reduce,
  expert_all_reduce,
  embedding_all_reduce,
  optimizer,
  other,
};
inline constexpr std::size_t kStepKinds = 13;
std::string_view name(StepKind kind);
bool is_p2p(StepKind kind);
bool is_gradient_sync(StepKind kind);

// One communication call inside a step.
struct Call {
  std::string_view source;  // traced function; a word of the recording's pool
  sim::CollectiveOp op = sim::CollectiveOp::all_gather;
  GroupKind group = GroupKind::expert;
  std::int64_t rows = 0;          // first dimension of the input
  std::int64_t row_elements = 1;  // product of the others
  int element_bytes = 2;
  double recorded_us = 0;      // what the recorder measured, waiting included
  bool probabilities = false;  // of the rows of another exchange
  // Of a call that was not recorded but made by a model: what it takes from the last arrival, for this
  // member.
  std::optional<double> modelled_us;
  std::optional<sim::Category> category;  // where its program says so

  std::uint64_t input_bytes() const {
    return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(row_elements) *
           static_cast<std::uint64_t>(element_bytes);
  }
};

// A reduction of some gradients that was launched during a step and runs beside it (ddp_grad_comm lines).
struct Bucket {
  GroupKind group = GroupKind::dp;
  std::int64_t elements = 0;
  int element_bytes = 4;
  double recorded_us = 0;   // from launch to completion, waiting included; 0 where nobody saw it
  std::size_t segment = 0;  // of the step in which it was launched,
  double fraction = 0;      // after this share of it
};

// One top-level operation. segments_us has one entry more than calls: the time before, between and after
// them.
struct Step {
  StepKind kind = StepKind::other;
  int microbatch = 0;
  bool fused_with_next = false;  // one send-and-receive call that was written as two lines
  double start_us = 0;           // host clock of the node
  double duration_us = 0;
  std::vector<double> segments_us;
  std::vector<Call> calls;
  // How much of the jitter of launches each segment shows that was laid out for another size: none where the
  // device became the bound. Empty: all.
  std::vector<double> jitter_share;
  // What each segment is, where a program says so: whether the experts work in it, and what its time is.
  std::vector<bool> expert_segments;
  std::vector<sim::Category> segment_categories;
  std::vector<Bucket> buckets;     // in launch order
  bool waits_for_buckets = false;  // a gradient reduction that only waits for those launched before
  std::int64_t elements = 0;       // of the tensor that is sent or reduced
  int element_bytes = 0;
  const traces::Operation* line = nullptr;  // lives as long as the recording

  double end_us() const { return start_us + duration_us; }
};

// An exchange of rows with the experts' ranks: dispatch or combine of the AlltoAll dispatcher, or their
// gradients; not that of the rows' probabilities.
bool is_exchange(const Call& call);

// Whether the experts work in this segment, so that its time depends on the rows received: between the two
// exchanges of a layer, whatever tensor-parallel calls lie there, or between the gather and the reduction of
// the AllGather dispatcher.
bool in_experts(const Step& step, std::size_t segment);

struct RankSteps {
  const traces::RankRecording* recording = nullptr;
  int rank = 0;
  std::vector<Step> steps;  // in the order of the file
};

struct RecordedJob {
  Topology topology;
  bool realistic = false;  // holds point-to-point lines or several microbatches; else a scaling recording
  std::vector<RankSteps> ranks;
  std::string unknown_calls;  // how many communication calls have no role, in a sentence; "": none
  std::vector<std::string> warnings;
};

// Interprets `recording`, which must outlive the result. Calls overlapped with computing (asynchronous
// windows) are kept as computing time; those that a run would overlap, in a scaling recording, are rendezvous
// that take no time. Throws InputError with file and line for shapes, groups or time stamps
// that make no sense.
RecordedJob interpret(const traces::Recording& recording);

// "file:line" of a step for messages.
SourcePlace place_of(const RankSteps& rank, const Step& step);

}  // namespace moesim::replay

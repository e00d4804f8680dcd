// An interpreted recording: the steps of each rank, cut at its communication calls.
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

// Kinds of top-level operations.
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
  double recorded_us = 0;      // measured by the recorder, waiting included
  bool probabilities = false;  // carries the probabilities of another exchange's rows
  // For a call made by a model instead of recorded: time from the last arrival, for this member.
  std::optional<double> modelled_us;
  std::optional<sim::Category> category;  // where its program sets it

  std::uint64_t input_bytes() const {
    return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(row_elements) *
           static_cast<std::uint64_t>(element_bytes);
  }
};

// A reduction of gradients launched during a step, beside which it runs (ddp_grad_comm lines).
struct Bucket {
  GroupKind group = GroupKind::dp;
  std::int64_t elements = 0;
  int element_bytes = 4;
  double recorded_us = 0;   // from launch to completion, waiting included; 0: not observed
  std::size_t segment = 0;  // segment of the step in which it was launched
  double fraction = 0;      // share of the segment after which it was launched
};

// A segment of a rescaled step is bound by the host, which jitters, or by the GPU.
struct Bound {
  double jitter = 1;       // share of the launch jitter: 0 where the GPU became the bound
  double products_us = 0;  // of matrix products and attention, where no wait lets the GPU's clock recover
};

// One top-level operation. segments_us has one entry more than calls: the time before, between and after
// them.
struct Step {
  StepKind kind = StepKind::other;
  int microbatch = 0;
  bool fused_with_next = false;  // one send-and-receive call written as two lines
  double start_us = 0;           // host clock of the node
  double duration_us = 0;
  double gap_us = 0;  // to be simulated: host time since the previous step; the GPU is idle
  std::vector<double> segments_us;
  std::vector<Call> calls;
  std::vector<Bound> bounds;  // of each segment of a rescaled step; empty: Bound()
  // For each segment, where a program sets it: whether the experts run in it, and its category.
  std::vector<bool> expert_segments;
  std::vector<sim::Category> segment_categories;
  std::vector<Bucket> buckets;     // in launch order
  bool waits_for_buckets = false;  // a gradient reduction that only waits for earlier launched ones
  std::int64_t elements = 0;       // of the tensor that is sent or reduced
  int element_bytes = 0;
  const traces::Operation* line = nullptr;  // valid as long as the recording

  double end_us() const { return start_us + duration_us; }
};

// Whether the call exchanges rows with the experts' ranks: dispatch or combine of the AlltoAll dispatcher, or
// their gradients; not the exchange of the rows' probabilities.
bool is_exchange(const Call& call);

// Whether the experts run in this segment, so that its time depends on the rows received: between the two
// exchanges of a layer, whatever tensor-parallel calls lie there, or between the gather and the reduction of
// the AllGather dispatcher.
bool in_experts(const Step& step, std::size_t segment);

// The steps of one rank in order, recorded or to be simulated.
struct RankSteps {
  const traces::RankRecording* recording = nullptr;  // null: made without one
  int rank = 0;
  std::vector<Step> steps;
};

struct RecordedJob {
  Topology topology;
  bool realistic = false;  // contains point-to-point lines or several microbatches; else a scaling recording
  std::vector<RankSteps> ranks;
  std::string unknown_calls;  // number of communication calls without a role, in a sentence; "": none
  std::vector<std::string> warnings;
};

// Interprets `recording`, which must outlive the result. Calls overlapped with computing (asynchronous
// windows) count as computing time; those that a run would overlap, in a scaling recording, are rendezvous
// without duration. Throws InputError with file and line for invalid shapes, groups or time stamps.
RecordedJob interpret(const traces::Recording& recording);

// Returns "file:line" of a step for messages; empty for one that was not recorded.
SourcePlace place_of(const RankSteps& rank, const Step& step);

}  // namespace moesim::replay

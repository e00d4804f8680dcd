// Runs the passes of a pipeline: each stage in the order of its schedule, with messages from rank to rank
// between stages, and with parameters, gradients and the optimizer around them.
//
// The stages' ranks run their passes in lockstep (sim/run/lockstep.h), each stage on its own clocks. The
// order on every stage is fixed, so the recursion is exact and linear. tests/models/pipeline_run_test.cc
// compares it with sim::run on the same passes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/step/pipeline_schedule.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// Transfers around the passes, in picoseconds. Vectors are indexed by global chunk; empty: none.
struct PipelineTransfers {
  std::vector<std::int64_t> send;  // of an activation from this chunk to the next, and of a gradient back
  // First and last microbatch: a chunk's parameters arrive no earlier than this (their all-gather follows the
  // previous step's optimizer), and its gradients travel this long after its last backward. Transfers of one
  // stage go one after the other.
  std::vector<std::int64_t> parameters, gradients;
  // Number of pieces: with overlap, a chunk starts when the first piece of parameters is there, and only the
  // last piece of gradients remains when it ends.
  std::vector<std::int32_t> pieces;
  // Time for which a chunk's own collectives occupy the link of parameters and gradients.
  std::vector<std::int64_t> forward_link, backward_link;
  bool gradients_overlap = true;  // false: all gradients travel after the last pass of the stage
  bool parameters_overlap = true;
  double computing_slower = 1;  // slowdown of computing beside these collectives
  // Sharded weights of one stage: time in which a pass gathers and reduces beside its computing, and the part
  // of the pass's own time in which its links are busy. `exposed`, part of `forward`, cannot be hidden.
  struct Sharded {
    std::int64_t forward = 0, backward = 0;
    std::int64_t forward_link = 0, backward_link = 0;
    std::int64_t exposed = 0;
  };
  std::vector<Sharded> sharded;
  // Time in which a pass of each chunk sends activations to the host's memory, and a backward pass fetches
  // them, beside its computing.
  std::vector<std::int64_t> offloaded;
  std::vector<std::int64_t> optimizer;  // by stage, after all its gradients have arrived
};

// The work of a stage in a slot of its schedule.
class PipelinePasses {
 public:
  virtual ~PipelinePasses() = default;
  // Runs the slot's programs on the stage's clocks.
  virtual void run(int stage, const PipelineSlot& slot, sim::Lockstep& clocks) = 0;
  // Slots with equal numbers run the same programs; nullopt: unlike any other.
  virtual std::optional<std::uint64_t> same(int, const PipelineSlot&) const { return std::nullopt; }
  // For slots with a number: host time of the launches, and whether the host ever waits.
  struct Host {
    std::int64_t launching_ps = 0;
    bool waits = true;
  };
  virtual Host host(int, const PipelineSlot&) { return {}; }
};

struct PipelineRun {
  std::int64_t total = 0;
  int critical_stage = 0;  // the first of those that end last
  int critical_rank = 0;   // in that stage, the first of those that end their last pass last
  std::vector<std::int64_t> stage_end;
  // For every slot: time from the start of its passes on the last rank to their end on the last rank.
  std::vector<std::vector<std::int64_t>> slot_ps;
  std::vector<std::vector<std::int64_t>> slot_end;  // end on the last rank
  sim::RankSummary booked;  // of the critical rank, where requested; its sum is the total
};

// Aborts (check) for a schedule that cannot run. `book` runs the critical stage twice.
PipelineRun run_pipeline(const PipelineShape& shape, const std::vector<std::vector<PipelineSlot>>& schedule,
                         const PipelineTransfers& transfers, std::size_t ranks,
                         const sim::LockstepOptions& options, PipelinePasses& passes, bool book);

}  // namespace moesim::models

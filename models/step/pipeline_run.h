// Runs the passes of a pipeline: on every stage the order of the schedule, between stages messages from rank
// to rank, around them parameters, gradients and the optimizer.
//
// The stages' ranks run their passes in lockstep (sim/run/lockstep.h), each stage on clocks of its own; the
// order on every stage is fixed, so that the recursion is exact and linear. tests/models/pipeline_run_test.cc
// holds it against sim::run on the same passes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/step/pipeline_schedule.h"
#include "sim/run/lockstep.h"

namespace moesim::models {

// Transfers around the passes, in picoseconds. The vectors go by global chunk; empty: none.
struct PipelineTransfers {
  std::vector<std::int64_t> send;  // of an activation from this chunk to the next, and of a gradient back
  // First and last microbatch: a chunk's parameters arrive no earlier than this (their all-gather after the
  // optimizer of the step before), and its gradients travel this long after its last backward. Transfers of
  // one stage go one after the other.
  std::vector<std::int64_t> parameters, gradients;
  // Pieces in which they travel: with overlap, the first piece of parameters is enough to start the chunk and
  // the last piece of gradients is what is left when it ends.
  std::vector<std::int32_t> pieces;
  // How long a chunk's own collectives hold the link that parameters and gradients take.
  std::vector<std::int64_t> forward_link, backward_link;
  bool gradients_overlap = true;  // otherwise all gradients travel after the last pass of the stage
  bool parameters_overlap = true;
  // Sharded weights of one stage: what a pass gathers and reduces beside its computing, and how much of the
  // pass's own time the links they take are busy. `exposed` of `forward` hides behind nothing.
  struct Sharded {
    std::int64_t forward = 0, backward = 0;
    std::int64_t forward_link = 0, backward_link = 0;
    std::int64_t exposed = 0;
  };
  std::vector<Sharded> sharded;
  // How long a pass of each chunk sends activations to the host's memory, and a backward pass fetches them:
  // beside its computing.
  std::vector<std::int64_t> offloaded;
  std::vector<std::int64_t> optimizer;  // by stage, when all its gradients have come
};

// What a stage runs for a slot of its schedule.
class PipelinePasses {
 public:
  virtual ~PipelinePasses() = default;
  // Runs the slot's programs on the stage's clocks.
  virtual void run(int stage, const PipelineSlot& slot, sim::Lockstep& clocks) = 0;
  // Slots with the same number run the same programs; nothing: with no other.
  virtual std::optional<std::uint64_t> same(int, const PipelineSlot&) const { return std::nullopt; }
  // Host time of the slot's launches, and whether its host ever waits: of slots with a number.
  struct Host {
    std::int64_t launching_ps = 0;
    bool waits = true;
  };
  virtual Host host(int, const PipelineSlot&) { return {}; }
};

struct PipelineRun {
  std::int64_t total = 0;
  int critical_stage = 0;  // the first that ends last
  int critical_rank = 0;   // of that stage, the first that ends its last pass last
  std::vector<std::int64_t> stage_end;
  // Of every slot: from the start of its passes on the last rank to their end on the last rank.
  std::vector<std::vector<std::int64_t>> slot_ps;
  std::vector<std::vector<std::int64_t>> slot_end;  // and when they had ended there
  sim::RankSummary booked;  // of the critical rank, where asked for; adds up to the total
};

// Aborts (check) for a schedule that cannot be performed. With `book` the critical stage is run twice.
PipelineRun run_pipeline(const PipelineShape& shape, const std::vector<std::vector<PipelineSlot>>& schedule,
                         const PipelineTransfers& transfers, std::size_t ranks,
                         const sim::LockstepOptions& options, PipelinePasses& passes, bool book);

}  // namespace moesim::models

// Passes of the stages of a training step: the priced programs of every layer and microbatch, forward,
// backward, split, or two passes together.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "models/costs/program_prices.h"
#include "models/programs/interleave.h"
#include "models/step/faults.h"
#include "models/step/forecast.h"
#include "models/step/layer_programs.h"
#include "models/step/pipeline_run.h"
#include "models/workload/layer_stack.h"

namespace moesim::models {

class Contention;

// A program with its prices, forward and backward, and the split backward where weight gradients run
// separately.
struct PricedProgram {
  std::shared_ptr<const MoeProgram> moe;  // owner of `program` where it is a dispatcher's
  const Program* program = nullptr;
  sim::LockstepProgram forward, backward;
  sim::LockstepProgram without_weight_gradients, weight_gradients;
};

// Return the operations of one half of a split backward: weight gradients, or everything else.
sim::LockstepProgram only_weight_gradients(const sim::LockstepProgram& priced, const std::vector<Op>& pass);
sim::LockstepProgram without_weight_gradients(const sim::LockstepProgram& priced,
                                              const std::vector<Op>& pass);

// Whether a collective (not fused) crosses the network between NVLink domains.
bool leaves_domain(const Op& op, const GroupShapes& shapes);

// Returns the time for which a pass's collectives occupy the network between NVLink domains, the maximum over
// ranks.
std::int64_t network_ps(const sim::LockstepProgram& priced, const std::vector<Op>& pass,
                        const GroupShapes& shapes);

class StepPasses : public PipelinePasses {
 public:
  struct Options {
    const std::vector<Chunk>* chunks = nullptr;
    bool full_recompute = false;
    bool split = false;                      // weight gradients run in their own slots
    bool delayed_weight_gradients = false;   // in overlapped slots: delayed until computing would idle
    bool all_ranks = false;                  // runs every rank, even where all ranks do the same
    const Contention* contention = nullptr;  // with timing `flow`; kept
    // By stage: the faults of its ranks; empty: healthy everywhere.
    std::vector<std::optional<RankFaults>> faults;
  };
  // Keeps all references. `routing` is that of the programs.
  StepPasses(const LayerPrograms& programs, const JobRouting& routing, const ProgramPricer& pricer,
             Options options);

  void run(int stage, const PipelineSlot& slot, sim::Lockstep& clocks) override;
  // Slots with equal numbers run the same kinds of layers in the same way.
  std::uint64_t alike(const PipelineSlot& slot) const;
  std::optional<std::uint64_t> same(int stage, const PipelineSlot& slot) const override;
  Host host(int stage, const PipelineSlot& slot) override;

  // Returns the ranks that the clocks need: those of the dispatch group, or one where all ranks always do the
  // same.
  std::size_t ranks() const { return ranks_; }

  struct Times {
    std::int64_t forward = 0, backward = 0;
  };
  // Returns the time of a layer of the kind, run twice in a row from idle clocks.
  Times layer_times(std::size_t kind, int ordinal, int microbatch);
  Times embedding_times();
  Times head_times();
  // Returns the time for which the collectives of a chunk's first microbatch occupy the network between
  // NVLink domains.
  Times network_of(std::size_t chunk);

  // The programs of a slot: of one pass, or of a forward and a backward pass with its weight gradients.
  struct Slot {
    std::vector<sim::LockstepChain> chains;
    std::vector<sim::LockstepPiece> order;
    std::vector<std::vector<ProgramPass>> passes;  // [chain][program]
  };
  Slot runs_of(int stage, const PipelineSlot& slot);

  // Adds the operations of one microbatch through all layers to the report of the measured domain.
  void report(DomainReport& into);

 private:
  enum class Pass : std::uint8_t { kForward, kBackward, kInputGradient, kWeightGradient };
  // The programs that are the same for all dispatchers, on ranks with the same faults.
  struct Dense {
    const RankFaults* faults = nullptr;
    std::vector<std::optional<PricedProgram>> before;  // by kind
    std::optional<PricedProgram> after, embedding, head;
  };
  using Moe = std::shared_ptr<const PricedProgram>;
  // Programs in the order in which they run.
  struct Built {
    sim::LockstepChain chain;
    std::vector<ProgramPass> passes;  // parallel to the chain
    PassPlaces places;
  };

  PricedProgram price(const Program& program, const UnevenLoads& loads, const RankFaults* faults,
                      std::size_t salt) const;
  const RankFaults* faults_of(int stage) const;
  Dense& dense(int stage);
  const PricedProgram& before(Dense& dense, std::size_t kind) const;
  const PricedProgram& after(Dense& dense) const;
  const PricedProgram& embedding(Dense& dense) const;
  const PricedProgram& head(Dense& dense) const;
  Moe moe(int stage, int ordinal, int microbatch);

  // Adds a program to the chain and returns its place; -1 where it has no operation.
  static std::int32_t add(Built& built, const PricedProgram& priced, Pass pass);
  LayerPlaces add_layer(Built& built, Dense& dense, const Moe& moe, std::size_t kind, Pass pass) const;
  Built pass_of(int stage, std::int32_t chunk, std::int32_t microbatch, Pass pass);
  Times times_of(const PricedProgram& program) const;
  Times twice(const Built& forward, const Built& backward) const;

  const LayerPrograms& programs_;
  const JobRouting& routing_;
  const ProgramPricer& pricer_;
  Options o_;
  std::size_t ranks_ = 1;
  std::vector<std::size_t> first_like_;  // by chunk: the first chunk with the same layers
  UnevenLoads dense_loads_;
  std::vector<std::unique_ptr<Dense>> dense_;  // one entry for each distinct set of faults
  // Routings of a layer that are priced; microbatches beyond share them in turn.
  std::int64_t routings_ = std::numeric_limits<std::int64_t>::max();
  std::map<std::array<int, 3>, Moe> moe_;  // kept: stage with faults or -1, ordinal, routing
};

}  // namespace moesim::models

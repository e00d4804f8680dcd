// The parts that torchtitan's dispatchers share (docs/spec.md 2.5 to 2.10).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

// How far a dispatcher is torchtitan's own or its fork's, which decides what holds unless an option says
// otherwise. kFork: scores in the rows' type, scatter_add in place where nothing forbids it. kWholeFork: also
// its experts, its router's counts and its choice of a path.
enum class Torchtitan : std::uint8_t { kUpstream, kFork, kWholeFork };

// Options that all of them take.
struct TorchtitanOptions {
  explicit TorchtitanOptions(DispatcherOptions& options, Torchtitan source = Torchtitan::kUpstream);

  // kFork: batched where no gradient is needed and every local expert of a rank has as many rows, else a
  // loop.
  enum class Experts : std::uint8_t { kGrouped, kLoop, kBatched, kFork };
  enum class InPlace : std::uint8_t { kNever, kAlways, kAuto };
  Experts experts = Experts::kGrouped;
  bool score_before = false;  // multiply by the score before the experts
  bool score_fp32 = true;     // in fp32, else in the row's dtype (the fork)
  bool old_scatter = false;   // deterministic scatter_add that sorts every element (old torch versions)
  InPlace in_place = InPlace::kNever;  // scatter_add in place: without gradients and aliasing only
  bool alias = false;                  // shared_experts(x) returns x itself: the target is the layer's input
  bool contiguous = false;             // batched: rows that no permutation wrote are copied first
  bool counted = false;                // the router hands its counts on: no histogram in the dispatcher
  bool asked_counted = false;          // because an option says so
  bool fused_activation = false;       // silu x mul in one kernel
  bool weights_cached = false;         // batched: w13 and w2_t are in the cache

  // What forbids them on this layer with these rows (the asked routing's, or a forced one's), if anything.
  std::optional<std::string> illegal(const MoeLayer& layer, const LayerSizes& sizes) const;

  bool scatters_in_place(const MoeLayer& layer) const {
    return in_place == InPlace::kAlways || (in_place == InPlace::kAuto && !layer.train && !alias);
  }
};

// Whether every local expert of this rank has the same number of rows.
bool uniform_on(const LayerSizes& sizes, int rank);
bool uniform_on_every_rank(const LayerSizes& sizes);

// Writes the common steps of one program.
class TorchtitanSteps {
 public:
  TorchtitanSteps(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                  const TorchtitanOptions& options);

  // `rows` of the experts where they differ from the sizes (padding), and whether all counts are equal.
  void set_expert_rows(std::vector<std::int64_t> per_expert);
  const std::vector<std::int64_t>& computed_rows() const { return block_.rows; }

  // `on_host`: the host knows the rows of every local expert without asking the device.
  void set_counts_on_host() { counts_on_host_ = true; }

  void save_input();  // and what routing keeps for backward
  void count_rows();  // the histogram, where the router's counts do not serve
  void sort_and_gather(bool indices_cached = false);
  void score(bool before);  // does something where the option says so
  // Rank-major to expert-major and back: by index, or as a view on ranks where all counts are equal.
  void index_and_gather();
  void view_or_gather();
  void run_experts();
  void inverse_permute();
  void inverse_view_or_scatter();
  void free_experts() { free_expert_output(b_, block_); }
  void scatter_add_back();

  // Moves rows from their sender to their experts (`there`) or back.
  using Exchange = std::function<void(std::string_view name, Category category, bool there)>;
  // What follows the experts and their permutation wherever rows were exchanged: the way back, the scores,
  // the scatter, and with gradients the whole backward pass.
  void return_rows(const Exchange& exchange);

  // Backward of the same, in autograd order.
  void gather_gradient();
  void inverse_permute_backward();
  void experts_backward_pass();
  void index_backward();
  void input_gradient();

  const PerRank& computed_bytes() const { return computed_; }

 private:
  void deterministic_scatter(std::string_view name, Category category);
  // The experts of the ranks whose entry is 1; of all where no rank's is 0.
  ExpertBlock part_of(const std::vector<std::int64_t>& present, bool batched) const;
  // `rows` of the ranks whose local experts are uniform (or not), 0 on the others.
  std::vector<std::int64_t> of_ranks(bool uniform, const std::vector<std::int64_t>& rows) const;
  void view_or_index(Category category, KernelClass indexing, std::string_view by_index,
                     std::string_view as_view);

  ProgramBuilder& b_;
  const MoeLayer& layer_;
  const LayerSizes& f_;
  const TorchtitanOptions& o_;
  ExpertBlock block_;
  std::vector<std::int64_t> expert_rows_;  // [R][E_l]
  std::vector<std::int64_t> batch_;        // 1 where a rank runs its experts as one batch
  bool batches_ = false, loops_ = false;   // some ranks do so; some do not
  PerRank sent_, computed_;
  std::vector<std::int64_t> targets_;  // rows of the scatter's target: before the sequence-parallel split
  bool permuted_ = false, viewed_ = false, counts_on_host_ = false;
};

// The programs of docs/spec.md 2.5 and 2.6, which the fork's fast paths fall back to.
Program torchtitan_local_program(const MoeLayer& layer, const TorchtitanOptions& options);
Program torchtitan_normal_program(const MoeLayer& layer, const LayerSizes& sizes,
                                  const TorchtitanOptions& options);

// The fork's paths for a router in debug mode and for any other; a part of it, or the whole.
std::unique_ptr<Dispatcher> torchtitan_forced_path(DispatcherOptions& options, Torchtitan source);
std::unique_ptr<Dispatcher> torchtitan_equal_path(DispatcherOptions& options, Torchtitan source);

// Counts exchange and the read of both split lists (steps 1, 4, 5 of 2.6).
void exchange_counts(ProgramBuilder& builder, const LayerSizes& sizes);

}  // namespace moesim::models

// Shared parts of torchtitan's dispatchers (docs/spec.md 2.5 to 2.10).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

// The variant of torchtitan, which sets the defaults of the options. kFork: scores in the rows' type,
// scatter_add in place where allowed. kWholeFork: also the fork's experts, router counts and choice of a
// path.
enum class Torchtitan : std::uint8_t { kUpstream, kFork, kWholeFork };

// Options of every torchtitan dispatcher.
struct TorchtitanOptions {
  explicit TorchtitanOptions(DispatcherOptions& options, Torchtitan source = Torchtitan::kUpstream);

  // kFork: batched where no gradient is needed and all local experts of a rank have equally many rows, else a
  // loop.
  enum class Experts : std::uint8_t { kGrouped, kLoop, kBatched, kFork };
  enum class InPlace : std::uint8_t { kNever, kAlways, kAuto };
  Experts experts = Experts::kGrouped;
  bool score_before = false;  // multiply by the score before the experts
  bool score_fp32 = true;     // true: fp32; false: the row's dtype (the fork)
  bool old_scatter = false;   // deterministic scatter_add that sorts every element (old torch versions)
  InPlace in_place = InPlace::kNever;  // scatter_add in place: only without gradients and aliasing
  bool alias = false;             // shared_experts(x) returns x itself, so the target is the layer's input
  bool contiguous = false;        // batched: copies rows that no permutation wrote
  bool counted = false;           // the router passes its counts on; the dispatcher computes no histogram
  bool asked_counted = false;     // counted because of an option
  bool fused_activation = false;  // silu x mul in one kernel
  bool weights_cached = false;    // batched: w13 and w2_t are in the cache

  // Returns the rule that forbids the options on this layer with these rows (of the requested routing or a
  // forced one), if any.
  std::optional<std::string> illegal(const MoeLayer& layer, const LayerSizes& sizes) const;

  bool scatters_in_place(const MoeLayer& layer) const {
    return in_place == InPlace::kAlways || (in_place == InPlace::kAuto && !layer.train && !alias);
  }
};

// Whether every local expert of a rank has the same number of rows.
bool uniform_on(const LayerSizes& sizes, int rank);
bool uniform_on_every_rank(const LayerSizes& sizes);

// Writes the steps that the programs share.
class TorchtitanSteps {
 public:
  TorchtitanSteps(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                  const TorchtitanOptions& options);

  // Sets the rows per expert where they differ from the sizes (padding).
  void set_expert_rows(std::vector<std::int64_t> per_expert);
  const std::vector<std::int64_t>& computed_rows() const { return block_.rows; }

  // The host knows the rows of every local expert without a copy from the device.
  void set_counts_on_host() { counts_on_host_ = true; }

  void begin();       // begins the forward pass with the next four steps
  void save_input();  // saves the layer's input and the routing's tensors for backward
  void count_rows();  // the histogram, where the router does not pass its counts
  void sort_and_gather(bool indices_cached = false);
  void score(bool before);  // multiplies by the scores, where the option asks for it at this place
  // Rank-major to expert-major and back: by index, or as a view on ranks with equal counts.
  void index_and_gather();
  void view_or_gather();
  void run_experts();
  void inverse_permute();
  void inverse_view_or_scatter();
  void free_experts() { free_expert_output(b_, block_); }
  void scatter_add_back();

  // Moves rows from their sender to their experts (`there`) or back.
  using Exchange = std::function<void(std::string_view name, Category category, bool there)>;
  // Adds the exchange of the rows, the experts and their permutations.
  void run_exchanged(const Exchange& exchange);
  // Adds everything after the experts and their permutation where rows were exchanged: the return exchange,
  // the scores, the scatter, and with gradients the whole backward pass.
  void return_rows(const Exchange& exchange);

  // Backward of these steps, in autograd order.
  void gather_gradient();
  void inverse_permute_backward();
  void experts_backward_pass();
  void index_backward();
  void input_gradient();

  const PerRank& computed_bytes() const { return computed_; }

 private:
  void deterministic_scatter(std::string_view name, Category category);
  // Returns the experts of the ranks whose entry is 1; of all ranks where no entry is 0.
  ExpertBlock part_of(const std::vector<std::int64_t>& present, bool batched) const;
  // Returns `rows` for ranks whose local experts are uniform (or not), 0 for others.
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
  bool batches_ = false, loops_ = false;   // some ranks batch; some do not
  PerRank sent_, computed_;
  std::vector<std::int64_t> targets_;  // rows of the scatter's target: before the sequence-parallel split
  bool permuted_ = false, viewed_ = false, counts_on_host_ = false;
};

// The programs of docs/spec.md 2.5 and 2.6, which the fork's fast paths fall back to.
Program torchtitan_local_program(const MoeLayer& layer, const TorchtitanOptions& options);
Program torchtitan_normal_program(const MoeLayer& layer, const LayerSizes& sizes,
                                  const TorchtitanOptions& options);

// The fork's paths for a router in debug mode (forced) and for any other (equal).
std::unique_ptr<Dispatcher> torchtitan_forced_path(DispatcherOptions& options, Torchtitan source);
std::unique_ptr<Dispatcher> torchtitan_equal_path(DispatcherOptions& options, Torchtitan source);

// Adds the exchange of counts and the copy of both split lists to the host (steps 1, 4, 5 of 2.6).
void exchange_counts(ProgramBuilder& builder, const LayerSizes& sizes);

}  // namespace moesim::models

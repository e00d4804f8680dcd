// The parts that torchtitan's dispatchers share (docs/spec.md 2.5 to 2.10).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

// Options that all of them take.
struct TorchtitanOptions {
  explicit TorchtitanOptions(DispatcherOptions& options);

  enum class Experts : std::uint8_t { kGrouped, kLoop, kBatched };
  Experts experts = Experts::kGrouped;
  bool score_before = false;      // multiply by the score before the experts
  bool score_fp32 = true;         // in fp32, else in the row's dtype (the fork)
  bool old_scatter = false;       // deterministic scatter_add that sorts every element (old torch versions)
  bool in_place = false;          // scatter_add in place: without gradients and aliasing only
  bool fused_activation = false;  // silu x mul in one kernel
  bool weights_cached = false;    // batched: w13 and w2_t are in the cache

  // What forbids them on this layer, if anything.
  std::optional<std::string> illegal(const MoeLayer& layer) const;
};

// Writes the common steps of one program.
class TorchtitanSteps {
 public:
  TorchtitanSteps(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
                  const TorchtitanOptions& options);

  // `rows` of the experts where they differ from the sizes (padding), and whether all counts are equal.
  void set_expert_rows(std::vector<std::int64_t> per_expert);
  const std::vector<std::int64_t>& computed_rows() const { return block_.rows; }

  void save_input();  // and what routing keeps for backward
  void sort_and_gather(bool indices_cached = false);
  void score(bool before);  // does something where the option says so
  void index_and_gather();  // rank-major -> expert-major
  void transpose_copy();    // the same where all counts are equal: a view
  void run_experts();
  void inverse_permute();
  void free_experts() { free_expert_output(b_, block_); }
  void scatter_add_back();

  // Backward of the same, in autograd order.
  void gather_gradient();
  void inverse_permute_backward();
  void experts_backward_pass();
  void index_backward();
  void input_gradient();

  const PerRank& sent_bytes() const { return sent_; }
  const PerRank& computed_bytes() const { return computed_; }

 private:
  void deterministic_scatter(std::string_view name, Category category);

  ProgramBuilder& b_;
  const MoeLayer& layer_;
  const LayerSizes& f_;
  const TorchtitanOptions& o_;
  ExpertBlock block_;
  PerRank sent_, computed_;
};

// Counts exchange and the read of both split lists (steps 1, 4, 5 of 2.6).
void exchange_counts(ProgramBuilder& builder, const LayerSizes& sizes);

}  // namespace moesim::models

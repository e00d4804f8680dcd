// The core of attention as flash-style kernels compute it: scores, softmax and values without ever writing
// the score matrix (arXiv 2205.14135, 2407.08608); or unfused, kernel by kernel through memory.
#pragma once

#include <cstdint>

#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/hardware/profile.h"

namespace moesim::models {

struct AttentionCall {
  double queries = 0;       // tokens of this rank, all sequences of the microbatch
  std::int64_t seq = 4096;  // length of a sequence
  std::int64_t cp = 1;  // ranks that share a sequence (in balanced halves, so that all see the causal mean)
  std::int64_t heads = 1;        // of this rank
  std::int64_t score_dim = 128;  // width of a query/key head
  std::int64_t value_dim = 128;
  std::int64_t window = 0;  // in tokens; 0: none
  bool chunked = false;     // the window is the sequence's own chunk instead of sliding
  bool fp8 = false;
  bool unfused = false;  // scores and probabilities go through memory, all keys of a query
  bool dropout = false;  // of the probabilities; unfused only
};

class AttentionModel {
 public:
  // A profile may hold "attention_forward_efficiency" and "attention_backward_efficiency" as constants:
  // shares of the dense peak at long sequences and 128-wide heads that replace the defaults below.
  explicit AttentionModel(const Profile& profile);

  // FLOPs of the causal core: 2 products forward, 5 backward (the scores are computed again).
  static double flops(const AttentionCall& call, GemmPass pass);
  // Seconds; kForward, or the whole backward for any other pass. Never below the peak rate; unfused never
  // faster than fused.
  double seconds(const AttentionCall& call, GemmPass pass) const;

 private:
  // Seconds of the kernels of Megatron-Core's DotProductAttention and Transformer Engine's
  // UnfusedDotProductAttention: batched products of whole rows, a causal softmax that reads half of its rows,
  // dropout; backward without the scores' product, since the probabilities were kept.
  double unfused_seconds(const AttentionCall& call, bool forward) const;
  // How many times as long as its matrix products alone a pair takes, at heads of `width`.
  double matrix_times(bool forward, double width) const;

  double peak_ = 0;                    // FLOP/s
  double exponentials_elsewhere_ = 0;  // share that ordinary units compute
  double per_clock_ = 0;               // FLOPs of the matrix units per clock and SM
  double forward_ = 0, backward_ = 0;  // the profile's share of the peak over the defaults'
  double drawn_ = 1;                   // how many times as long as computed
  KernelModel kernels_;
};

}  // namespace moesim::models

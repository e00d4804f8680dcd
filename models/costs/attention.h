// The core of attention (scores, softmax, values): fused as flash-style kernels compute it without writing
// the score matrix (arXiv 2205.14135, 2407.08608), or unfused, kernel by kernel through memory.
#pragma once

#include <cstdint>

#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/hardware/profile.h"

namespace moesim::models {

struct AttentionCall {
  double queries = 0;       // tokens of this rank, over all sequences of the microbatch
  std::int64_t seq = 4096;  // length of a sequence
  std::int64_t cp = 1;  // ranks that share a sequence (in balanced halves, so that each sees the causal mean)
  std::int64_t heads = 1;        // on this rank
  std::int64_t score_dim = 128;  // width of a query/key head
  std::int64_t value_dim = 128;
  std::int64_t window = 0;  // in tokens; 0: none
  bool chunked = false;     // the window is a chunk of the sequence instead of sliding
  bool fp8 = false;
  bool unfused = false;  // scores and probabilities go through memory, for all keys of a query
  bool dropout = false;  // on the probabilities; unfused only
};

class AttentionModel {
 public:
  // A profile may set "attention_forward_efficiency" and "attention_backward_efficiency": shares of the dense
  // peak at long sequences and 128-wide heads that replace the defaults below.
  explicit AttentionModel(const Profile& profile);

  // Returns the FLOPs of the causal core: 2 products forward, 5 backward (the scores are computed again).
  static double flops(const AttentionCall& call, GemmPass pass);
  // Returns seconds of the forward for kForward, of the whole backward for any other pass. Never below the
  // time at the peak rate; unfused never faster than fused.
  double seconds(const AttentionCall& call, GemmPass pass) const;

 private:
  // Returns seconds of the kernels of Megatron-Core's DotProductAttention and Transformer Engine's
  // UnfusedDotProductAttention: batched products of whole rows, a causal softmax that reads half of its rows,
  // dropout; the backward skips the product of the scores, since the probabilities were saved.
  double unfused_seconds(const AttentionCall& call, bool forward) const;
  // Ratio of the time of a query-key pair to its matrix products alone, at heads of `width`.
  double matrix_times(bool forward, double width) const;

  double peak_ = 0;                    // FLOP/s
  double exponentials_elsewhere_ = 0;  // share of exponentials computed outside of the special-function units
  double per_clock_ = 0;               // FLOPs of the matrix units per clock and SM
  double forward_ = 0, backward_ = 0;  // efficiency in the profile over the default
  double drawn_ = 1;                   // drawn factor on the computed time
  KernelModel kernels_;
};

}  // namespace moesim::models

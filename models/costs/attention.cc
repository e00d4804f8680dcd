#include "models/costs/attention.h"

#include <algorithm>
#include <cmath>

#include "models/workload/layer_stack.h"

namespace moesim::models {

namespace {

// A query-key pair of one head costs 4 d FLOPs of the matrix units forward, 10 d backward, and one
// exponential of the special-function units (16 per clock and SM on every generation here). They overlap in
// part: a pair takes a + b x (exponential time / matrix time) of its matrix time. a and b were fitted by eye
// to figures 5 and 6 of FlashAttention-3 (arXiv 2407.08608; H100, causal: heads of 128 reach 0.66 of the peak
// forward and 0.565 backward at long sequences, heads of 64 about 0.50 and 0.50). The DeepSeek-V3 chunk on
// H800 (128 heads of 192/128, sequence 4096) runs at 556 TFLOP/s forward and 405 backward with its
// conversions, beside communication kernels.
constexpr double kForwardMatrix = 1.02, kBackwardMatrix = 1.586, kExponential = 0.92;
// Key ranges of s lose time at the edges of tiles: efficiency s / (s + h) (same figures, 1k to 16k).
constexpr double kForwardHalf = 900, kBackwardHalf = 1300;
constexpr double kExponentialsPerClock = 16;
constexpr double kBoostClock = 1.83e9;  // of H100 and B200 at their data sheets' peaks
// fp8 scores and values (figure 7 there): 1.3 times bf16's rate at training lengths, forward.
constexpr double kFp8 = 1.3;
// Unfused: bytes of a score or probability, and of its entry in dropout's mask; a batched product's share of
// the peak, an estimate under which the traffic of scores hides at heads of 128 on Hopper.
constexpr double kScore = 2, kMask = 1, kBatched = 0.7;
constexpr double kUsualWidth = 128;  // width of a head for which a profile gives the share of the peak

}  // namespace

AttentionModel::AttentionModel(const Profile& profile)
    : drawn_(profile.attention_factor()), kernels_(profile) {
  const DeviceLimits& device = profile.device();
  peak_ = device.peak_flops[static_cast<std::size_t>(DType::kBf16)];
  exponentials_elsewhere_ = device.exponentials_elsewhere;
  per_clock_ = device.sms > 0 ? peak_ / device.sms / kBoostClock : 4096;
  const auto correction = [&](const char* name, bool forward) {
    const Constant* share = profile.find_constant(name);
    return share ? share->value * matrix_times(forward, kUsualWidth) : 1 / profile.attention_factor();
  };
  forward_ = correction("attention_forward_efficiency", true);
  backward_ = correction("attention_backward_efficiency", false);
}

double AttentionModel::matrix_times(bool forward, double width) const {
  double exponential = per_clock_ / (kExponentialsPerClock * (forward ? 4 : 10) * width);
  exponential *= 1 - exponentials_elsewhere_;
  return (forward ? kForwardMatrix : kBackwardMatrix) + kExponential * exponential;
}

double AttentionModel::flops(const AttentionCall& c, GemmPass pass) {
  const double one = 2 * c.queries * mean_keys(c.seq, c.window, c.chunked) *
                     static_cast<double>(c.heads * (c.score_dim + c.value_dim));
  return pass == GemmPass::kForward ? one : 2.5 * one;
}

double AttentionModel::unfused_seconds(const AttentionCall& c, bool forward) const {
  const double pairs = c.queries * static_cast<double>(c.seq * c.heads);
  const auto product = [&](std::int64_t width) {
    return std::max(2 * pairs * static_cast<double>(width) / (kBatched * peak_),
                    kernels_.seconds(KernelClass::kElementwise, kScore * pairs, 0, 0));
  };
  const auto kernel = [&](KernelClass kind, double read, double written) {
    return kernels_.seconds(kind, read * pairs, written * pairs, 0);
  };
  const double products = product(c.score_dim) + product(c.value_dim);
  const double dropout = c.dropout ? kernel(KernelClass::kElementwise, kScore, kScore + kMask) : 0;
  // Forward reads scores and writes probabilities; backward reads probabilities and their gradient and writes
  // the gradient of the scores.
  const double softmax = kernel(KernelClass::kReduce, (forward ? 1 : 2) * kScore / 2, kScore);
  return drawn_ * ((forward ? 1 : 2) * products + softmax + dropout);
}

double AttentionModel::seconds(const AttentionCall& c, GemmPass pass) const {
  const bool forward = pass == GemmPass::kForward;
  if (c.unfused) {
    AttentionCall fused = c;
    fused.unfused = fused.fp8 = false;
    return std::max(unfused_seconds(c, forward), seconds(fused, pass));
  }
  const double work = flops(c, pass);
  if (work <= 0) return 0;
  // Range of keys that one tile walks: a rank's share of the sequence, limited by a window.
  const double stretch = std::min(static_cast<double>(c.seq) / static_cast<double>(c.cp),
                                  2 * mean_keys(c.seq, c.window, c.chunked));
  const double half = forward ? kForwardHalf : kBackwardHalf;
  const double width = static_cast<double>(c.score_dim + c.value_dim) / 2;
  double slow = matrix_times(forward, width);
  if (c.fp8) slow /= kFp8;
  const double share = (forward ? forward_ : backward_) * stretch / (stretch + half) / slow;
  return work / (peak_ * std::min(share, c.fp8 ? 1.9 : 0.95));
}

}  // namespace moesim::models

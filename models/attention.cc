#include "models/attention.h"

#include <algorithm>

namespace moesim::models {

namespace {

// Share of the dense bf16 peak against the sequence length s a query tile walks over: e s / (s + h). Fitted
// by eye to figures 5 and 6 of FlashAttention-3 (arXiv 2407.08608; H100, causal, heads of 128: forward about
// 335, 450, 530, 590, 620 TFLOP/s at 1k..16k, backward 240, 330, 420, 480, 520). The DeepSeek-V3 chunk on
// H800 (128 heads of 192/128, sequence 4096) has 556 forward and 405 backward with conversions, beside
// communication kernels.
constexpr double kForward = 0.66, kForwardHalf = 900;
constexpr double kBackward = 0.565, kBackwardHalf = 1300;
// Narrow heads give the matrix units less work per softmax element: share against 128 wide (same figures: 64
// wide heads reach about 0.8 of 128 wide ones).
constexpr double kHeadHalf = 40;
// fp8 scores and values (figure 7 there): 1.3 times bf16's rate at training lengths, forward.
constexpr double kFp8 = 1.3;

double constant_or(const Profile& profile, const char* name, double fallback) {
  const Constant* constant = profile.find_constant(name);
  return constant ? constant->value : fallback;
}

}  // namespace

double mean_keys(std::int64_t seq, std::int64_t window) {
  const auto s = static_cast<double>(seq), w = static_cast<double>(window);
  if (window <= 0 || window >= seq) return std::max(1.0, s / 2);
  return std::max(1.0, w - w * w / (2 * s));
}

AttentionModel::AttentionModel(const Profile& profile) {
  const auto& peaks = profile.device().peak_flops;
  peak_ = peaks[static_cast<std::size_t>(DType::kBf16)];
  fp8_peak_ = std::max(peak_, peaks[static_cast<std::size_t>(DType::kFp8)]);
  forward_ = constant_or(profile, "attention_forward_efficiency", kForward);
  backward_ = constant_or(profile, "attention_backward_efficiency", kBackward);
}

double AttentionModel::flops(const AttentionCall& c, GemmPass pass) {
  const double one =
      2 * c.queries * mean_keys(c.seq, c.window) * static_cast<double>(c.heads * (c.score_dim + c.value_dim));
  return pass == GemmPass::kForward ? one : 2.5 * one;
}

double AttentionModel::seconds(const AttentionCall& c, GemmPass pass) const {
  const bool forward = pass == GemmPass::kForward;
  const double work = flops(c, pass);
  if (work <= 0) return 0;
  // The stretch of keys one tile walks: a rank's share of the sequence, or what a window leaves of it.
  const double stretch =
      std::min(static_cast<double>(c.seq) / static_cast<double>(c.cp), 2 * mean_keys(c.seq, c.window));
  const double half = forward ? kForwardHalf : kBackwardHalf;
  const double width = static_cast<double>(c.score_dim + c.value_dim) / 2;
  const double head = std::min(1.05, width / (width + kHeadHalf) * (128 + kHeadHalf) / 128);
  double share = (forward ? forward_ : backward_) * stretch / (stretch + half) * head;
  double peak = peak_;
  if (c.fp8 && forward) share *= kFp8 * peak_ / fp8_peak_, peak = fp8_peak_;
  return work / (peak * std::min(share, 0.95));
}

}  // namespace moesim::models

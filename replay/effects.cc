#include "replay/effects.h"

#include <algorithm>

#include "base/random.h"
#include "models/profile.h"

namespace moesim::replay {

namespace {

constexpr const char* kRuns = "read off the five 16-GPU H800 runs of the Echo data set (docs/replay.md)";

}  // namespace

Effects::Effects()
    : list_{{
          {"gradient_prescale", 1.003, 0.01, "ms/GB",
           "expert reductions in groups of one rank: 5.65 ms for 5.637 GB, 2.86 ms for 2.819 GB (three "
           "passes)",
           "gradients are divided by the data-parallel size and checked for NaN before they are reduced"},
          {"gradient_clip", 4.33, 0.15, "ms/1e9 parameters",
           "optimizer_step of the 16-GPU runs, 18.62, less the lowest recorded level of one GPU, 14.29; "
           "about 13 bytes",
           "the gradients' norm is taken and they are clipped; on one GPU the norm stays below the limit"},
          {"embedding_accumulation", 12.0, 1.0, "bytes/parameter",
           "bf16 gradient written and read, float32 sum read and written",
           "the embedding's gradient is added to its float32 buffer by a pass of its own"},
          {"memory_bandwidth", 2990.0, 30.0, "GB/s", "three passes at 1.003 ms/GB, as gradient_prescale",
           "what a plain pass over memory reaches"},
          {"traced_call", 98.0, 10.0, "us", "offset of the all-to-all law of docs/dispatchers.md 1.3",
           "every call of a traced run is launched, timed and synchronised on its own"},
          {"sustained_backward", 0.07, 0.02, "share", kRuns,
           "long matrix products of the experts run at sustained, not burst clocks"},
          {"dense_backward", 0.007, 0.005, "share", kRuns,
           "other computing in backward is slower while all GPUs of the node work"},
          {"forward_jitter", 0.03, 0.005, "share",
           "segments without products of experts in the runs, against their median: 95 % +7 %, 99 % +13 %",
           "segments of many small kernels are delayed at random by the host; peers wait for the slowest"},
          {"backward_jitter", 0.02, 0.005, "share",
           "segments without products of experts in the runs, against their median: 95 % +5 %, 99 % +11 %",
           "the same in backward, where the host launches further ahead"},
          {"expert_spread", 0.007, 0.002, "share",
           "expert segments of ranks with equal rows in the runs, medians over microbatches",
           "GPUs differ in speed"},
          {"dense_spread", 0.018, 0.004, "share",
           "other segments of ranks with equal work in the runs, medians over microbatches",
           "GPUs and the processes that drive them differ in speed"},
          {"forward_entry", 450.0, 100.0, "us", kRuns,
           "a real forward_step takes longer to reach its first kernels than a recorded one"},
          {"batch_loading", 220.0, 40.0, "us", kRuns,
           "get_batch of a running job; a recording of one GPU holds the first one of its process"},
          {"gap_after_forward", 345.0, 50.0, "us", kRuns,
           "host time between forward_step and the send after it"},
          {"gap_before_backward", 330.0, 50.0, "us", kRuns, "host time between loss_func and backward_step"},
          {"gap_after_backward", 200.0, 40.0, "us", kRuns,
           "host time between backward_step and the next forward or receive"},
          {"gap_other", 90.0, 30.0, "us", kRuns, "host time between any other two operations"},
      }} {}

Effects::Effects(const models::Profile& profile) : Effects() {
  for (Effect& effect : list_)
    if (const models::Constant* own = profile.find_constant(effect.name)) {
      effect.value = own->value;
      effect.sigma = own->sigma;
      effect.source = own->source;
    }
}

Effects Effects::without(EffectKind kind) const {
  Effects other = *this;
  // A bandwidth is no cost of its own: switched off, passes take no time.
  other.set(kind, kind == EffectKind::memory_bandwidth ? 1e12 : 0.0);
  return other;
}

Effects Effects::draw(Random& random) const {
  Effects drawn = *this;
  for (Effect& effect : drawn.list_)
    effect.value = std::max(0.0, effect.value + effect.sigma * random.normal());
  return drawn;
}

}  // namespace moesim::replay

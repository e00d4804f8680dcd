#include "replay/recording/effects.h"

#include <algorithm>

#include "base/random.h"
#include "models/hardware/profile.h"

namespace moesim::replay {

namespace {

constexpr const char* kSegments =
    "experts' segments of the five 16-GPU H800 runs, mean against the cleaned recording of one GPU";
constexpr const char* kRuns = "read off the five 16-GPU H800 runs of the Echo data set (docs/replay.md)";

}  // namespace

Effects::Effects()
    : list_{{
          {"gradient_prescale", 1.003, 0.01, "ms/GB",
           "expert reductions in groups of one rank: 5.65 ms for 5.637 GB, 2.86 ms for 2.819 GB (three "
           "passes)",
           "gradients are divided by the data-parallel size and checked for NaN before they are reduced"},
          {"gradient_clip", 4.38, 0.15, "ms/1e9 parameters",
           "optimizer_step of the 16-GPU runs less the lowest recorded level of one GPU, 4.30 to 4.43; about "
           "13 "
           "bytes",
           "the gradients' norm is taken and they are clipped; on one GPU the norm stays below the limit"},
          {"clip_rows", 230.0, 80.0, "rows",
           "levels of optimizer_step in the runs: full from 370 rows on, reduced up to 69, either in between",
           "gradients of up-projections whose experts saw few rows (of a microbatch, over all replicas) pass "
           "unclipped"},
          {"embedding_accumulation", 12.0, 1.0, "bytes/parameter",
           "bf16 gradient written and read, float32 sum read and written",
           "the embedding's gradient is added to its float32 buffer by a pass of its own"},
          {"memory_bandwidth", 2990.0, 30.0, "GB/s", "three passes at 1.003 ms/GB, as gradient_prescale",
           "what a plain pass over memory reaches"},
          {"exposed_gather", 109.0, 4.0, "us",
           "count gathers of the runs, fastest member, less the transfer (docs/calibration.md)",
           "in forward the GPU is idle when a traced call is launched, so that its launch shows"},
          {"exposed_exchange", 72.0, 20.0, "us",
           "dispatches of the runs on the rank that receives most, less the wait for others and the "
           "transfer: 81, "
           "72, 79, 90, 38",
           "the same of an all-to-all; behind the experts the GPU is busy and nothing shows"},
          {"fused_p2p", 150.0, 30.0, "us",
           "medians of sends alone, 0.43 ms, and of fused pairs, 0.58 ms, where no rank waits",
           "a send and a receive in one call share the port and are launched one after the other"},
          {"sustained_forward", 0.032, 0.01, "share", kSegments,
           "long matrix products of the experts run at sustained, not burst clocks"},
          {"sustained_backward", 0.104, 0.02, "share", kSegments,
           "the same in backward, where they run for longer: of the part that grows with the rows"},
          {"forward_jitter", 0.041, 0.005, "share",
           "segments between layers of the runs, mean over the undisturbed recorded time; 95 % +12 %",
           "segments of many small kernels are delayed at random by the host; peers wait for the slowest"},
          {"backward_jitter", 0.04, 0.006, "share",
           "segments between layers of the runs, mean over the recorded median; 95 % +12 %",
           "the same in backward, where autograd launches"},
          {"expert_spread", 0.01, 0.002, "share",
           "expert segments of ranks with equal rows in the runs, means: 0.7 to 1.1 %",
           "GPUs differ in speed"},
          {"dense_spread", 0.0245, 0.004, "share",
           "segments between layers of ranks with equal work in the runs, means: 1.7 to 3.4 %",
           "GPUs and the processes that drive them differ in speed"},
          {"loading_stall", 1095.0, 100.0, "us",
           "forward steps of first and last stages up to the fifth from the end against the last four: 1.1 to 1.5 ms",
           "the loader's thread takes a later batch over from a worker and holds Python's lock; the last four are ready "
           "(two workers with two batches each), and middle stages load none"},
          {"batch_loading", 198.0, 40.0, "us", "the same runs, 220 us at 1,024 tokens, less the mask",
           "get_batch of a running job; a recording of one GPU holds the first one of its process"},
          {"mask_copy", 20.8, 2.0, "ms/GB",
           "PCIe in NCCL's log, 48 GB/s; 0.31 ms more at 4,096 tokens than at 1,024 are 51",
           "Megatron's loader makes an attention mask, a byte for each pair of tokens, and copies it to the GPU"},
          {"gap_after_forward", 345.0, 50.0, "us", kRuns,
           "host time between forward_step and the send after it"},
          {"gap_before_backward", 330.0, 50.0, "us", kRuns, "host time between loss_func and backward_step"},
          {"gap_after_backward", 200.0, 40.0, "us", kRuns,
           "host time between backward_step and the next forward or receive"},
          {"gap_other", 90.0, 30.0, "us", kRuns, "host time between any other two operations"},
          {"pipeline_bandwidth", 54.0, 4.0, "GB/s",
           "sends of 33.5 MB inside a node in the 16-GPU run of four stages: 0.65 to 0.70 ms alone, 1.04 to "
           "1.16 ms fused",
           "a communicator that spans nodes opens fewer channels to a neighbour than one inside a node; both "
           "directions of a fused call share them"},
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
  // A bandwidth is not a cost by itself: switched off, passes take no time.
  const bool bandwidth = kind == EffectKind::memory_bandwidth || kind == EffectKind::pipeline_bandwidth;
  other.set(kind, bandwidth ? 1e12 : 0.0);
  return other;
}

Effects Effects::draw(Random& random) const {
  Effects drawn = *this;
  for (Effect& effect : drawn.list_)
    effect.value = std::max(0.0, effect.value + effect.sigma * random.normal());
  return drawn;
}

}  // namespace moesim::replay

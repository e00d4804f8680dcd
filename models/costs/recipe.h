// A framework's way to run the operations of a program: kernels launched per operation, host time of a
// launch, bytes moved beyond the compulsory ones, type of the products.
#pragma once

#include <cstdint>

#include "models/costs/training_products.h"
#include "models/workload/training_settings.h"

namespace moesim {
class Random;
}

namespace moesim::models {

// Ratio of the host time of a launch on an untuned host (affinity, garbage collection, fused calls) to a
// tuned one: host-bound steps took 2.0 to 2.2 times the tuned forecast on H100 (awslabs Qwen3-30B with TP 8,
// Moonlight and GPT-OSS 20B of Megatron-Bridge's functional runs, one MoE layer of marin #3666).
inline constexpr double kStockLaunches = 2.1;

struct Recipe {
  bool framework = false;  // false: the bare kernels, each launched once
  ProductRecipe products;  // with a framework only
  int kernels_per_operation = 1;
  double launch = 1;       // host time of a launch over the profile's bare one
  double stock_share = 0;  // probability that the host of a run is untuned, where that is not given
  // Seconds for which a call of DeepEP across nodes holds the host, which its benchmark does not show; the
  // same over UCCL.
  double isolated_call = 0, isolated_uccl_call = 0;
  double traffic = 1;  // bytes of a dispatcher's kernels over the compulsory ones
  // A dispatch kernel without published times on the machine takes so many times as long as its stand-in.
  double unpublished_kernel = 1;
  // CUDA graphs launch the operations outside of the dispatcher's program, and those inside: no host time.
  bool dense_graphs = false, dispatcher_graphs = false;

  friend bool operator==(const Recipe&, const Recipe&) = default;

  // Returns the recipe of the same framework on a drawn host.
  Recipe drawn(Random& random) const;

  // Returns the kernels alone, as a micro-benchmark runs them.
  static Recipe bare() { return {}; }
  // Returns a training framework's recipe (measured on Megatron) under a job's settings; `world` GPUs wait
  // for the slowest.
  static Recipe of(const TrainingSettings& settings, std::int64_t world);
};

}  // namespace moesim::models

// How a framework runs the operations of a program: how many kernels it launches for one, what a launch costs
// its host, what its kernels move beyond the compulsory bytes, in which type its products are.
#pragma once

#include <cstdint>

#include "models/costs/training_products.h"
#include "models/workload/training_plan.h"

namespace moesim {
class Random;
}

namespace moesim::models {

// Host time of a launch where nobody tuned the host's side (affinity, garbage collection, fused calls),
// against a tuned recipe: steps that the host bounds took 2.0 to 2.2 times the tuned forecast on H100
// (awslabs Qwen3-30B with TP 8, Moonlight and GPT-OSS 20B of Megatron-Bridge's functional runs, one MoE layer
// of marin #3666).
inline constexpr double kStockLaunches = 2.1;

struct Recipe {
  bool framework = false;  // false: the bare kernels, each launched once
  ProductRecipe products;  // of a framework
  int kernels_per_operation = 1;
  double launch = 1;       // host time of a launch against the profile's bare one
  double stock_share = 0;  // probability that nobody tuned the host's side of a run, where that is left open
  // Seconds that a call of DeepEP across nodes holds the host, which its benchmark does not see; over UCCL.
  double isolated_call = 0, isolated_uccl_call = 0;
  double traffic = 1;  // bytes of a dispatcher's kernels against the compulsory ones of its program
  // Launched by CUDA graphs: no host in the way. Of what no dispatcher changes, and of the dispatcher's
  // program.
  bool dense_graphs = false, dispatcher_graphs = false;

  friend bool operator==(const Recipe&, const Recipe&) = default;

  // The same framework on another host: what draws of a forecast are made from.
  Recipe drawn(Random& random) const;

  // The kernels alone, as a micro-benchmark runs them.
  static Recipe bare() { return {}; }
  // A training framework's (Megatron's, measured) under a plan; `world` GPUs wait for the slowest among them.
  // `conversions`: share of the products' operand conversions that is counted (0: the products alone).
  static Recipe of(const TrainingPlan& plan, std::int64_t world, double conversions = 1);
};

}  // namespace moesim::models

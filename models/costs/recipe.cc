#include "models/costs/recipe.h"

namespace moesim::models {

namespace {

// Kernels that a framework launches where the model counts one operation: views, copies, autograd
// bookkeeping.
constexpr int kKernelsPerOperation = 8;
// Bytes that the dispatcher's kernels move against the compulsory ones of its program: frameworks run casts,
// copies and reshapes as kernels of their own. Those of the dense part are counted one by one.
constexpr double kUnfused = 2.0, kFused = 1.2;
// Host time of a launch through an eager framework against the bare launch of the profile (4 us): 11 to 18 us
// of a small kernel in a PyTorch log (docs/dispatchers.md, flux).
constexpr double kFrameworkLaunch = 3.5;

}  // namespace

Recipe Recipe::of(const TrainingPlan& plan, std::int64_t world, double conversions) {
  if (plan.framework == Framework::kNone) return bare();
  Recipe r;
  r.framework = true;
  r.products = {plan.gemm, plan.fused_kernels, 4, slowest_of(world), conversions};
  r.kernels_per_operation = kKernelsPerOperation;
  r.launch = kFrameworkLaunch;
  r.traffic = plan.fused_kernels ? kFused : kUnfused;
  r.dense_graphs = plan.launch != LaunchMode::kEager;
  r.dispatcher_graphs = plan.launch == LaunchMode::kGraphs;
  return r;
}

}  // namespace moesim::models

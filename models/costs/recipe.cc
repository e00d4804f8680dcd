#include "models/costs/recipe.h"

#include <cmath>

#include "base/random.h"

namespace moesim::models {

namespace {

// Kernels that a framework launches per modelled operation: views, copies, autograd bookkeeping.
constexpr int kKernelsPerOperation = 8;
// Ratio of the bytes moved by the dispatcher's kernels to the compulsory ones of its program: frameworks run
// casts, copies and reshapes as separate kernels. The dense part counts its kernels one by one.
constexpr double kUnfused = 2.0, kFused = 1.2;
// Host time of a launch through an eager framework over the profile's bare launch (4 us): 11 to 18 us for a
// small kernel in a PyTorch log (docs/dispatchers.md, flux).
constexpr double kFrameworkLaunch = 3.5;
// Log standard deviations of these two over hosts and versions.
constexpr double kTunedSigma = 0.15, kStockSigma = 0.2;
// DeepEP's benchmark calls its kernels in a row; in a step each call comes alone, and the host sets it up and
// spins for the counts of late peers. In steps with four and six such calls per layer and little to send (512
// tokens), a call took 0.4 to 0.8 ms longer than the difference of their operations (awslabs, EFA, 2 and 4
// nodes).
constexpr double kIsolatedCall = 0.5e-3, kIsolatedSigma = 0.5;
// Likewise over UCCL, whose proxy threads run on the host's cores: a median of 0.65 ms more per call in the
// same jobs (-0.6 to 0.7 on B300, 1.4 to 3.4 on H100).
constexpr double kIsolatedUcclCall = 1.15e-3, kIsolatedUcclSigma = 0.6;

}  // namespace

Recipe Recipe::of(const TrainingSettings& settings, std::int64_t world) {
  if (settings.framework == Framework::kNone) return bare();
  Recipe r;
  r.framework = true;
  r.products = {settings.gemm, settings.fused_kernels, static_cast<int>(settings.gradient_bytes),
                slowest_of(world)};
  r.kernels_per_operation = kKernelsPerOperation;
  r.launch = kFrameworkLaunch * (settings.framework == Framework::kMegatronStock ? kStockLaunches : 1);
  r.stock_share = settings.framework == Framework::kMegatron        ? 0.5
                  : settings.framework == Framework::kMegatronStock ? 1
                                                                    : 0;
  r.isolated_call = kIsolatedCall;
  r.isolated_uccl_call = kIsolatedUcclCall;
  r.traffic = settings.fused_kernels ? kFused : kUnfused;
  r.dense_graphs = settings.launch != LaunchMode::kEager;
  r.dispatcher_graphs = settings.launch == LaunchMode::kGraphs;
  return r;
}

Recipe Recipe::drawn(Random& random) const {
  Recipe r = *this;
  if (!framework) return r;
  const double z = random.normal(), chance = random.uniform();
  const bool stock = chance < stock_share;
  if (stock && stock_share < 1) r.launch *= kStockLaunches;
  r.stock_share = stock ? 1 : 0;
  r.launch *= std::exp((stock ? kStockSigma : kTunedSigma) * z);
  const double call = std::exp(kIsolatedSigma * random.normal());
  r.isolated_call *= call;
  r.isolated_uccl_call *= call * std::exp(kIsolatedUcclSigma * random.normal());
  return r;
}

}  // namespace moesim::models

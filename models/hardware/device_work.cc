#include "models/hardware/device_work.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, kKernelClasses> kNames = {
    "copy", "elementwise", "gather_rows", "scatter_rows", "scatter_add", "scatter_add_deterministic",
    "sort", "histogram",   "select",      "reduce"};

// Share of the measured HBM bandwidth for classes that a profile has not measured. Streaming kernels reach
// it; a radix pass reads and scatters; atomics cost a read-modify-write. A kernel without a fit reports it
// (`sigma`).
constexpr std::array<double, kKernelClasses> kDefaultShare = {1.0, 0.95, 0.8, 0.8, 0.5,
                                                              0.6, 0.45, 0.5, 0.6, 0.9};

}  // namespace

std::string_view name_of(KernelClass kernel) { return kNames[static_cast<std::size_t>(kernel)]; }

double judged_share(KernelClass kernel) { return kDefaultShare[static_cast<std::size_t>(kernel)]; }

std::optional<KernelClass> parse_kernel_class(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<KernelClass>(i);
  return std::nullopt;
}

GemmShape turned(GemmShape s, GemmPass pass) {
  switch (pass) {
    case GemmPass::kForward:
      return s;
    case GemmPass::kDgrad:
      return {s.m, s.k, s.n};
    case GemmPass::kWgrad:
      break;
  }
  return {s.k, s.n, s.m};
}

std::string_view name_of(ExchangeLibrary library) {
  static constexpr std::string_view kNames[] = {"",         "DeepEP",  "DeepEP V2", "UCCL-EP",
                                                "HybridEP", "NCCL EP", "MoRI-EP"};
  return kNames[static_cast<std::size_t>(library)];
}

std::string unmeasured_kernel_key(ExchangeLibrary library) {
  return "ep/unmeasured/" + std::string(name_of(library));
}

}  // namespace moesim::models

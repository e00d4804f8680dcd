// Muon (kellerjordan.github.io/posts/muon; arXiv 2502.16982): time to orthogonalise the layers' matrices, and
// their distribution over data-parallel ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/costs/gemm.h"
#include "models/programs/memory.h"
#include "models/workload/layer_stack.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// Equal matrices that a rank holds of a chunk.
struct MuonMatrix {
  std::int64_t rows = 0, columns = 0;
  std::int64_t count = 1;
  bool experts = false;

  double elements() const { return static_cast<double>(rows) * static_cast<double>(columns); }
};

// All weights of products of the chunk's layers, the router's among them (Megatron-Core's rule: every tensor
// of two dimensions but the embedding and the head, which are Adam's with all vectors). Queries, keys and
// values are three matrices (its --muon-split-qkv, on by default), an expert's up and gate projections one; a
// tensor-parallel rank takes its own part for the whole (--muon-tp-mode blockwise, the default).
std::vector<MuonMatrix> muon_matrices(const Architecture& model, const Parallel& parallel,
                                      const Chunk& chunk);

// FLOPs of `steps` Newton-Schulz steps: X X^T, its square, and their product with X, of the matrix laid so
// that it has fewer rows m than columns n: 4 n m^2 + 2 m^3 a step.
double newton_schulz_flops(std::int64_t rows, std::int64_t columns, std::int64_t steps);
// Seconds of these products in bf16 (Megatron's --muon-fp32-matmul-prec medium).
double newton_schulz_seconds(std::int64_t rows, std::int64_t columns, std::int64_t steps,
                             const GemmModel& gemms);

// The most that one of `ranks` ranks has of the matrices, which are dealt out whole, the largest first, each
// to the rank that has least (Megatron-Core's layer-wise distributed optimizer).
struct MuonShare {
  double elements = 0, seconds = 0, matrices = 0;
};
MuonShare largest_muon_share(std::vector<MuonMatrix> matrices, std::int64_t ranks,
                             const std::function<double(const MuonMatrix&)>& seconds_of);

// Elements of all matrices, as chunk_parameters() counts them.
StageParameters elements_of(const std::vector<MuonMatrix>& matrices);

// Cost of Distributed Shampoo (arXiv 2309.06497) in a step: products and roots of its preconditioners, and
// its state.

// Bytes per weight element: two factors and two roots in fp32, square blocks as large as the weight's.
inline constexpr double kShampooStateBytes = 16;

// Shares of the work in a step; 1 where the step does all of it.
struct ShampooWork {
  double products = 0;  // factors are updated in every step; gradients are preconditioned from `start` on
  double roots = 0;
};
// For the requested step, or the mean over a period after the start.
ShampooWork shampoo_work(const Shampoo& plan);

// Returns seconds on a rank with so many elements in blocks of `side`. The roots' eigenvalue decompositions
// were not measured: their FLOPs are priced at the fp32 rate of `device`, a lower bound.
double shampoo_seconds(double elements, std::int64_t side, const ShampooWork& work, const GemmModel& gemms,
                       double fp32_flops);

}  // namespace moesim::models

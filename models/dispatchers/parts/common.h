// Sizes that every dispatcher computes from a layer and its routing, and parts that several dispatchers
// share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/dispatchers/dispatcher.h"
#include "models/programs/program_builder.h"

namespace moesim::models {

using sim::Category;

// Sizes of docs/spec.md 1.1 and row counts of 1.2, for every rank of the dispatch group.
struct LayerSizes {
  explicit LayerSizes(const MoeLayer& layer) : LayerSizes(layer, *layer.routing) {}
  LayerSizes(const MoeLayer& layer, const Routing& routing);

  int R, ep, etp, E, E_l, K;
  std::int64_t H, w, b, b_p, F, F_up;  // F is F', F_up includes the gate
  bool gated;
  const Routing* routing;

  std::vector<std::int64_t> tokens;    // T_r
  std::vector<std::int64_t> sent;      // in[r]: rows that this rank sends, to all destinations
  std::vector<std::int64_t> arrived;   // R'_r: rows after the exchange over ep
  std::vector<std::int64_t> computed;  // R_d: rows of the rank's experts (after the gather over tp)
  std::vector<std::int64_t> experts;   // M_e = N_e of the local experts, [R][E_l]
  std::vector<std::int64_t> splits;    // S of every ep group, [etp][ep][ep], as SplitMatrix wants it

  std::int64_t T(int rank = 0) const { return tokens[rank]; }
};

// Row counts per local expert summed per rank, and rounded up to a multiple each.
std::vector<std::int64_t> sums_per_rank(const std::vector<std::int64_t>& per_expert, int experts);
std::vector<std::int64_t> round_up_each(std::vector<std::int64_t> rows, std::int64_t multiple);

// The experts' part of a program: grouped GEMMs and the activation between them (docs/spec.md 1.6).
struct ExpertBlock {
  int table = -1;                  // rows per expert
  std::vector<std::int64_t> rows;  // their sum per rank
  std::int64_t H = 0, F = 0;       // F' of this rank
  std::int64_t b = 2, b_p = 4;
  int experts = 1;  // local experts
  bool gated = true;
  bool split_gate = false;   // gate and up are two weights and two GEMMs of N = F'
  bool probability = false;  // the activation multiplies the routing probability
  bool recompute_activation = false, recompute_products = false;  // products: fc1 and the activation
  DType dtype = DType::kBf16;
  GemmBackend backend = GemmBackend::kGrouped;
  Category category = Category::expert;
  const ExpertMoves* moves = nullptr;
  int copies = -1;                // matrix of the copied experts
  std::int64_t expert_bytes = 0;  // weight bytes of an expert
  // gradient bytes of a copied expert that are summed over copies, per microbatch
  std::int64_t copied_gradient = 0;
  std::int64_t lora_rank = 0;  // of the adapters beside frozen weights; 0: the weights are trained

  int launches() const { return backend == GemmBackend::kLoop ? experts : 1; }
  std::int64_t F_up() const { return (gated ? 2 : 1) * F; }
};

ExpertBlock expert_block(const MoeLayer& layer, const LayerSizes& sizes, ProgramBuilder& builder);

// Names of an adapter's two products (arXiv 2106.09685), each grouped as those of the weight beside it.
inline constexpr std::string_view kLoraDown = "LoRA down", kLoraUp = "LoRA up";

// fc1, activation (x probability), fc2. Saves the activations of the experts; the caller saves the input
// rows. Allocates the output (rows x H), which the caller frees with free_expert_output().
void experts_forward(ProgramBuilder& builder, const ExpertBlock& block);
void free_expert_output(ProgramBuilder& builder, const ExpertBlock& block);
// fc2 dgrad and wgrad, activation, fc1 dgrad and wgrad, with the transients of docs/spec.md 1.7. The caller
// allocates the incoming gradient rows.
void experts_backward(ProgramBuilder& builder, const ExpertBlock& block);

// Row kernels of docs/spec.md 1.5: n rows of `row` bytes per rank.
void gather_rows(ProgramBuilder& builder, std::string_view name, Category category,
                 const std::vector<std::int64_t>& rows, std::int64_t row);
// Zeroes `targets` rows, then atomically adds `rows` rows.
void scatter_add(ProgramBuilder& builder, std::string_view name, Category category,
                 const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& targets,
                 std::int64_t row);
// Radix sort of n keys with values: ceil(bits / 8) passes over keys and values.
void sort_keys(ProgramBuilder& builder, std::string_view name, Category category,
               const std::vector<std::int64_t>& keys, std::int64_t key_bytes, std::int64_t value_bytes,
               int bits);
// a * x + b * y per rank, as a PerRank.
PerRank combined(ProgramBuilder& builder, const std::vector<std::int64_t>& x, std::int64_t a,
                 const std::vector<std::int64_t>& y, std::int64_t b, std::int64_t offset = 0);

// Returns the rule that forbids batch-level overlap (docs/spec.md 2.2.3) on a layer, if any.
std::optional<std::string> rule_against_batch_overlap(const MoeLayer& layer, bool shared_overlap);

// Returns the smallest number of bits that holds values below n (at least 1).
int bits_for(std::int64_t n);
std::int64_t ceil_div(std::int64_t a, std::int64_t b);
std::int64_t round_up(std::int64_t a, std::int64_t multiple);

// Sets the reported figures that all programs share, adds the full recompute where asked for, and calls
// builder.finish().
Program finish(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes,
               const std::vector<std::int64_t>& computed_rows);

}  // namespace moesim::models

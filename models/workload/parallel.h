// Parallel sizes, rank grids of Megatron and torch DeviceMesh, and the groups cut from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::models {

// Heads or columns of one rank when `all` are split over `ranks`.
inline std::int64_t rank_share(std::int64_t all, std::int64_t ranks) {
  return std::max<std::int64_t>(1, all / ranks);
}

// Largest share of a rank: torch splits whole rows and gives the remainder to the first ranks.
inline std::int64_t largest_share(std::int64_t all, std::int64_t ranks) { return (all + ranks - 1) / ranks; }

// Sizes of a parallel plan. dense: world = tp*cp*dp*pp; experts: world = etp*ep*edp*pp (docs/spec.md 1.1).
struct Parallel {
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t ep = 1;
  std::int64_t etp = 1;
  std::int64_t dp = 1;
  std::int64_t pp = 1;
  std::int64_t vpp = 1;
  std::int64_t microbatches = 1;  // per step and data-parallel rank
  std::int64_t micro_batch = 1;   // sequences
  std::int64_t seq = 4096;        // tokens of one sequence

  // Ranks of a mesh's own expert-parallel axis, which lies inside dp beside the data-parallel axis: each
  // holds a full copy of the dense weights but does not share their state (KempnerForge). 1: experts are
  // spread over ranks that are data-parallel for the dense part.
  std::int64_t mesh_ep = 1;

  std::int64_t world() const { return tp * cp * dp * pp; }
  std::int64_t edp() const { return tp * cp * dp / (etp * ep); }
  // Ranks that share the state of a dense parameter under data parallelism.
  std::int64_t data_ranks() const { return dp * cp / mesh_ep; }
  // Likewise for an expert's parameters.
  std::int64_t expert_data_ranks() const { return mesh_ep > 1 ? data_ranks() : edp(); }
  std::int64_t dispatch_ranks() const { return etp * ep; }
  // Tokens on one rank at MoE entry, with sequence parallelism (rounded up where it does not divide).
  std::int64_t tokens_per_rank() const { return (micro_batch * seq + tp * cp - 1) / (tp * cp); }

  // Throws InputError naming the first violated rule: sizes >= 1, world a multiple of both grids, experts
  // divisible by ep or the reverse, products within 2^31 ranks.
  void validate(std::int64_t experts) const;
};

// One axis of a grid of ranks.
struct Axis {
  std::string name;
  std::int64_t size = 1;
};

// A grid of ranks: rank = sum of index_k * stride_k. Megatron writes the fastest axis first
// ("tp-cp-ep-dp-pp"), torch's DeviceMesh writes it last; both describe the same grid.
class RankGrid {
 public:
  static RankGrid fastest_first(std::vector<Axis> axes);  // Megatron
  static RankGrid fastest_last(std::vector<Axis> axes);   // torch DeviceMesh

  std::int64_t size() const;
  std::span<const Axis> axes() const { return axes_; }  // fastest first
  // Returns all groups along `axes` ("ep", or "tp-ep" for a product) with every other index fixed; members in
  // grid order (fastest axis first), groups in order of their smallest rank. Throws InputError for an unknown
  // axis.
  std::vector<std::vector<std::int32_t>> groups(std::string_view axes) const;
  // Returns the group that contains `rank`.
  std::vector<std::int32_t> group_of(std::int64_t rank, std::string_view axes) const;

 private:
  std::vector<Axis> axes_;
};

}  // namespace moesim::models

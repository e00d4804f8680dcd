// A dispatcher's program: what one MoE layer does, forward and backward, on every rank of a dispatch group.
//
// The sequence of operations is the same on all ranks (rule P of dispatchers.md 2.11); the numbers differ. All
// quantities are rows and bytes; nothing here knows a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/dtype.h"

namespace moesim::models {

// The part of the breakdown that an operation counts for.
enum class Part : std::uint8_t { kRouter, kPermute, kDispatch, kExpert, kCombine, kUnpermute, kHostSync, kAttention };
std::string_view name_of(Part part);

enum class OpKind : std::uint8_t {
  kCollective,  // COMM
  kKernel,      // KERN: memory-bound device work
  kGemm,        // GGEMM: grouped over the local experts
  kCopyToHost,  // D2H, asynchronous
  kHostWait,    // the host waits for everything the operation depends on (a blocking sync)
  kHost,        // host work between launches
  kAllocate,    // ALLOC
  kFree,        // FREE
};

enum class Stream : std::uint8_t { kCompute, kComm, kCopy, kShared, kHost };
inline constexpr int kStreams = 5;

enum class CommKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,   // equal splits
  kAllToAllV,  // splits of a matrix
  kAllGatherV,
  kReduceScatterV,
};
// "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "all_to_all_v", "all_gather_v", "reduce_scatter_v".
std::string_view name_of(CommKind kind);

// Who takes part, inside the dispatch group of R = ETP * EP ranks (rank = etp + ETP * ep).
enum class GroupKind : std::uint8_t { kTpEp /* all R */, kEp /* same etp */, kTp /* same ep */ };
std::string_view name_of(GroupKind group);  // "tp_ep", "ep", "tp"

// Classes of memory-bound kernels (dispatchers.md 1.5): they differ in the share of bandwidth they reach.
enum class KernelKind : std::uint8_t {
  kGatherRows,        // permute, index_select
  kUnpermute,         // per-token sum of rows
  kScatterAdd,        // atomics
  kScatterAddSorted,  // deterministic: sort of rows keys, then an ordered add
  kSort,              // radix sort of keys
  kHistogram,
  kElementwise,       // casts, multiplies, activation
  kFill,              // zeros, padding
  kCopyStrided,       // chunk sort, transpose copies, stack of weights
  kLayout,            // small index and metadata kernels
};
std::string_view name_of(KernelKind kind);

enum class GemmRole : std::uint8_t { kForward, kDgrad, kWgrad };
// How the local experts' GEMMs are launched.
enum class ExpertBackend : std::uint8_t { kGrouped, kLoop, kBatched };

// One number per rank, or the same for all: value of rank r = values[first + step * r].
struct PerRank {
  std::uint32_t first = 0;
  std::uint32_t step = 0;
};

// One operation. Fields that its kind does not use are zero.
struct Op {
  OpKind kind = OpKind::kKernel;
  Part part = Part::kExpert;
  Stream stream = Stream::kCompute;
  std::string_view name;  // what it does, e.g. "tokens"; a literal

  // In-order on its stream; besides, it starts after these operations of the same pass (-1: none).
  std::int32_t after[2] = {-1, -1};

  // kCollective
  CommKind comm = CommKind::kAllGather;
  GroupKind group = GroupKind::kTpEp;
  DType dtype = DType::kBf16;
  bool fused = false;      // travels inside the previous collective: its bytes count, its launch does not
  bool one_kernel = false; // a dispatch or combine kernel of its own kind (DeepEP, HybridEP), not NCCL
  PerRank in, out, tx, rx;   // bytes, dispatchers.md 1.3
  std::int32_t matrix = -1;  // kAllToAllV: index into Program::matrices()
  bool transposed = false;   // rows go the other way
  std::int64_t row_bytes = 0;

  // kKernel
  KernelKind kernel = KernelKind::kElementwise;
  PerRank read, written;  // bytes
  std::int32_t launches = 1;

  // kGemm: rows per local expert in Program::expert_rows(table, rank)
  GemmRole role = GemmRole::kForward;
  ExpertBackend backend = ExpertBackend::kGrouped;
  std::int32_t table = -1;
  std::int64_t n = 0, k = 0;  // forward sense: [M,k] x [k,n]
  std::int32_t repeat = 1;    // separate equal GEMMs (gate and up as two weights)

  // kCopyToHost, kAllocate, kFree: bytes; kHost: nanoseconds are the cost model's business, this counts calls
  PerRank bytes;
  std::int32_t calls = 0;
};

// Rows sent from rank to rank, over the whole dispatch group: rows[src * ranks + dst].
struct SplitMatrix {
  std::vector<std::int64_t> rows;
};

struct ExpertRows {
  int experts = 0;                // local experts
  std::vector<std::int64_t> rows;  // [ranks][experts]
};

class Program {
 public:
  explicit Program(int ranks, int ep, int etp) : ranks_(ranks), ep_(ep), etp_(etp) {}

  int ranks() const { return ranks_; }
  int ep() const { return ep_; }
  int etp() const { return etp_; }
  int group_size(GroupKind group) const;
  // Position-independent description of the groups: the members of the group of `kind` that holds `rank`.
  std::vector<int> members(GroupKind kind, int rank) const;

  std::span<const Op> forward() const { return forward_; }
  std::span<const Op> backward() const { return backward_; }
  std::int64_t value(PerRank v, int rank) const { return values_[v.first + std::size_t(v.step) * rank]; }
  std::span<const SplitMatrix> matrices() const { return matrices_; }
  std::span<const std::int64_t> expert_rows(int table, int rank) const {
    const ExpertRows& t = tables_[table];
    return {t.rows.data() + std::size_t(t.experts) * rank, std::size_t(t.experts)};
  }

  // Host synchronisations of the forward pass, hidden ones included.
  int host_syncs() const;

  // What the run reports beside times.
  std::vector<std::int64_t> computed_rows;   // a_r of dispatchers.md 4: rows of the experts' GEMMs
  std::vector<std::int64_t> balanced_rows;   // u_r = T_r * K
  std::vector<std::int64_t> saved_bytes;     // A_save: kept from forward to backward
  std::vector<std::int64_t> peak_forward_bytes;   // transient on top of what is saved, forward
  std::vector<std::int64_t> peak_backward_bytes;  // the same, backward
  std::int64_t persistent_bytes = 0;         // buffers allocated once per process
  std::int64_t dropped_rows = 0;             // over the group
  double work_replication = 1;               // times that each token is processed by the group (KempnerForge: EP)
  std::vector<std::pair<std::string, std::int64_t>> counters;  // fast paths taken, under their original names
  std::vector<std::string> warnings;

 private:
  friend class ProgramBuilder;
  int ranks_, ep_, etp_;
  std::vector<Op> forward_, backward_;
  std::vector<std::int64_t> values_;
  std::vector<SplitMatrix> matrices_;
  std::vector<ExpertRows> tables_;
};

}  // namespace moesim::models

// A dispatcher's program: the operations of one MoE layer, forward and backward, on every rank of a dispatch
// group.
//
// All ranks run the same sequence of operations (rule P of docs/spec.md 2.11) with different numbers.
// Quantities are rows and bytes; a program contains no times.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/hardware/device_work.h"
#include "models/hardware/dtype.h"
#include "sim/graph/task_graph.h"

namespace moesim::models {

enum class OpKind : std::uint8_t {
  kCollective,  // COMM
  kKernel,      // KERN: memory-bound device work
  kGemm,        // GGEMM: grouped over the local experts, or dense with one "expert"
  kAttention,   // the flash-style core of attention
  kScan,        // the chunked scan of a state-space mixer
  kCopyToHost,  // D2H, asynchronous
  kHostWait,    // the host waits for the operation's dependencies (a blocking sync)
  kHost,        // host work between launches
  kAllocate,    // ALLOC
  kFree,        // FREE
};

// In-order queues of one rank. kHost is the CPU thread that launches.
enum class Stream : std::uint8_t { kCompute, kComm, kCopy, kShared, kHost };
inline constexpr int kStreams = 5;

enum class CommKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,   // equal splits
  kAllToAllV,  // splits from a matrix
  kAllGatherV,
  kReduceScatterV,
};
// "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "all_to_all_v", "all_gather_v",
// "reduce_scatter_v".
std::string_view name_of(CommKind kind);
// Returns the simulator's operation, which distinguishes equal and unequal pieces by their traffic.
sim::CollectiveOp simulated(CommKind kind);

// The participants of a collective inside the dispatch group of R = ETP * EP ranks (rank = etp + ETP * ep).
enum class GroupKind : std::uint8_t {
  kTpEp,   // all R
  kEp,     // same ETP index
  kTp,     // same EP index
  kDense,  // tensor-parallel ranks of the dense part, in consecutive blocks (only in the dense program)
};
std::string_view name_of(GroupKind group);  // "tp_ep", "ep", "tp", "dense_tp"

// One number per rank, or one for all ranks: the value of rank r is values[first + step * r].
struct PerRank {
  std::uint32_t first = 0;
  std::uint32_t step = 0;
};

// One operation. Fields that its kind does not use keep their defaults.
struct Op {
  OpKind kind = OpKind::kKernel;
  sim::Category category = sim::Category::other;
  Stream stream = Stream::kCompute;
  std::string_view name;  // purpose, "tokens"; a literal

  // Ranks with `present` 0 do not issue it (kernels, products, copies and host waits only).
  bool partial = false;
  PerRank present;

  // Dependencies besides stream order: indices of operations of the same pass (-1: none).
  std::array<std::int32_t, 2> after{-1, -1};

  // kCollective
  CommKind comm = CommKind::kAllGather;
  GroupKind group = GroupKind::kTpEp;
  DType dtype = DType::kBf16;
  bool fused = false;         // travels inside the previous collective: its bytes count, its launch does not
  bool one_kernel = false;    // a dispatch or combine kernel of a library (DeepEP, HybridEP), not NCCL
  bool across_nodes = false;  // of such a kernel: the network stage (otherwise the NVLink stage)
  ExchangeLibrary library = ExchangeLibrary::kNone;
  std::int32_t sms = 0;      // SMs occupied by such a kernel
  PerRank in, out, tx, rx;   // bytes, docs/spec.md 1.3
  std::int32_t matrix = -1;  // kAllToAllV: index into Program::matrices()
  bool transposed = false;   // the exchange goes in the other direction
  std::int64_t row_bytes = 0;

  // kKernel
  KernelClass kernel = KernelClass::kElementwise;
  PerRank read, written;      // bytes
  std::int32_t launches = 1;  // kKernel, kGemm: kernels launched by the host; kHost: calls (builder)

  // kGemm: rows per local expert are expert_rows(table, rank); kAttention: table is the index of its core
  GemmPass pass = GemmPass::kForward;
  GemmBackend backend = GemmBackend::kGrouped;
  std::int32_t table = -1;
  std::int64_t n = 0, k = 0;  // forward shape: [M,k] x [k,n]
  std::int32_t repeat = 1;    // equal consecutive GEMMs (gate and up as two weights)
  bool plain = false;         // kGemm: stays in bf16, whatever the recipe's type of products
  std::int64_t flops = 0;     // kScan
  bool unmeasured = false;    // kScan, kAttention: priced at the rate of another, measured kernel

  // kCopyToHost, kAllocate, kFree: bytes
  PerRank bytes;
};

// The core of attention on one rank.
struct AttentionCore {
  std::int64_t queries = 0;  // tokens, over all sequences of the microbatch
  std::int64_t seq = 0;      // length of a sequence
  std::int64_t cp = 1;       // ranks that share a sequence
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t score_dim = 0, value_dim = 0;  // per head
  std::int64_t window = 0;                    // tokens; 0: none
  bool chunked = false;                       // windows are fixed chunks
  bool gathered = false;                      // over latent vectors chosen per token
  bool fp8 = false;
  bool unfused = false, dropout = false;  // scores go through memory; dropout of the probabilities
};

// Rows from member to member in every group of one kind: rows[(group * g + sender) * g + receiver].
struct SplitMatrix {
  GroupKind group = GroupKind::kEp;
  std::vector<std::uint32_t> rows;
};

// Rows per rank of an exchange that forwards rows inside NVLink domains: through its network port and through
// its NVLink ports, each the larger of sent and received.
struct StagedRows {
  std::vector<std::int64_t> network, nvlink;
  bool in_host = false;  // for domains smaller than a machine
};

// Rows of each local expert of each rank, [ranks][experts].
struct ExpertRows {
  int experts = 0;
  std::vector<std::int64_t> rows;
};

class Program {
 public:
  explicit Program(int ep = 1, int etp = 1, int dense_tp = 1) : ep_(ep), etp_(etp), dense_tp_(dense_tp) {}

  int ranks() const { return ep_ * etp_; }
  int ep() const { return ep_; }
  int etp() const { return etp_; }
  // Members per group. For kDense, where the tensor-parallel size does not divide the dispatch group: one
  // group of all its ranks, whose remaining members lie outside of the dispatch group.
  int group_size(GroupKind group) const;
  int group_count(GroupKind group) const;
  // Maps a member of the `group`-th group of this kind to its rank, and back.
  int rank_of(GroupKind kind, int group, int member) const;
  int group_index(GroupKind kind, int rank) const;
  int member_index(GroupKind kind, int rank) const;

  const std::vector<Op>& forward() const { return forward_; }
  const std::vector<Op>& backward() const { return backward_; }
  std::int64_t value(PerRank v, int rank) const { return values_[v.first + std::size_t{v.step} * rank]; }
  bool uniform(PerRank v) const { return v.step == 0; }
  const std::vector<SplitMatrix>& matrices() const { return matrices_; }
  // Returns the g x g rows of one group.
  std::span<const std::uint32_t> matrix(int id, int group) const {
    const SplitMatrix& m = matrices_[id];
    const std::size_t g = group_size(m.group);
    return {m.rows.data() + group * g * g, g * g};
  }
  // Returns the rows of a library's exchange if NVLink domains were smaller: one entry for every smaller
  // domain of whole nodes; for a group inside one node, one entry for every halving.
  const std::vector<StagedRows>& smaller_domains() const { return smaller_domains_; }
  std::span<const std::int64_t> expert_rows(int table, int rank) const {
    const ExpertRows& t = tables_[table];
    return {t.rows.data() + std::size_t(t.experts) * rank, std::size_t(t.experts)};
  }

  const AttentionCore& attention(int id) const { return attentions_[static_cast<std::size_t>(id)]; }

  bool issues(const Op& op, int rank) const { return !op.partial || value(op.present, rank) != 0; }
  // Returns the blocking host synchronisations of a pass, hidden ones included: the maximum over ranks.
  int host_syncs(const std::vector<Op>& pass) const;

  // Reported figures besides times; one value per rank.
  std::vector<std::int64_t> tokens;         // T_r
  std::vector<std::int64_t> computed_rows;  // rows of the experts' GEMMs, padding included
  std::vector<std::int64_t>
      // a_r of docs/spec.md 4: rows received by the experts, without padding of their products
      dispatched_rows;
  std::vector<std::int64_t> balanced_rows;        // u_r = T_r * K
  std::vector<std::int64_t> saved_bytes;          // A_save: saved from forward to backward
  std::vector<std::int64_t> peak_forward_bytes;   // peak during forward, saved bytes included
  std::vector<std::int64_t> peak_backward_bytes;  // peak during backward
  std::int64_t persistent_bytes = 0;              // buffers allocated once per process
  std::int64_t layer_bytes = 0;                   // buffers that each MoE layer keeps
  std::int64_t dropped_rows = 0;                  // summed over the group
  // true: a lower bound on the bytes of kernels; false: the bytes of a framework's kernels
  bool compulsory_bytes = true;
  bool tokens_replicated = false;   // all ranks of the EP group process the same tokens (KempnerForge)
  bool forces_routing = false;      // routes in its own way, whatever routing was requested
  bool overlaps_batches = false;    // backward of one microbatch runs beside forward of the next
  bool runs_shared_expert = false;  // the shared expert is part of this program (overlapped)
  std::vector<std::pair<std::string, std::int64_t>> counters;  // fast paths taken, under their original names
  std::vector<std::string> warnings;

 private:
  friend class ProgramBuilder;
  int ep_, etp_, dense_tp_;
  std::vector<Op> forward_, backward_;
  std::vector<std::int64_t> values_;
  std::vector<SplitMatrix> matrices_;
  std::vector<StagedRows> smaller_domains_;
  std::vector<ExpertRows> tables_;
  std::vector<AttentionCore> attentions_;
};

}  // namespace moesim::models

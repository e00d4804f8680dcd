// A dispatcher's program: what one MoE layer does, forward and backward, on every rank of a dispatch group.
//
// The sequence of operations is the same on all ranks (rule P of docs/spec.md 2.11); the numbers differ.
// All quantities are rows and bytes; nothing here knows a time.
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
  kHostWait,    // the host waits for what the operation depends on (a blocking sync)
  kHost,        // host work between launches
  kAllocate,    // ALLOC
  kFree,        // FREE
};

// In-order queues of one rank. kHost is the CPU that launches everything.
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
// "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "all_to_all_v", "all_gather_v",
// "reduce_scatter_v".
std::string_view name_of(CommKind kind);
// What it is to the simulator, which tells equal and unequal pieces apart by the traffic.
sim::CollectiveOp simulated(CommKind kind);

// Who takes part, inside the dispatch group of R = ETP * EP ranks (rank = etp + ETP * ep).
enum class GroupKind : std::uint8_t {
  kTpEp,   // all R
  kEp,     // same ETP index
  kTp,     // same EP index
  kDense,  // tensor-parallel ranks of the dense part: consecutive blocks (only in the dense program)
};
std::string_view name_of(GroupKind group);  // "tp_ep", "ep", "tp", "dense_tp"

// One number per rank, or the same for all: value of rank r = values[first + step * r].
struct PerRank {
  std::uint32_t first = 0;
  std::uint32_t step = 0;
};

// One operation. Fields that its kind does not use keep their defaults.
struct Op {
  OpKind kind = OpKind::kKernel;
  sim::Category category = sim::Category::other;
  Stream stream = Stream::kCompute;
  std::string_view name;  // what it does, "tokens"; a literal

  // Ranks on which `present` is 0 do not issue it (of kernels, products, copies and waits for the host).
  bool partial = false;
  PerRank present;

  // In-order on its stream; besides, it starts after these operations of the same pass (-1: none).
  std::array<std::int32_t, 2> after{-1, -1};

  // kCollective
  CommKind comm = CommKind::kAllGather;
  GroupKind group = GroupKind::kTpEp;
  DType dtype = DType::kBf16;
  bool fused = false;         // travels inside the previous collective: its bytes count, its launch does not
  bool one_kernel = false;    // a dispatch or combine kernel of its own kind (DeepEP, HybridEP), not NCCL
  bool across_nodes = false;  // of such a kernel: the network stage (otherwise the NVLink stage)
  ExchangeLibrary library = ExchangeLibrary::kNone;
  std::int32_t sms = 0;      // of such a kernel: SMs that it occupies
  PerRank in, out, tx, rx;   // bytes, docs/spec.md 1.3
  std::int32_t matrix = -1;  // kAllToAllV: index into Program::matrices()
  bool transposed = false;   // rows go the other way
  std::int64_t row_bytes = 0;

  // kKernel
  KernelClass kernel = KernelClass::kElementwise;
  PerRank read, written;      // bytes
  std::int32_t launches = 1;  // of kKernel and kGemm: kernels launched by the host; of kHost: calls (builder)

  // kGemm: rows per local expert are expert_rows(table, rank); kAttention: table is the index of its core
  GemmPass pass = GemmPass::kForward;
  GemmBackend backend = GemmBackend::kGrouped;
  std::int32_t table = -1;
  std::int64_t n = 0, k = 0;  // forward sense: [M,k] x [k,n]
  std::int32_t repeat = 1;    // equal GEMMs one after the other (gate and up as two weights)
  bool plain = false;         // kGemm: stays in bf16, whatever the recipe has for products
  std::int64_t flops = 0;     // kScan
  bool unmeasured = false;    // kScan, kAttention: at the rate of another kernel, which was

  // kCopyToHost, kAllocate, kFree: bytes
  PerRank bytes;
};

// The core of attention on one rank.
struct AttentionCore {
  std::int64_t queries = 0;  // tokens, all sequences of the microbatch
  std::int64_t seq = 0;      // length of a sequence
  std::int64_t cp = 1;       // ranks that share a sequence
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t score_dim = 0, value_dim = 0;  // of a head
  std::int64_t window = 0;                    // tokens; 0: none
  bool chunked = false;                       // windows that do not slide
  bool gathered = false;                      // over latent vectors, chosen token by token
  bool fp8 = false;
  bool unfused = false, dropout = false;  // scores go through memory; dropout of the probabilities
};

// Rows from member to member of every group of one kind: rows[(group * g + sender) * g + receiver].
struct SplitMatrix {
  GroupKind group = GroupKind::kEp;
  std::vector<std::uint32_t> rows;
};

// Rows of an exchange that hands rows on inside NVLink domains, by rank: through its network port and through
// its NVLink ports, whichever of sending and receiving is more.
struct StagedRows {
  std::vector<std::int64_t> network, nvlink;
  bool in_host = false;  // of domains that are smaller than a machine
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
  // Of kDense where the dispatch group is no multiple of the tensor-parallel size: all its ranks stand in one
  // group, whose other members are not seen here.
  int group_size(GroupKind group) const;
  int group_count(GroupKind group) const;
  // The rank that is member `member` of the `group`-th group of this kind, and back.
  int rank_of(GroupKind kind, int group, int member) const;
  int group_index(GroupKind kind, int rank) const;
  int member_index(GroupKind kind, int rank) const;

  const std::vector<Op>& forward() const { return forward_; }
  const std::vector<Op>& backward() const { return backward_; }
  std::int64_t value(PerRank v, int rank) const { return values_[v.first + std::size_t{v.step} * rank]; }
  bool uniform(PerRank v) const { return v.step == 0; }
  const std::vector<SplitMatrix>& matrices() const { return matrices_; }
  // The g x g rows of one group.
  std::span<const std::uint32_t> matrix(int id, int group) const {
    const SplitMatrix& m = matrices_[id];
    const std::size_t g = group_size(m.group);
    return {m.rows.data() + group * g * g, g * g};
  }
  // What the exchange of a library would move were the domains smaller: one entry for every size at the
  // borders of nodes, and of a group inside one node for every half of it.
  const std::vector<StagedRows>& smaller_domains() const { return smaller_domains_; }
  std::span<const std::int64_t> expert_rows(int table, int rank) const {
    const ExpertRows& t = tables_[table];
    return {t.rows.data() + std::size_t(t.experts) * rank, std::size_t(t.experts)};
  }

  const AttentionCore& attention(int id) const { return attentions_[static_cast<std::size_t>(id)]; }

  bool issues(const Op& op, int rank) const { return !op.partial || value(op.present, rank) != 0; }
  // Blocking host synchronisations of a pass, hidden ones included: the most of any rank.
  int host_syncs(const std::vector<Op>& pass) const;

  // What the run reports beside times; one value per rank.
  std::vector<std::int64_t> tokens;         // T_r
  std::vector<std::int64_t> computed_rows;  // rows of the experts' GEMMs, padding included
  std::vector<std::int64_t>
      dispatched_rows;  // a_r of docs/spec.md 4: rows that the experts got, without padding of their products
  std::vector<std::int64_t> balanced_rows;  // u_r = T_r * K
  std::vector<std::int64_t> saved_bytes;    // A_save: kept from forward to backward
  std::vector<std::int64_t>
      peak_forward_bytes;  // highest amount at any time of forward, saved bytes included
  std::vector<std::int64_t> peak_backward_bytes;  // the same of backward
  std::int64_t persistent_bytes = 0;              // buffers allocated once per process
  std::int64_t dropped_rows = 0;                  // over the group
  bool compulsory_bytes = true;     // kernels move at least these bytes; false: as many as a framework's do
  bool tokens_replicated = false;   // all ranks of the EP group process the same tokens (KempnerForge)
  bool forces_routing = false;      // it routes in its own way, whatever was asked for
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

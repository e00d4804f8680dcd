// Builds a Program: operations in issue order, each on its stream, waiting by default for the previously
// issued one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "models/programs/program.h"

namespace moesim::models {

class ProgramBuilder {
 public:
  enum class Pass : std::uint8_t { kForward, kBackward };

  ProgramBuilder(int ep, int etp, int dense_tp = 1);

  int ranks() const { return program_.ranks(); }
  Program& program() { return program_; }

  // Numbers.
  PerRank uniform(std::int64_t value);
  PerRank per_rank(std::span<const std::int64_t> values);
  // value(rank) = factor * rows[rank] + offset, the usual form of a byte count.
  PerRank scaled(std::span<const std::int64_t> rows, std::int64_t factor, std::int64_t offset = 0);
  // Adds [groups][g][g] rows (see SplitMatrix). Throws InputError for 2^32 or more rows between two ranks.
  int matrix(GroupKind group, const std::vector<std::int64_t>& rows);
  int table(int experts, std::vector<std::int64_t> rows);
  void smaller_domain(StagedRows rows) { program_.smaller_domains_.push_back(std::move(rows)); }

  // Appends following operations to this pass; forward first.
  void begin(Pass pass);
  std::vector<Op>& ops() { return pass_ == Pass::kForward ? program_.forward_ : program_.backward_; }

  // Collectives, in bytes per rank. A collective over a group of one is dropped and returns -1.
  int all_gather(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                 std::int64_t piece);
  int reduce_scatter(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                     std::int64_t piece);
  // Likewise with pieces of rows[rank] * row_bytes that are equal within each group.
  int all_gather_rows(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                      std::span<const std::int64_t> rows, std::int64_t row_bytes);
  int reduce_scatter_rows(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                          std::span<const std::int64_t> rows, std::int64_t row_bytes);
  int all_reduce(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                 std::int64_t bytes);
  int all_to_all(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                 std::int64_t bytes);
  int all_to_all_v(std::string_view name, sim::Category category, DType dtype, int matrix, bool transposed,
                   std::int64_t row_bytes);
  // Pieces of rows[rank] * row_bytes.
  int all_gather_v(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                   std::span<const std::int64_t> rows, std::int64_t row_bytes);
  int reduce_scatter_v(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                       std::span<const std::int64_t> rows, std::int64_t row_bytes);

  int kernel(std::string_view name, sim::Category category, KernelClass kernel, PerRank read, PerRank written,
             int launches = 1);
  int gemm(std::string_view name, sim::Category category, GemmPass pass, GemmBackend backend, DType dtype,
           int table, std::int64_t n, std::int64_t k, int repeat, int launches);
  int attention(std::string_view name, sim::Category category, GemmPass pass, const AttentionCore& core,
                int launches = 1);
  int scan(std::string_view name, sim::Category category, std::int64_t flops);
  // Adds `calls` host calls of an eager framework, `launches` of which launch an operation of this program
  // (whose launch cost is charged there).
  void host_calls(std::string_view name, int calls, int launches);
  // Adds a copy of `bytes` to the host on the compute stream and a blocking wait for it.
  int host_sync(std::string_view name, sim::Category category, PerRank bytes);
  // The two halves of host_sync(): an asynchronous copy on the side stream, and the host's wait for it.
  int copy_to_host(std::string_view name, sim::Category category, PerRank bytes, int after);
  int host_wait(std::string_view name, sim::Category category, int copy);

  // Marks the last operation, a collective, as a library's dispatch or combine kernel; `across_nodes`: the
  // network stage; `fused`: it travels inside the previous collective.
  void mark_kernel(bool across_nodes, bool fused, ExchangeLibrary library = ExchangeLibrary::kNone,
                   int sms = 0);

  // Makes the next operation also wait for `op` (no effect for -1).
  void join(int op);
  // Lets the last operation run beside the following ones: the next one waits for its predecessor instead.
  void detach();
  // Issues the next operation on this stream: it waits only for the stream and its joins, and only operations
  // that join it wait for it.
  void beside(Stream stream) {
    on(stream);
    beside_ = true;
  }
  // Issues the next operation on a stream other than its kind's default.
  void on(Stream stream) {
    stream_ = stream;
    stream_given_ = true;
  }
  // Until on_all_ranks(), only ranks with a nonzero entry issue kernels, products, copies and host waits.
  void only_on(std::span<const std::int64_t> present) {
    partial_ = std::find(present.begin(), present.end(), 0) != present.end();
    if (partial_) present_ = per_rank(present);
  }
  void on_all_ranks() { partial_ = false; }
  // Returns the last operation issued, -1 at the start of a pass.
  int last() const {
    return static_cast<int>(pass_ == Pass::kForward ? program_.forward_.size() : program_.backward_.size()) -
           1;
  }

  // Memory. save(): allocates now and keeps until the end of backward. allocate() and free(): transient.
  void save(std::string_view name, PerRank bytes);
  void allocate(std::string_view name, PerRank bytes);
  void free(std::string_view name, PerRank bytes);

  // Full recompute: only `kept` of what forward saved stays; backward first repeats the whole forward pass.
  // Must be the last call.
  void recompute_all(PerRank kept);

  // Computes saved and peak bytes from the operations and returns the program. The builder is empty
  // afterwards.
  Program finish();

  int push(Op op);

 private:
  // Rows of a matrix by rank; `own` stay on the rank.
  struct Margins {
    std::vector<std::int64_t> sent, received, own;
  };
  Margins margins_of(const SplitMatrix& matrix) const;

  int collective(CommKind kind, GroupKind group, std::string_view name, sim::Category category, DType dtype,
                 PerRank in, PerRank out, PerRank tx, PerRank rx);

  Program program_;
  Pass pass_ = Pass::kForward;
  std::int32_t tail_ = -1;    // operation that the next one waits for
  std::int32_t before_ = -1;  // the tail before the last operation
  std::vector<std::int32_t> joins_;
  Stream stream_ = Stream::kCompute;
  bool stream_given_ = false;
  bool beside_ = false;
  bool partial_ = false;
  PerRank present_;
  std::vector<PerRank> saved_;
  std::vector<Margins> margins_;  // by matrix
};

}  // namespace moesim::models

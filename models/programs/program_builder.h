// Writes a Program: operations in issue order, each on its stream, waiting by default for the one issued
// before.
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
  // [groups][g][g] rows as SplitMatrix holds them. Throws InputError for 2^32 rows between two ranks.
  int matrix(GroupKind group, const std::vector<std::int64_t>& rows);
  int table(int experts, std::vector<std::int64_t> rows);
  void smaller_domain(StagedRows rows) { program_.smaller_domains_.push_back(std::move(rows)); }

  // Operations go to the end of this pass; forward first.
  void begin(Pass pass);
  std::vector<Op>& ops() { return pass_ == Pass::kForward ? program_.forward_ : program_.backward_; }

  // Collectives over groups of one vanish: -1 is returned then, as where nothing was issued. Bytes per rank.
  int all_gather(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                 std::int64_t piece);
  int reduce_scatter(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                     std::int64_t piece);
  // The same with pieces of rows[rank] * row_bytes that are equal within each group.
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
  // The host makes `calls` calls of an eager framework, `launches` of which launch an operation of this
  // program (their launches are charged there).
  void host_calls(std::string_view name, int calls, int launches);
  // Copy of `bytes` to the host on the compute stream and a blocking wait for it.
  int host_sync(std::string_view name, sim::Category category, PerRank bytes);
  // The two halves of it: a copy on the side stream that nothing waits for, and the wait of the host for it.
  int copy_to_host(std::string_view name, sim::Category category, PerRank bytes, int after);
  int host_wait(std::string_view name, sim::Category category, int copy);

  // The last operation is a collective: it is a dispatch or combine kernel of its own kind; `across_nodes`
  // for the network stage, `fused` when it travels inside the collective before it.
  void mark_kernel(bool across_nodes, bool fused, ExchangeLibrary library = ExchangeLibrary::kNone,
                   int sms = 0);

  // The next operation also waits for `op` (no effect for -1).
  void join(int op);
  // The last operation runs beside what follows: the next one waits for what was issued before it instead.
  void detach();
  // The next operation goes to this stream, waits only for what is on it already and for its joins, and
  // nothing waits for it but what joins it.
  void beside(Stream stream) {
    on(stream);
    beside_ = true;
  }
  // The next operation goes to another stream than its kind's own.
  void on(Stream stream) {
    stream_ = stream;
    stream_given_ = true;
  }
  // Until on_all_ranks(), kernels, products, copies and waits for the host are issued only by the ranks whose
  // entry is not 0.
  void only_on(std::span<const std::int64_t> present) {
    partial_ = std::find(present.begin(), present.end(), 0) != present.end();
    if (partial_) present_ = per_rank(present);
  }
  void on_all_ranks() { partial_ = false; }
  // Last operation issued, -1 at the start of a pass.
  int last() const {
    return static_cast<int>(pass_ == Pass::kForward ? program_.forward_.size() : program_.backward_.size()) -
           1;
  }

  // Memory. save(): allocated now, kept until the end of backward. allocate() and free_(): transient.
  void save(std::string_view name, PerRank bytes);
  void allocate(std::string_view name, PerRank bytes);
  void free(std::string_view name, PerRank bytes);

  // Full recompute: of what forward saved only `kept` stays; backward first runs the whole forward pass
  // again. Call last.
  void recompute_all(PerRank kept);

  // Whole-program figures from the operations: saved and peak bytes. The builder is empty afterwards.
  Program finish();

  int push(Op op);

 private:
  // Rows of a matrix by rank; `own` stay where they are.
  struct Margins {
    std::vector<std::int64_t> sent, received, own;
  };
  Margins margins_of(const SplitMatrix& matrix) const;

  int collective(CommKind kind, GroupKind group, std::string_view name, sim::Category category, DType dtype,
                 PerRank in, PerRank out, PerRank tx, PerRank rx);

  Program program_;
  Pass pass_ = Pass::kForward;
  std::int32_t tail_ = -1;    // what the next operation waits for
  std::int32_t before_ = -1;  // the tail before the last operation
  std::vector<std::int32_t> joins_;
  Stream stream_ = Stream::kCompute;
  bool stream_given_ = false;
  bool beside_ = false;
  bool partial_ = false;
  PerRank present_;
  std::vector<PerRank> saved_;
  std::vector<Margins> margins_;  // of every matrix
};

}  // namespace moesim::models

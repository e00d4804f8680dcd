#include "models/programs/program_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::models {

ProgramBuilder::ProgramBuilder(int ep, int etp, int dense_tp) : program_(ep, etp, dense_tp) {
  program_.forward_.reserve(48);
  program_.backward_.reserve(48);
  program_.values_.reserve(64 * static_cast<std::size_t>(ranks()));
}

namespace {

// Checks for a size that overflowed earlier or is impossible.
void check_size(std::int64_t value) {
  if (value < 0 || value > kMostSize)
    throw InputError(fmt::format("dispatcher: found an operation of {} bytes or rows, expected at most 2^56",
                                 value < 0 ? std::string("more than 2^63") : std::to_string(value)));
}

}  // namespace

PerRank ProgramBuilder::uniform(std::int64_t value) {
  check_size(value);
  const auto first = static_cast<std::uint32_t>(program_.values_.size());
  program_.values_.push_back(value);
  return {first, 0};
}

PerRank ProgramBuilder::per_rank(std::span<const std::int64_t> values) { return scaled(values, 1); }

PerRank ProgramBuilder::scaled(std::span<const std::int64_t> rows, std::int64_t factor, std::int64_t offset) {
  check(rows.size() == static_cast<std::size_t>(ranks()), "one value per rank");
  const auto first = static_cast<std::uint32_t>(program_.values_.size());
  for (const std::int64_t r : rows) {
    std::int64_t value = 0;
    if (__builtin_mul_overflow(r, factor, &value) || __builtin_add_overflow(value, offset, &value))
      value = -1;
    check_size(value);
    program_.values_.push_back(value);
  }
  return {first, 1};
}

int ProgramBuilder::matrix(GroupKind group, const std::vector<std::int64_t>& rows) {
  const auto g = static_cast<std::size_t>(program_.group_size(group));
  check(rows.size() == g * static_cast<std::size_t>(ranks()), "a split matrix has g x g rows per group");
  SplitMatrix m{group, std::vector<std::uint32_t>(rows.size())};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] > std::numeric_limits<std::uint32_t>::max())
      throw InputError("routing: found " + std::to_string(rows[i]) +
                       " rows between two ranks, expected less than 2^32");
    m.rows[i] = static_cast<std::uint32_t>(rows[i]);
  }
  margins_.push_back(margins_of(m));
  program_.matrices_.push_back(std::move(m));
  return static_cast<int>(program_.matrices_.size()) - 1;
}

ProgramBuilder::Margins ProgramBuilder::margins_of(const SplitMatrix& m) const {
  const auto n = static_cast<std::size_t>(ranks());
  Margins all{std::vector<std::int64_t>(n), std::vector<std::int64_t>(n), std::vector<std::int64_t>(n)};
  const int g = program_.group_size(m.group);
  const std::uint32_t* row = m.rows.data();
  std::vector<std::int64_t> received(static_cast<std::size_t>(g));
  for (int group = 0; group < program_.group_count(m.group); ++group) {
    std::fill(received.begin(), received.end(), 0);
    for (int s = 0; s < g; ++s, row += g) {
      const auto sender = static_cast<std::size_t>(program_.rank_of(m.group, group, s));
      std::int64_t sent = 0;
      for (int d = 0; d < g; ++d) {
        sent += row[d];
        received[static_cast<std::size_t>(d)] += row[d];
      }
      all.sent[sender] = sent;
      all.own[sender] = row[s];
    }
    for (int d = 0; d < g; ++d)
      all.received[static_cast<std::size_t>(program_.rank_of(m.group, group, d))] =
          received[static_cast<std::size_t>(d)];
  }
  return all;
}

int ProgramBuilder::table(int experts, std::vector<std::int64_t> rows) {
  check(rows.size() == static_cast<std::size_t>(experts) * ranks(),
        "a table has a row count per rank and expert");
  program_.tables_.push_back({experts, std::move(rows)});
  return static_cast<int>(program_.tables_.size()) - 1;
}

void ProgramBuilder::begin(Pass pass) {
  pass_ = pass;
  tail_ = before_ = -1;
  joins_.clear();
}

int ProgramBuilder::push(Op op) {
  if (stream_given_) {
    op.stream = stream_;
    stream_given_ = false;
  }
  std::size_t slot = 0;
  const auto wait_for = [&](std::int32_t other) {
    // The stream's order already covers operations on the same stream.
    if (other < 0 || (ops()[other].stream == op.stream && op.kind != OpKind::kHostWait)) return;
    if (std::find(op.after.begin(), op.after.end(), other) != op.after.end()) return;
    check(slot < op.after.size(), "an operation waits for at most two others");
    op.after[slot++] = other;
  };
  if (!beside_) wait_for(tail_);
  for (const std::int32_t other : joins_) wait_for(other);
  joins_.clear();
  op.partial = partial_ && op.kind != OpKind::kCollective;
  op.present = present_;
  ops().push_back(op);
  if (beside_) {
    beside_ = false;
    return last();
  }
  before_ = tail_;
  tail_ = last();
  return tail_;
}

void ProgramBuilder::mark_kernel(bool across_nodes, bool fused, ExchangeLibrary library, int sms) {
  Op& op = ops().back();
  check(op.kind == OpKind::kCollective, "only a collective can be a dispatch kernel");
  op.one_kernel = true;
  op.across_nodes = across_nodes;
  op.fused = fused;
  // It occupies no stream: its dependents wait for the collective that carries it.
  if (fused) op.after[0] = last() - 1;
  op.library = library;
  op.sms = sms;
}

void ProgramBuilder::join(int op) {
  if (op >= 0) joins_.push_back(op);
}

void ProgramBuilder::detach() {
  check(tail_ >= 0, "there is an operation to detach");
  tail_ = before_;
}

int ProgramBuilder::collective(CommKind kind, GroupKind group, std::string_view name, sim::Category category,
                               DType dtype, PerRank in, PerRank out, PerRank tx, PerRank rx) {
  Op op;
  op.kind = OpKind::kCollective;
  op.stream = Stream::kComm;
  op.category = category;
  op.name = name;
  op.comm = kind;
  op.group = group;
  op.dtype = dtype;
  op.in = in;
  op.out = out;
  op.tx = tx;
  op.rx = rx;
  return push(op);
}

int ProgramBuilder::all_gather(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                               std::int64_t piece) {
  const std::int64_t g = program_.group_size(group);
  if (g == 1) return -1;
  const PerRank wire = uniform((g - 1) * piece);
  return collective(CommKind::kAllGather, group, name, category, dtype, uniform(piece), uniform(g * piece),
                    wire, wire);
}

int ProgramBuilder::reduce_scatter(GroupKind group, std::string_view name, sim::Category category,
                                   DType dtype, std::int64_t piece) {
  const std::int64_t g = program_.group_size(group);
  if (g == 1) return -1;
  const PerRank wire = uniform((g - 1) * piece);
  return collective(CommKind::kReduceScatter, group, name, category, dtype, uniform(g * piece),
                    uniform(piece), wire, wire);
}

int ProgramBuilder::all_gather_rows(GroupKind group, std::string_view name, sim::Category category,
                                    DType dtype, std::span<const std::int64_t> rows, std::int64_t row_bytes) {
  const std::int64_t g = program_.group_size(group);
  if (g == 1) return -1;
  const PerRank wire = scaled(rows, (g - 1) * row_bytes);
  return collective(CommKind::kAllGather, group, name, category, dtype, scaled(rows, row_bytes),
                    scaled(rows, g * row_bytes), wire, wire);
}

int ProgramBuilder::reduce_scatter_rows(GroupKind group, std::string_view name, sim::Category category,
                                        DType dtype, std::span<const std::int64_t> rows,
                                        std::int64_t row_bytes) {
  const std::int64_t g = program_.group_size(group);
  if (g == 1) return -1;
  const PerRank wire = scaled(rows, (g - 1) * row_bytes);
  return collective(CommKind::kReduceScatter, group, name, category, dtype, scaled(rows, g * row_bytes),
                    scaled(rows, row_bytes), wire, wire);
}

int ProgramBuilder::all_reduce(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                               std::int64_t bytes) {
  const std::int64_t g = program_.group_size(group);
  if (g == 1) return -1;
  const PerRank wire = uniform(2 * (g - 1) * bytes / g);
  const PerRank buffer = uniform(bytes);
  return collective(CommKind::kAllReduce, group, name, category, dtype, buffer, buffer, wire, wire);
}

int ProgramBuilder::all_to_all(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                               std::int64_t bytes) {
  const std::int64_t g = program_.group_size(group);
  if (g == 1) return -1;
  check(bytes % g == 0, "an equal all-to-all splits evenly");
  const PerRank wire = uniform(bytes / g * (g - 1));
  const PerRank buffer = uniform(bytes);
  return collective(CommKind::kAllToAll, group, name, category, dtype, buffer, buffer, wire, wire);
}

int ProgramBuilder::all_to_all_v(std::string_view name, sim::Category category, DType dtype, int matrix_id,
                                 bool transposed, std::int64_t row_bytes) {
  const SplitMatrix& m = program_.matrices_[matrix_id];
  if (program_.group_size(m.group) == 1) return -1;
  const auto n = static_cast<std::size_t>(ranks());
  const Margins& margins = margins_[static_cast<std::size_t>(matrix_id)];
  std::vector<std::int64_t> sent = margins.sent, received = margins.received;
  if (transposed) sent.swap(received);
  const PerRank in = scaled(sent, row_bytes);
  const PerRank out = scaled(received, row_bytes);
  for (std::size_t r = 0; r < n; ++r) {
    sent[r] -= margins.own[r];
    received[r] -= margins.own[r];
  }
  const int id = collective(CommKind::kAllToAllV, m.group, name, category, dtype, in, out,
                            scaled(sent, row_bytes), scaled(received, row_bytes));
  Op& op = ops()[id];
  op.matrix = matrix_id;
  op.transposed = transposed;
  op.row_bytes = row_bytes;
  return id;
}

namespace {

// Ring broadcast of uneven pieces (docs/spec.md 1.3): a rank forwards every piece but its successor's.
struct UnevenBytes {
  std::vector<std::int64_t> piece, total, forwarded, received;
};

UnevenBytes uneven_bytes(const Program& program, GroupKind kind, std::span<const std::int64_t> rows,
                         std::int64_t row_bytes) {
  const auto n = static_cast<std::size_t>(program.ranks());
  UnevenBytes u{std::vector<std::int64_t>(n), std::vector<std::int64_t>(n), std::vector<std::int64_t>(n),
                std::vector<std::int64_t>(n)};
  const int g = program.group_size(kind);
  for (int group = 0; group < program.group_count(kind); ++group) {
    std::int64_t total = 0;
    for (int m = 0; m < g; ++m) total += rows[program.rank_of(kind, group, m)] * row_bytes;
    for (int m = 0; m < g; ++m) {
      const int rank = program.rank_of(kind, group, m);
      const int successor = program.rank_of(kind, group, (m + 1) % g);
      u.piece[rank] = rows[rank] * row_bytes;
      u.total[rank] = total;
      u.forwarded[rank] = total - rows[successor] * row_bytes;
      u.received[rank] = total - u.piece[rank];
    }
  }
  return u;
}

}  // namespace

int ProgramBuilder::all_gather_v(GroupKind group, std::string_view name, sim::Category category, DType dtype,
                                 std::span<const std::int64_t> rows, std::int64_t row_bytes) {
  if (program_.group_size(group) == 1) return -1;
  const UnevenBytes u = uneven_bytes(program_, group, rows, row_bytes);
  return collective(CommKind::kAllGatherV, group, name, category, dtype, per_rank(u.piece), per_rank(u.total),
                    per_rank(u.forwarded), per_rank(u.received));
}

int ProgramBuilder::reduce_scatter_v(GroupKind group, std::string_view name, sim::Category category,
                                     DType dtype, std::span<const std::int64_t> rows,
                                     std::int64_t row_bytes) {
  if (program_.group_size(group) == 1) return -1;
  const UnevenBytes u = uneven_bytes(program_, group, rows, row_bytes);
  // The mirror image of the gather: received bytes go out, forwarded bytes come in.
  return collective(CommKind::kReduceScatterV, group, name, category, dtype, per_rank(u.total),
                    per_rank(u.piece), per_rank(u.received), per_rank(u.forwarded));
}

int ProgramBuilder::kernel(std::string_view name, sim::Category category, KernelClass kernel, PerRank read,
                           PerRank written, int launches) {
  Op op;
  op.kind = OpKind::kKernel;
  op.name = name;
  op.category = category;
  op.kernel = kernel;
  op.read = read;
  op.written = written;
  op.launches = launches;
  return push(op);
}

int ProgramBuilder::gemm(std::string_view name, sim::Category category, GemmPass pass, GemmBackend backend,
                         DType dtype, int table_id, std::int64_t n, std::int64_t k, int repeat,
                         int launches) {
  Op op;
  op.kind = OpKind::kGemm;
  op.name = name;
  op.category = category;
  op.pass = pass;
  op.backend = backend;
  op.dtype = dtype;
  op.table = table_id;
  op.n = n;
  op.k = k;
  op.repeat = repeat;
  op.launches = launches;
  return push(op);
}

int ProgramBuilder::attention(std::string_view name, sim::Category category, GemmPass pass,
                              const AttentionCore& core, int launches) {
  program_.attentions_.push_back(core);
  Op op;
  op.kind = OpKind::kAttention;
  op.name = name;
  op.category = category;
  op.pass = pass;
  op.table = static_cast<std::int32_t>(program_.attentions_.size()) - 1;
  op.launches = launches;
  return push(op);
}

int ProgramBuilder::scan(std::string_view name, sim::Category category, std::int64_t flops) {
  Op op;
  op.kind = OpKind::kScan;
  op.name = name;
  op.category = category;
  op.flops = flops;
  op.launches = 0;  // its kernels are counted with the rows that it moves
  return push(op);
}

int ProgramBuilder::copy_to_host(std::string_view name, sim::Category category, PerRank bytes, int after) {
  Op op;
  op.kind = OpKind::kCopyToHost;
  op.name = name;
  op.category = category;
  op.stream = Stream::kCopy;
  op.bytes = bytes;
  join(after);
  const std::int32_t tail = tail_;
  const int id = push(op);
  tail_ = tail;
  return id;
}

int ProgramBuilder::host_wait(std::string_view name, sim::Category category, int copy) {
  Op op;
  op.kind = OpKind::kHostWait;
  op.name = name;
  op.category = category;
  op.stream = Stream::kHost;
  op.after[0] = copy;
  op.partial = partial_;
  op.present = present_;
  ops().push_back(op);  // the device queue continues: dependents wait for the host, not for a stream
  return last();
}

void ProgramBuilder::host_calls(std::string_view name, int calls, int launches) {
  Op op;
  op.kind = OpKind::kHost;
  op.name = name;
  op.category = sim::Category::host_sync;
  op.stream = Stream::kHost;
  op.launches = calls;
  op.repeat = launches;
  ops().push_back(op);  // only the host's clock advances
}

int ProgramBuilder::host_sync(std::string_view name, sim::Category category, PerRank bytes) {
  Op op;
  op.kind = OpKind::kCopyToHost;
  op.name = name;
  op.category = category;
  op.stream = Stream::kCompute;
  op.bytes = bytes;
  return host_wait(name, category, push(op));
}

void ProgramBuilder::save(std::string_view name, PerRank bytes) {
  allocate(name, bytes);
  saved_.push_back(bytes);
}

void ProgramBuilder::allocate(std::string_view name, PerRank bytes) {
  Op op;
  op.kind = OpKind::kAllocate;
  op.name = name;
  op.stream = Stream::kHost;
  op.bytes = bytes;
  ops().push_back(op);
}

void ProgramBuilder::free(std::string_view name, PerRank bytes) {
  Op op;
  op.kind = OpKind::kFree;
  op.name = name;
  op.stream = Stream::kHost;
  op.bytes = bytes;
  ops().push_back(op);
}

void ProgramBuilder::recompute_all(PerRank kept) {
  std::vector<Op> again = program_.forward_;
  const auto shift = static_cast<std::int32_t>(again.size());
  for (Op op : program_.backward_) {
    for (std::int32_t& other : op.after)
      if (other >= 0) other += shift;
    again.push_back(op);
  }
  program_.backward_ = std::move(again);
  pass_ = Pass::kBackward;
  for (const PerRank& bytes : saved_) free("saved by the second run", bytes);
  pass_ = Pass::kForward;
  for (const PerRank& bytes : saved_) free("saved", bytes);
  saved_.clear();
  save("layer input", kept);
}

Program ProgramBuilder::finish() {
  const auto n = static_cast<std::size_t>(ranks());
  program_.saved_bytes.assign(n, 0);
  program_.peak_forward_bytes.assign(n, 0);
  program_.peak_backward_bytes.assign(n, 0);
  for (std::size_t r = 0; r < n; ++r) {
    const int rank = static_cast<int>(r);
    for (const PerRank& bytes : saved_) program_.saved_bytes[r] += program_.value(bytes, rank);
    const auto walk = [&](const std::vector<Op>& pass, std::int64_t level, std::int64_t& peak) {
      peak = level;
      for (const Op& op : pass) {
        if (op.kind == OpKind::kAllocate) level += program_.value(op.bytes, rank);
        if (op.kind == OpKind::kFree) level -= program_.value(op.bytes, rank);
        peak = std::max(peak, level);
      }
      return level;
    };
    const std::int64_t after_forward = walk(program_.forward_, 0, program_.peak_forward_bytes[r]);
    check(after_forward == program_.saved_bytes[r], "forward frees all that it does not save");
    const std::int64_t after_backward =
        walk(program_.backward_, program_.saved_bytes[r], program_.peak_backward_bytes[r]);
    check(program_.backward_.empty() || after_backward == program_.saved_bytes[r],
          "backward frees its transients; the saved bytes go when the layer is done");
  }
  return std::move(program_);
}

}  // namespace moesim::models

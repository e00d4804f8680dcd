#include "tests/models/check_bytes.h"

#include <fmt/format.h>

#include <utility>

namespace moesim::models::testing {

namespace {

std::string describe(const Op& op, bool forward) {
  return fmt::format("{} {} of {}", forward ? "forward" : "backward", name_of(op.comm), op.name);
}

void check_collective(const Program& p, const Op& op, bool forward, std::vector<std::string>& faults) {
  const std::int64_t g = p.group_size(op.group);
  const auto fault = [&](const std::string& what) { faults.push_back(describe(op, forward) + ": " + what); };
  for (int group = 0; group < p.group_count(op.group); ++group) {
    std::int64_t tx = 0, rx = 0;
    for (int m = 0; m < g; ++m) {
      const int rank = p.rank_of(op.group, group, m);
      const std::int64_t in = p.value(op.in, rank), out = p.value(op.out, rank);
      tx += p.value(op.tx, rank);
      rx += p.value(op.rx, rank);
      if (in < 0 || out < 0) fault(fmt::format("rank {} holds a negative number of bytes", rank));
      if (op.comm == CommKind::kAllGather && out != g * in)
        fault(fmt::format("rank {}: out is not {} x in", rank, g));
      if (op.comm == CommKind::kReduceScatter && in != g * out)
        fault(fmt::format("rank {}: in is not {} x out", rank, g));
      if ((op.comm == CommKind::kAllToAll || op.comm == CommKind::kAllReduce) && in != out)
        fault(fmt::format("rank {}: in and out differ", rank));
    }
    if (tx != rx) fault(fmt::format("group {} sends {} bytes and receives {}", group, tx, rx));
    if (op.matrix < 0) continue;
    const auto rows = p.matrix(op.matrix, group);
    for (int m = 0; m < g; ++m) {
      std::int64_t sent = 0, received = 0;
      for (int o = 0; o < g; ++o) sent += rows[m * g + o], received += rows[o * g + m];
      if (op.transposed) std::swap(sent, received);
      const int rank = p.rank_of(op.group, group, m);
      if (p.value(op.in, rank) != sent * op.row_bytes || p.value(op.out, rank) != received * op.row_bytes)
        fault(fmt::format("rank {} does not send and receive what the split matrix says", rank));
    }
  }
}

}  // namespace

std::vector<std::string> check_bytes(const Program& program) {
  std::vector<std::string> faults;
  for (const bool forward : {true, false})
    for (const Op& op : forward ? program.forward() : program.backward())
      if (op.kind == OpKind::kCollective) check_collective(program, op, forward, faults);
  return faults;
}

}  // namespace moesim::models::testing

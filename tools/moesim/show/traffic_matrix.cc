#include "tools/moesim/show/traffic_matrix.h"

#include <utility>

#include "models/programs/program.h"
#include "sim/graph/collective.h"

namespace moesim::tools {

double bytes_sent(const sim::CollectiveShape& shape, std::size_t member) {
  const std::size_t g = shape.members();
  const auto n = static_cast<double>(g);
  const sim::Traffic& traffic = shape.traffic;
  const bool pieces = traffic.kind == sim::Traffic::Kind::pieces;
  const auto own = static_cast<double>(pieces ? traffic.pieces[member] : traffic.bytes);
  switch (shape.op) {
    case sim::CollectiveOp::all_gather:
      return own * (n - 1);
    case sim::CollectiveOp::reduce_scatter: {
      if (!pieces) return own * (n - 1);
      double others = 0;
      for (std::size_t m = 0; m < g; ++m)
        if (m != member) others += static_cast<double>(traffic.pieces[m]);
      return others;
    }
    case sim::CollectiveOp::all_reduce:
      return 2 * own * (n - 1) / n;
    case sim::CollectiveOp::all_to_all: {
      double all = 0;
      for (std::size_t m = 0; m < g; ++m)
        if (m != member) all += static_cast<double>(traffic.between(member, m, g));
      return all;
    }
    case sim::CollectiveOp::broadcast:
    case sim::CollectiveOp::send_recv:
      return member == 0 ? own : 0;
    case sim::CollectiveOp::barrier:
      return 0;
  }
  return 0;
}

TrafficMatrix traffic_matrix(const models::Answer& forecast) {
  const models::Program& program = forecast.program();
  const int R = program.ranks();
  TrafficMatrix out{forecast.dispatcher, R,
                    std::vector<double>(static_cast<std::size_t>(R) * static_cast<std::size_t>(R), 0.0)};
  for (const bool forward : {true, false})
    for (const models::Op& op : forward ? program.forward() : program.backward()) {
      if (op.kind != models::OpKind::kCollective) continue;
      const int g = program.group_size(op.group);
      for (int group = 0; group < program.group_count(op.group); ++group) {
        const auto rank_of = [&](int member) { return program.rank_of(op.group, group, member); };
        for (int from = 0; from < g; ++from) {
          std::vector<double> weight(static_cast<std::size_t>(g), 1.0);
          if (op.matrix >= 0 && program.matrices()[static_cast<std::size_t>(op.matrix)].group == op.group) {
            const auto rows = program.matrix(op.matrix, group);
            for (int to = 0; to < g; ++to)
              weight[static_cast<std::size_t>(to)] =
                  rows[static_cast<std::size_t>(op.transposed ? to * g + from : from * g + to)];
          }
          weight[static_cast<std::size_t>(from)] = 0;
          double sum = 0;
          for (const double one : weight) sum += one;
          if (sum <= 0) continue;
          const double bytes = static_cast<double>(program.value(op.tx, rank_of(from)));
          for (int to = 0; to < g; ++to)
            out.bytes[static_cast<std::size_t>(rank_of(from)) * static_cast<std::size_t>(R) +
                      static_cast<std::size_t>(rank_of(to))] +=
                bytes * weight[static_cast<std::size_t>(to)] / sum;
        }
      }
    }
  return out;
}

TrafficMatrix traffic_matrix(std::string title, const sim::TaskGraph& graph) {
  const std::size_t R = graph.rank_count();
  TrafficMatrix out{std::move(title), static_cast<int>(R), std::vector<double>(R * R, 0.0)};
  for (std::size_t c = 0; c < graph.collective_count(); ++c) {
    const sim::CollectiveId collective(static_cast<std::uint32_t>(c));
    const sim::CollectiveShape shape = graph.shape(collective);
    const auto members = graph.members(collective);
    const std::size_t g = members.size();
    if (g < 2) continue;
    const auto rank_of = [&](std::size_t member) {
      return static_cast<std::size_t>(graph.rank(members[member]).value());
    };
    for (std::size_t from = 0; from < g; ++from) {
      const double all = bytes_sent(shape, from);
      for (std::size_t to = 0; to < g; ++to) {
        if (to == from) continue;
        const double bytes = shape.op == sim::CollectiveOp::all_to_all
                                 ? static_cast<double>(shape.traffic.between(from, to, g))
                                 : all / static_cast<double>(g - 1);
        out.bytes[rank_of(from) * R + rank_of(to)] += bytes;
      }
    }
  }
  return out;
}

}  // namespace moesim::tools

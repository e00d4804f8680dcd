#include "tools/moesim/show/comparison_detail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "models/programs/program.h"
#include "sim/graph/collective.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

namespace {

using models::Answer;
using models::Comparison;
using nlohmann::ordered_json;

std::vector<std::reference_wrapper<const Answer>> forecasts(const Comparison& c) {
  std::vector<std::reference_wrapper<const Answer>> all;
  for (const Answer& a : c.answers)
    if (a.ok()) all.emplace_back(a);
  return all;
}

ordered_json per_rank_json(const models::Program& program, models::PerRank value) {
  ordered_json array = ordered_json::array();
  for (int r = 0; r < program.ranks(); ++r) array.push_back(program.value(value, r));
  return array;
}

ordered_json messages_json(const models::Program& program) {
  ordered_json messages = ordered_json::array();
  for (const bool forward : {true, false})
    for (const models::Op& op : forward ? program.forward() : program.backward()) {
      if (op.kind != models::OpKind::kCollective) continue;
      messages.push_back({{"pass", forward ? "forward" : "backward"},
                          {"op", models::name_of(op.comm)},
                          {"what", op.name},
                          {"group", models::name_of(op.group)},
                          {"dtype", models::name_of(op.dtype)},
                          {"in_bytes", per_rank_json(program, op.in)},
                          {"out_bytes", per_rank_json(program, op.out)},
                          {"tx_bytes", per_rank_json(program, op.tx)},
                          {"rx_bytes", per_rank_json(program, op.rx)}});
    }
  return messages;
}

ordered_json operations_json(const Answer& f) {
  ordered_json all = ordered_json::array();
  for (const LayerOperation& row : operations_of(f))
    all.push_back({{"pass", row.forward ? "forward" : "backward"},
                   {"part", row.dense ? "dense" : "dispatcher"},
                   {"op", kind_of(*row.op)},
                   {"what", row.op->name},
                   {"category", sim::name(row.op->category)},
                   {"start_us", row.start_us},
                   {"wait_us", row.wait_us},
                   {"time_us", row.time_us}});
  return all;
}

// Work of each rank of the dispatch group in the dispatcher's part of the layer.
struct RankRow {
  std::int64_t balanced = 0, computed = 0, sent = 0, received = 0;
  double expert_us = 0, transfer_us = 0, wait_us = 0;
};

std::vector<RankRow> ranks_of(const Answer& f) {
  std::vector<RankRow> rows(static_cast<std::size_t>(f.program().ranks()));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].balanced = f.program().balanced_rows[r];
    rows[r].computed = f.program().computed_rows[r];
  }
  for (const models::PassTrace& part : f.layer) {
    if (!part.dispatcher || part.trace.ranks != rows.size()) continue;
    const std::vector<models::Op>& pass = part.pass();
    for (std::size_t i = 0; i < pass.size(); ++i)
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::size_t at = i * rows.size() + r;
        const auto us = [&](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
        const double time = us(part.trace.end[at] - part.trace.begin[at]);
        if (pass[i].kind == models::OpKind::kGemm) rows[r].expert_us += time;
        if (pass[i].kind != models::OpKind::kCollective) continue;
        rows[r].transfer_us += time;
        rows[r].wait_us += us(part.trace.begin[at] - part.trace.start[at]);
        rows[r].sent += f.program().value(pass[i].tx, static_cast<int>(r));
        rows[r].received += f.program().value(pass[i].rx, static_cast<int>(r));
      }
  }
  return rows;
}

ordered_json ranks_json(const Answer& f) {
  ordered_json all = ordered_json::array();
  const std::vector<RankRow> rows = ranks_of(f);
  for (std::size_t r = 0; r < rows.size(); ++r)
    all.push_back({{"rank", r},
                   {"balanced_rows", rows[r].balanced},
                   {"computed_rows", rows[r].computed},
                   {"tx_bytes", rows[r].sent},
                   {"rx_bytes", rows[r].received},
                   {"expert_us", rows[r].expert_us},
                   {"transfer_us", rows[r].transfer_us},
                   {"wait_us", rows[r].wait_us}});
  return all;
}

Table message_table(const Comparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"pass", Table::Align::kLeft},
               {"op", Table::Align::kLeft},
               {"what", Table::Align::kLeft},
               {"group", Table::Align::kLeft},
               {"dtype", Table::Align::kLeft},
               {"rank"},
               {"in [B]"},
               {"out [B]"},
               {"tx [B]"},
               {"rx [B]"}});
  for (const Answer& f : forecasts(c))
    for (const bool forward : {true, false})
      for (const models::Op& op : forward ? f.program().forward() : f.program().backward()) {
        if (op.kind != models::OpKind::kCollective) continue;
        const auto cell = [&](models::PerRank v, int r) {
          return fmt::format("{}", f.program().value(v, r));
        };
        const bool same = f.program().uniform(op.in) && f.program().uniform(op.out) &&
                          f.program().uniform(op.tx) && f.program().uniform(op.rx);
        for (int r = 0; r < (same ? 1 : f.program().ranks()); ++r)
          table.row({f.dispatcher, forward ? "forward" : "backward", std::string(models::name_of(op.comm)),
                     std::string(op.name), std::string(models::name_of(op.group)),
                     std::string(models::name_of(op.dtype)), same ? "all" : fmt::format("{}", r),
                     cell(op.in, r), cell(op.out, r), cell(op.tx, r), cell(op.rx, r)});
      }
  return table;
}

Table operation_table(const Comparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"pass", Table::Align::kLeft},
               {"part", Table::Align::kLeft},
               {"op", Table::Align::kLeft},
               {"what", Table::Align::kLeft},
               {"category", Table::Align::kLeft},
               {"start [us]"},
               {"wait [us]"},
               {"time [us]"}});
  for (const Answer& f : forecasts(c))
    for (const LayerOperation& row : operations_of(f))
      table.row({f.dispatcher, row.forward ? "forward" : "backward", row.dense ? "dense" : "dispatcher",
                 std::string(kind_of(*row.op)), std::string(row.op->name),
                 std::string(sim::name(row.op->category)), fmt::format("{:.2f}", row.start_us),
                 fmt::format("{:.2f}", row.wait_us), fmt::format("{:.2f}", row.time_us)});
  return table;
}

Table rank_table(const Comparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"rank"},
               {"balanced rows"},
               {"computed rows"},
               {"sent [MB]"},
               {"received [MB]"},
               {"experts [us]"},
               {"transfers [us]"},
               {"waits [us]"}});
  for (const Answer& f : forecasts(c)) {
    const std::vector<RankRow> rows = ranks_of(f);
    for (std::size_t r = 0; r < rows.size(); ++r)
      table.row({f.dispatcher, fmt::format("{}", r), fmt::format("{}", rows[r].balanced),
                 fmt::format("{}", rows[r].computed),
                 fmt::format("{:.3f}", static_cast<double>(rows[r].sent) * 1e-6),
                 fmt::format("{:.3f}", static_cast<double>(rows[r].received) * 1e-6),
                 microseconds(rows[r].expert_us), microseconds(rows[r].transfer_us),
                 microseconds(rows[r].wait_us)});
  }
  return table;
}

Table memory_table(const Comparison& c) {
  Table table({{"dispatcher", Table::Align::kLeft},
               {"stage"},
               {"rank"},
               {"parameters [GB]"},
               {"gradients"},
               {"optimizer"},
               {"activations"},
               {"transient"},
               {"buffers"},
               {"total"},
               {"limit"},
               {"first that does not fit", Table::Align::kLeft}});
  const auto gb = [](double bytes) { return fmt::format("{:.2f}", bytes * 1e-9); };
  for (const Answer& f : forecasts(c)) {
    const models::RankMemory& m = f.memory.worst;
    table.row({f.dispatcher, fmt::format("{}", f.memory.stage), fmt::format("{}", f.memory.rank),
               gb(m.parameters), gb(m.gradients), gb(m.optimizer), gb(m.activations), gb(m.transient),
               gb(m.persistent), gb(f.memory.max_bytes), gb(f.memory.limit_bytes),
               f.memory.fits ? "-"
                             : fmt::format("stage {}; stage {} misses {}", f.memory.first_stage,
                                           f.memory.stage, format_bytes(f.memory.missing_bytes))});
  }
  return table;
}

// Returns the branches below a cause, of "dense part/bf16" those below "dense part", largest first.
std::string branches(const models::StageMemory& stage, models::MemoryKind kind) {
  std::vector<std::pair<std::string, double>> trunks;
  const auto trunk_of = [](const std::string& what) { return what.substr(0, what.find('/')); };
  for (const models::MemoryCause& c : stage.causes) {
    if (c.kind != kind) continue;
    const auto at = std::find_if(trunks.begin(), trunks.end(),
                                 [&](const auto& t) { return t.first == trunk_of(c.what); });
    if (at == trunks.end())
      trunks.emplace_back(trunk_of(c.what), c.bytes);
    else
      at->second += c.bytes;
  }
  std::stable_sort(trunks.begin(), trunks.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [trunk, bytes] : trunks) {
    text += fmt::format("    {:<52}{:>10.3f}\n", trunk, bytes * 1e-9);
    for (const models::MemoryCause& c : stage.causes)
      if (c.kind == kind && trunk_of(c.what) == trunk && c.what.size() > trunk.size())
        text += fmt::format("      {:<50}{:>10.3f}\n", c.what.substr(trunk.size() + 1), c.bytes * 1e-9);
  }
  return text;
}

}  // namespace

std::string memory_tree(const Comparison& c) {
  using models::MemoryKind;
  std::string text;
  for (const Answer& a : forecasts(c)) {
    for (std::size_t s = 0; s < a.memory.stages.size(); ++s) {
      const models::StageMemory& stage = a.memory.stages[s];
      text += fmt::format(
          "{}, stage {}: {:.2f} GB in {} ({:.2f} to {:.2f} over draws of routing), passes held: {}, "
          "fits with probability {:.2f}\n",
          a.dispatcher, s, stage.bytes.total() * 1e-9, stage.moment, stage.low_bytes * 1e-9,
          stage.high_bytes * 1e-9, stage.in_flight, stage.fits_probability);
      if (static_cast<int>(s) != a.memory.stage) continue;
      const auto part = [&](MemoryKind kind, double bytes) {
        if (bytes > 0)
          text += fmt::format("  {:<54}{:>10.3f} GB\n", models::name_of(kind), bytes * 1e-9) +
                  branches(stage, kind);
      };
      part(MemoryKind::kParameters, stage.bytes.parameters);
      part(MemoryKind::kGradients, stage.bytes.gradients);
      part(MemoryKind::kOptimizer, stage.bytes.optimizer);
      part(MemoryKind::kActivations, stage.bytes.activations);
      part(MemoryKind::kTransient, stage.bytes.transient);
      part(MemoryKind::kPersistent, stage.bytes.persistent);
    }
    if (a.memory.host_bytes > 0)
      text += fmt::format("  in the host's memory, of one rank {:>31.3f} GB\n", a.memory.host_bytes * 1e-9);
    text += '\n';
  }
  return text;
}

Detail parse_detail(const std::string& name) {
  if (name == "times") return Detail::kTimes;
  if (name == "messages") return Detail::kMessages;
  if (name == "operations") return Detail::kOperations;
  if (name == "ranks") return Detail::kRanks;
  if (name == "memory") return Detail::kMemory;
  return Detail::kNone;
}

void add_detail(ordered_json& j, const models::Answer& answer, Detail detail) {
  if (detail == Detail::kMessages) j["messages"] = messages_json(answer.program());
  if (detail == Detail::kOperations) j["operations"] = operations_json(answer);
  if (detail == Detail::kRanks) j["ranks"] = ranks_json(answer);
}

std::optional<Table> table_of_detail(const models::Comparison& comparison, Detail detail) {
  switch (detail) {
    case Detail::kMessages:
      return message_table(comparison);
    case Detail::kOperations:
      return operation_table(comparison);
    case Detail::kRanks:
      return rank_table(comparison);
    case Detail::kMemory:
      return memory_table(comparison);
    case Detail::kTimes:  // part of the summary
    case Detail::kNone:
      break;
  }
  return std::nullopt;
}

std::string_view kind_of(const models::Op& op) {
  switch (op.kind) {
    case models::OpKind::kCollective:
      return models::name_of(op.comm);
    case models::OpKind::kKernel:
      return models::name_of(op.kernel);
    case models::OpKind::kGemm:
      return "gemm";
    case models::OpKind::kAttention:
      return "attention";
    case models::OpKind::kScan:
      return "scan";
    case models::OpKind::kCopyToHost:
      return "copy_to_host";
    case models::OpKind::kHostWait:
      return "host_sync";
    case models::OpKind::kHost:
      return "host";
    case models::OpKind::kAllocate:
      return "allocate";
    case models::OpKind::kFree:
      return "free";
  }
  return "";
}

std::vector<LayerOperation> operations_of(const models::Answer& f) {
  std::vector<LayerOperation> rows;
  const auto us = [](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
  for (const models::PassTrace& part : f.layer) {
    const std::vector<models::Op>& pass = part.pass();
    const auto rank = static_cast<std::size_t>(f.critical_rank);
    if (part.trace.ranks <= rank) continue;
    for (std::size_t i = 0; i < pass.size(); ++i) {
      if (pass[i].kind == models::OpKind::kAllocate || pass[i].kind == models::OpKind::kFree) continue;
      const std::size_t at = i * part.trace.ranks + rank;
      rows.push_back({part.forward, !part.dispatcher, &pass[i], us(part.trace.start[at]),
                      us(part.trace.begin[at] - part.trace.start[at]),
                      us(part.trace.end[at] - part.trace.begin[at])});
    }
  }
  return rows;
}

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

#include "tools/moesim/show/comparison_detail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/units.h"
#include "models/programs/program.h"
#include "sim/graph/collective.h"
#include "tools/moesim/show/people.h"

namespace moesim::tools {

using models::Answer;
using models::Comparison;

std::vector<std::reference_wrapper<const Answer>> forecasts(const Comparison& c) {
  std::vector<std::reference_wrapper<const Answer>> all;
  for (const Answer& a : c.answers)
    if (a.ok()) all.emplace_back(a);
  return all;
}

namespace {

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
    for (const Message& m : messages_of(f)) {
      const models::Op& op = *m.op;
      const auto cell = [&](models::PerRank v, int r) { return fmt::format("{}", f.program().value(v, r)); };
      const bool same = f.program().uniform(op.in) && f.program().uniform(op.out) &&
                        f.program().uniform(op.tx) && f.program().uniform(op.rx);
      for (int r = 0; r < (same ? 1 : f.program().ranks()); ++r)
        table.row({f.dispatcher, m.forward ? "forward" : "backward", std::string(models::name_of(op.comm)),
                   std::string(op.name), std::string(models::name_of(op.group)),
                   std::string(models::name_of(op.dtype)), same ? "all" : fmt::format("{}", r),
                   cell(op.in, r), cell(op.out, r), cell(op.tx, r), cell(op.rx, r)});
    }
  return table;
}

// A table of a list that each dispatcher has.
template <class Row>
Table table_of(const Comparison& c, std::vector<Row> (*rows_of)(const Answer&)) {
  const Columns<Row> columns = columns_of(Of<Row>{});
  Table table(columns.heads({{"dispatcher", Table::Align::kLeft}}));
  for (const Answer& f : forecasts(c))
    for (const Row& row : rows_of(f)) table.row(columns.cells({f.dispatcher}, row));
  return table;
}

Table memory_table(const Comparison& c) {
  using M = models::StepMemory;
  const auto of = [](auto member) { return [member](const Answer& a) { return a.memory.*member; }; };
  const auto missing = [](const Answer& a) {
    return where(!a.memory.fits, fmt::format("stage {}; stage {} misses {}", a.memory.first_stage,
                                             a.memory.stage, format_bytes(a.memory.missing_bytes)));
  };
  Columns<Answer> all{{"", &Answer::dispatcher, "", "dispatcher"},
                      {"", of(&M::stage), "", "stage"},
                      {"", of(&M::rank), "", "rank"}};
  all.add(columns_of(Of<models::RankMemory>{}), of(&M::worst));
  all.add({{"", of(&M::max_bytes), "", {"total", 2, 1e-9}},
           {"", of(&M::limit_bytes), "", {"limit", 2, 1e-9}},
           {"", missing, "", "first that does not fit"}});
  return people_table(all, forecasts(c));
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

Columns<Message> columns_of(Of<Message>) {
  using M = Message;
  return {{"pass", [](const M& m) { return m.forward ? "forward" : "backward"; }},
          {"op", [](const M& m) { return models::name_of(m.op->comm); }},
          {"what", [](const M& m) { return m.op->name; }},
          {"group", [](const M& m) { return models::name_of(m.op->group); }},
          {"dtype", [](const M& m) { return models::name_of(m.op->dtype); }},
          {"in_bytes", [](const M& m) { return m.of_ranks(m.op->in); }},
          {"out_bytes", [](const M& m) { return m.of_ranks(m.op->out); }},
          {"tx_bytes", [](const M& m) { return m.of_ranks(m.op->tx); }},
          {"rx_bytes", [](const M& m) { return m.of_ranks(m.op->rx); }}};
}

Columns<LayerOperation> columns_of(Of<LayerOperation>) {
  using O = LayerOperation;
  return {{"pass", [](const O& o) { return o.forward ? "forward" : "backward"; }, "", "pass"},
          {"part", [](const O& o) { return o.dense ? "dense" : "dispatcher"; }, "", "part"},
          {"op", [](const O& o) { return kind_of(*o.op); }, "", "op"},
          {"what", [](const O& o) { return o.op->name; }, "", "what"},
          {"category", [](const O& o) { return sim::name(o.op->category); }, "", "category"},
          {"start_us", &O::start_us, "", {"start [us]", 2}},
          {"wait_us", &O::wait_us, "", {"wait [us]", 2}},
          {"time_us", &O::time_us, "", {"time [us]", 2}}};
}

Columns<RankWork> columns_of(Of<RankWork>) {
  using R = RankWork;
  return {{"rank", &R::rank, "", "rank"},
          {"balanced_rows", &R::balanced, "", "balanced rows"},
          {"computed_rows", &R::computed, "", "computed rows"},
          {"tx_bytes", &R::sent, "", {"sent [MB]", 3, 1e-6}},
          {"rx_bytes", &R::received, "", {"received [MB]", 3, 1e-6}},
          {"expert_us", &R::expert_us, "", {"experts [us]", 1}},
          {"transfer_us", &R::transfer_us, "", {"transfers [us]", 1}},
          {"wait_us", &R::wait_us, "", {"waits [us]", 1}}};
}

std::vector<Message> messages_of(const Answer& f) {
  std::vector<Message> messages;
  for (const bool forward : {true, false})
    for (const models::Op& op : forward ? f.program().forward() : f.program().backward())
      if (op.kind == models::OpKind::kCollective) messages.push_back({forward, &op, &f.program()});
  return messages;
}

std::vector<std::int64_t> Message::of_ranks(models::PerRank value) const {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(program->ranks()));
  for (int r = 0; r < program->ranks(); ++r) all.push_back(program->value(value, r));
  return all;
}

std::vector<RankWork> ranks_of(const Answer& f) {
  std::vector<RankWork> rows(static_cast<std::size_t>(f.program().ranks()));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].rank = r;
    rows[r].balanced = f.program().balanced_rows[r];
    rows[r].computed = f.program().computed_rows[r];
  }
  if (!f.layer) return rows;
  for (const models::LayerTrace::Pass& pass : f.layer->passes) {
    if (!pass.dispatcher) continue;
    for (std::size_t i = 0; i < pass.ops().size(); ++i)
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const models::Op& op = pass.ops()[i];
        const auto us = [&](std::int64_t ps) { return static_cast<double>(ps) * 1e-6; };
        const models::LayerTrace::Span span = f.layer->span(pass, i, r);
        if (op.kind == models::OpKind::kGemm) rows[r].expert_us += us(span.end - span.begin);
        if (op.kind != models::OpKind::kCollective) continue;
        rows[r].transfer_us += us(span.end - span.begin);
        rows[r].wait_us += us(span.begin - span.start);
        rows[r].sent += f.program().value(op.tx, static_cast<int>(r));
        rows[r].received += f.program().value(op.rx, static_cast<int>(r));
      }
  }
  return rows;
}

std::optional<Table> table_of_detail(const models::Comparison& comparison, Detail detail) {
  switch (detail) {
    case Detail::kMessages:
      return message_table(comparison);
    case Detail::kOperations:
      return table_of(comparison, operations_of);
    case Detail::kRanks:
      return table_of(comparison, ranks_of);
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
  if (!f.layer) return rows;
  for (const models::LayerTrace::Pass& pass : f.layer->passes)
    for (std::size_t i = 0; i < pass.ops().size(); ++i) {
      const models::Op& op = pass.ops()[i];
      if (op.kind == models::OpKind::kAllocate || op.kind == models::OpKind::kFree) continue;
      const models::LayerTrace::Span span = f.layer->span(pass, i, static_cast<std::size_t>(f.critical_rank));
      rows.push_back({pass.forward, !pass.dispatcher, &op, us(span.start), us(span.begin - span.start),
                      us(span.end - span.begin)});
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

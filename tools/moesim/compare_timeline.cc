// The layer of each dispatcher as Chrome trace events.
#include <fmt/format.h>

#include <array>
#include <cstddef>

#include <nlohmann/json.hpp>

#include "tools/moesim/compare_layer.h"

namespace moesim::tools {

namespace {

using models::OpKind;
using nlohmann::ordered_json;

constexpr std::array<const char*, models::kStreams> kStreamNames{"compute", "communication", "copy",
                                                                 "shared expert", "host"};

class Writer {
 public:
  explicit Writer(const replay::LayerComparison& comparison) : comparison_(comparison) {}

  ordered_json run() {
    for (const replay::DispatcherForecast& f : comparison_.forecasts) {
      for (int r = 0; r < f.program.ranks(); ++r) name_process(f, r);
      for (std::size_t s = 0; s < f.trace.size(); ++s) add_segment(f, s);
      for (const auto& [time_us, point] : f.memory_over_time)
        events_.push_back({{"ph", "C"},
                           {"name", "memory"},
                           {"pid", first_process_ + f.memory.rank},
                           {"ts", time_us},
                           {"args", {{"bytes", point.bytes}}}});
      first_process_ += f.program.ranks();
    }
    return std::move(events_);
  }

 private:
  void name_process(const replay::DispatcherForecast& f, int rank) {
    const int process = first_process_ + rank;
    events_.push_back({{"ph", "M"},
                       {"name", "process_name"},
                       {"pid", process},
                       {"args", {{"name", fmt::format("{} rank {}", f.dispatcher, rank)}}}});
    for (std::size_t stream = 0; stream < kStreamNames.size(); ++stream)
      events_.push_back({{"ph", "M"},
                         {"name", "thread_name"},
                         {"pid", process},
                         {"tid", stream},
                         {"args", {{"name", kStreamNames[stream]}}}});
  }

  void add_segment(const replay::DispatcherForecast& f, std::size_t segment) {
    const bool dense = segment == 0 || segment == 3, forward = segment < 2;
    const models::Program& program = dense ? f.dense : f.program;
    const std::vector<models::Op>& pass = forward ? program.forward() : program.backward();
    const replay::SegmentTrace& trace = f.trace[segment];
    for (std::size_t i = 0; i < pass.size(); ++i) {
      const models::Op& op = pass[i];
      if (op.kind == OpKind::kAllocate || op.kind == OpKind::kFree || op.fused) continue;
      for (int r = 0; r < trace.ranks; ++r) {
        const std::size_t at = i * static_cast<std::size_t>(trace.ranks) + static_cast<std::size_t>(r);
        if (trace.begin[at] > trace.start[at])
          slice(r, op, "wait", "straggler_wait", trace.start[at], trace.begin[at]);
        slice(r, op, op.name, sim::name(op.category), trace.begin[at], trace.end[at]);
      }
      if (op.kind == OpKind::kCollective) arrows(program, op, trace, i);
    }
  }

  void slice(int rank, const models::Op& op, std::string_view name, std::string_view category,
             std::int64_t from, std::int64_t to) {
    if (to <= from) return;
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", first_process_ + rank},
                       {"tid", static_cast<int>(op.stream)},
                       {"ts", static_cast<double>(from) * 1e-6},
                       {"dur", static_cast<double>(to - from) * 1e-6}});
  }

  // From the member that came last to those that waited for it.
  void arrows(const models::Program& program, const models::Op& op, const replay::SegmentTrace& trace,
              std::size_t i) {
    const auto R = static_cast<std::size_t>(trace.ranks);
    for (int group = 0; group < program.group_count(op.group); ++group) {
      int last = program.rank_of(op.group, group, 0);
      for (int m = 1; m < program.group_size(op.group); ++m) {
        const int rank = program.rank_of(op.group, group, m);
        if (trace.start[i * R + static_cast<std::size_t>(rank)] >
            trace.start[i * R + static_cast<std::size_t>(last)])
          last = rank;
      }
      for (int m = 0; m < program.group_size(op.group); ++m) {
        const int rank = program.rank_of(op.group, group, m);
        const std::size_t at = i * R + static_cast<std::size_t>(rank);
        if (rank == last || trace.begin[at] == trace.start[at]) continue;
        for (const bool end : {false, true})
          events_.push_back({{"ph", end ? "f" : "s"},
                             {"bp", "e"},
                             {"id", arrow_},
                             {"name", op.name},
                             {"cat", "rendezvous"},
                             {"pid", first_process_ + (end ? rank : last)},
                             {"tid", static_cast<int>(op.stream)},
                             {"ts", static_cast<double>(trace.begin[at]) * 1e-6}});
        ++arrow_;
      }
    }
  }

  const replay::LayerComparison& comparison_;
  ordered_json events_ = ordered_json::array();
  int first_process_ = 0;
  int arrow_ = 0;
};

}  // namespace

std::string layer_timeline(const replay::LayerComparison& comparison, const ordered_json& metadata) {
  ordered_json file{{"displayTimeUnit", "ms"}, {"otherData", metadata}};
  file["traceEvents"] = Writer(comparison).run();
  return file.dump() + "\n";
}

}  // namespace moesim::tools

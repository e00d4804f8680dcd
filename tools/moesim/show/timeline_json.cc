#include "tools/moesim/show/timeline_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "tools/moesim/show/command.h"

namespace moesim::tools {

namespace {

// Returns reserved colour names of the trace viewer, one per category, so that a category looks the same in
// every file.
std::string_view color_of(sim::Category category) {
  using enum sim::Category;
  switch (category) {
    case attention:
      return "thread_state_running";
    case router:
    case embedding:
      return "rail_animation";
    case permute:
    case unpermute:
      return "thread_state_unknown";
    case expert:
      return "good";
    case dispatch:
      return "thread_state_iowait";
    case combine:
      return "bad";
    case straggler_wait:
    case bubble:
      return "generic_work";
    case grad_sync:
      return "rail_load";
    case p2p:
      return "rail_response";
    case optimizer:
      return "detailed_memory_dump";
    case host_sync:
      return "terrible";
    case loss:
      return "startup";
    case other:
      return "grey";
  }
  return "grey";
}

class Writer {
 public:
  explicit Writer(std::span<const TimelineView> views) : views_(views) {}

  std::string run(const nlohmann::ordered_json& metadata) {
    nlohmann::ordered_json other = metadata;
    other["version"] = version();
    other["timelines"] = nlohmann::ordered_json::array();
    for (const TimelineView& view : views_) {
      nlohmann::ordered_json about{{"title", view.title}, {"ranks", view.ranks}, {"left_out", view.left_out}};
      if (!view.links.empty()) {
        about["busiest_links"] = nlohmann::ordered_json::array();
        for (std::size_t i = 0; i < std::min<std::size_t>(view.links.size(), 20); ++i)
          about["busiest_links"].push_back({{"link", view.links[i].name},
                                            {"bytes", view.links[i].bytes},
                                            {"utilisation", view.links[i].utilisation}});
      }
      other["timelines"].push_back(std::move(about));
    }
    out_ = "{\"displayTimeUnit\":\"ms\",\"otherData\":" + json_line(other) + ",\"traceEvents\":[\n";
    for (std::size_t v = 0; v < views_.size(); ++v) add(v);
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (!first_) out_ += ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  // Rounds picoseconds to nanoseconds; ends are rounded like starts, so that touching slices still touch.
  static std::int64_t ns(std::int64_t ps) { return (ps + 500) / 1000; }
  static std::string us(std::int64_t ns) {
    return ns % 1000 == 0 ? fmt::format("{}", ns / 1000) : fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }

  int process(std::size_t view, int rank) const {
    const auto V = static_cast<int>(views_.size());
    if (V <= 2) return rank * V + static_cast<int>(view) + 1;
    int before = 0;
    for (std::size_t v = 0; v < view; ++v) before += views_[v].ranks;
    return before + rank + 1;
  }

  void add(std::size_t v) {
    const TimelineView& view = views_[v];
    std::vector<std::string> names, notes;
    for (const std::string& name : view.names.list()) names.push_back(json_line(name));
    for (const std::string& note : view.notes.list()) notes.push_back(json_line(note));
    std::set<int> named;
    std::vector<int> thread(view.tracks.size());
    std::map<int, int> threads;
    for (std::size_t t = 0; t < view.tracks.size(); ++t) {
      const TimelineView::Track& track = view.tracks[t];
      const int pid = process(v, track.rank);
      thread[t] = ++threads[track.rank];
      if (named.insert(track.rank).second) name_process(view, pid, track.rank);
      event(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid, thread[t],
            json_line(track.stream));
      event(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", pid,
            thread[t], thread[t]);
      for (const TimelineView::Slice& slice : track.slices) {
        const std::int64_t from = ns(slice.from_ps), to = ns(slice.to_ps);
        event(R"({{"ph":"X","name":{},"cat":"{}","cname":"{}","pid":{},"tid":{},"ts":{},"dur":{})",
              names[slice.name], sim::name(slice.category), color_of(slice.category), pid, thread[t],
              us(from), us(to - from));
        if (slice.note != TimelineView::kNone) {
          out_ += R"(,"args":{"cause":)";
          out_ += notes[slice.note];
          out_ += '}';
        }
        out_ += '}';
      }
    }
    for (const TimelineView::Arrow& arrow : view.arrows) {
      const std::string_view kind = arrow.message ? "p2p" : "collective";
      ++arrow_;
      event(R"({{"ph":"s","name":{},"cat":"{}","id":{},"pid":{},"tid":{},"ts":{}}})", names[arrow.name], kind,
            arrow_, process(v, view.tracks[arrow.from_track].rank), thread[arrow.from_track],
            us(ns(arrow.from_ps)));
      event(R"({{"ph":"f","bp":"e","name":{},"cat":"{}","id":{},"pid":{},"tid":{},"ts":{}}})",
            names[arrow.name], kind, arrow_, process(v, view.tracks[arrow.to_track].rank),
            thread[arrow.to_track], us(ns(arrow.to_ps)));
    }
    for (const TimelineView::Counter& counter : view.counters) {
      const int pid = process(v, counter.rank);
      if (named.insert(counter.rank).second) name_process(view, pid, counter.rank);
      for (const auto& [when, value] : counter.points)
        event(R"({{"ph":"C","name":{},"pid":{},"ts":{},"args":{{"value":{:.6g}}}}})", json_line(counter.name),
              pid, us(ns(when)), value);
    }
  }

  void name_process(const TimelineView& view, int pid, int rank) {
    const std::string name = views_.size() == 1  ? fmt::format("{} {}", view.of, rank)
                             : views_.size() > 2 ? fmt::format("{} {} {}", view.title, view.of, rank)
                                                 : fmt::format("{} {}, {}", view.of, rank, view.title);
    event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", pid, json_line(name));
    event(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", pid, pid);
  }

  std::span<const TimelineView> views_;
  std::string out_;
  bool first_ = true;
  std::size_t arrow_ = 0;
};

}  // namespace

std::string timeline_json(std::span<const TimelineView> views, const nlohmann::ordered_json& metadata) {
  return Writer(views).run(metadata);
}

}  // namespace moesim::tools

#include "tools/moesim/timeline_json.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace moesim::tools {

namespace {

// Reserved colour names of the trace viewer, one per category, so that a category looks the same in every
// file.
std::string_view color_of(sim::Category category) {
  switch (category) {
    case sim::Category::attention:
      return "thread_state_running";
    case sim::Category::expert:
      return "thread_state_runnable";
    case sim::Category::dispatch:
    case sim::Category::combine:
      return "thread_state_iowait";
    case sim::Category::straggler_wait:
    case sim::Category::bubble:
      return "generic_work";
    case sim::Category::grad_sync:
    case sim::Category::p2p:
      return "rail_load";
    case sim::Category::optimizer:
      return "rail_response";
    case sim::Category::host_sync:
      return "terrible";
    default:
      return "rail_animation";
  }
}

std::string quoted_json(std::string_view text) { return nlohmann::json(text).dump(); }

class Writer {
 public:
  Writer(const sim::TaskGraph& graph, const sim::Timeline& timeline) : graph_(graph), timeline_(timeline) {}

  std::string run(const nlohmann::ordered_json& metadata) {
    out_ = "{\"displayTimeUnit\":\"ms\",\"otherData\":" + metadata.dump() + ",\"traceEvents\":[\n";
    for (std::size_t s = 0; s < graph_.stream_count(); ++s)
      name_stream(sim::StreamId(static_cast<std::uint32_t>(s)));
    for (std::size_t t = 0; t < graph_.task_count(); ++t)
      add_task(sim::TaskId(static_cast<std::uint32_t>(t)));
    for (std::size_t c = 0; c < graph_.collective_count(); ++c)
      add_arrows(sim::CollectiveId(static_cast<std::uint32_t>(c)));
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  void event(const std::string& text) {
    if (!first_) out_ += ",\n";
    first_ = false;
    out_ += text;
  }

  void name_stream(sim::StreamId stream) {
    const auto rank = graph_.rank_of(stream).value();
    event(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}"}}}})", rank,
                      rank));
    event(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", rank,
                      rank));
    event(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank,
                      stream.value(), sim::name(graph_.kind_of(stream))));
  }

  void slice(std::string_view name, sim::Category category, sim::TaskId task, sim::Time from, sim::Time to,
             const std::string& args) {
    if (to <= from) return;
    const sim::StreamId stream = graph_.stream(task);
    event(fmt::format(
        R"({{"ph":"X","name":{},"cat":"{}","cname":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        quoted_json(name), sim::name(category), color_of(category), graph_.rank_of(stream).value(),
        stream.value(), from.us(), (to - from).us(), args));
  }

  void add_task(sim::TaskId task) {
    const sim::Label& label = graph_.label(task);
    const std::string cause = fmt::format(R"("waited_for":"{}")", sim::name(timeline_.cause(task)));
    const sim::Time start = timeline_.start(task);
    const sim::Time end = timeline_.end(task);
    if (graph_.kind(task) != sim::TaskKind::member) {
      slice(label.name, label.category, task, start, end, cause);
      return;
    }
    const sim::CollectiveId collective = graph_.collective(task);
    const sim::Time begin = timeline_.begin(collective);
    const sim::TaskId last = timeline_.last_arrival(collective);
    slice(fmt::format("wait for rank {}", graph_.rank(last).value()), sim::Category::straggler_wait, task,
          start, begin, fmt::format(R"("in":{})", quoted_json(label.name)));
    slice(label.name, label.category, task, begin, end,
          fmt::format(R"("collective":{},"members":{})", collective.value(),
                      graph_.members(collective).size()));
  }

  // From the last to come, whom the others waited for.
  void add_arrows(sim::CollectiveId collective) {
    const sim::TaskId from = timeline_.last_arrival(collective);
    const sim::Time begin = timeline_.begin(collective);
    if (timeline_.end(from) <= begin) return;
    const auto arrow = [&](char phase, sim::TaskId task, std::string_view binding) {
      const sim::StreamId stream = graph_.stream(task);
      event(fmt::format(
          R"({{"ph":"{}","name":"collective","cat":"collective","id":{},"pid":{},"tid":{},"ts":{}{}}})",
          phase, next_arrow_, graph_.rank_of(stream).value(), stream.value(), begin.us(), binding));
    };
    for (const sim::TaskId to : graph_.members(collective)) {
      if (to == from || timeline_.end(to) <= begin) continue;
      arrow('s', from, "");
      arrow('f', to, R"(,"bp":"e")");
      ++next_arrow_;
    }
  }

  const sim::TaskGraph& graph_;
  const sim::Timeline& timeline_;
  std::string out_;
  bool first_ = true;
  std::size_t next_arrow_ = 1;
};

}  // namespace

std::string timeline_json(const sim::TaskGraph& graph, const sim::Timeline& timeline,
                          const nlohmann::ordered_json& metadata) {
  check(timeline.has_tasks(), "a timeline with tasks");
  return Writer(graph, timeline).run(metadata);
}

}  // namespace moesim::tools

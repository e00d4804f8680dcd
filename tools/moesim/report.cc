#include "tools/moesim/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "tools/moesim/report_template.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kMarker = "@MOESIM_DATA@";
// Ranks whose full matrix is shown; of larger groups it would be a picture of noise and many megabytes.
constexpr int kMatrixRanks = 256;

// Columns with the distance from the slice before: small integers, which deflate and parse well. The unit is
// the power of ten that keeps seven digits of the whole.
ordered_json timeline_data(const TimelineView& view) {
  std::int64_t unit_ps = 1000;
  while (view.end_ps / unit_ps > 10'000'000) unit_ps *= 10;
  const auto units = [&](std::int64_t ps) { return (ps + unit_ps / 2) / unit_ps; };
  ordered_json tracks = ordered_json::array();
  for (const TimelineView::Track& track : view.tracks) {
    ordered_json name = ordered_json::array(), category = name, gap = name, length = name, note = name;
    std::int64_t at = 0;
    for (const TimelineView::Slice& slice : track.slices) {
      const std::int64_t from = units(slice.from_ps), to = units(slice.to_ps);
      name.push_back(slice.name);
      category.push_back(static_cast<int>(slice.category));
      gap.push_back(from - at);
      length.push_back(to - from);
      note.push_back(slice.note == TimelineView::kNone ? -1 : static_cast<std::int64_t>(slice.note));
      at = to;
    }
    tracks.push_back({{"rank", track.rank},
                      {"stream", track.stream},
                      {"name", std::move(name)},
                      {"category", std::move(category)},
                      {"gap", std::move(gap)},
                      {"length", std::move(length)},
                      {"note", std::move(note)}});
  }
  return {{"title", view.title},
          {"end_us", static_cast<double>(view.end_ps) * 1e-6},
          {"unit_us", static_cast<double>(unit_ps) * 1e-6},
          {"ranks", view.ranks},
          {"names", view.names.list()},
          {"notes", view.notes.list()},
          {"tracks", std::move(tracks)},
          {"left_out", view.left_out}};
}

// Inside a script element nothing may look like its end; JSON has another way to write '<'.
std::string for_a_page(const ordered_json& data) {
  const std::string text = data.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace

void declare_report(CLI::App& app, std::string& path) {
  app.add_option("--report", path, "Write one HTML page with the answer, its pictures and its inputs")
      ->type_name("FILE");
}

void check_report(const std::string& path) {
  if (path.empty()) return;
  if (!report_missing().empty()) throw InputError(fmt::format("--report: {}", report_missing()));
}

void write_report(const std::string& path, std::string_view verb, const ordered_json& result,
                  const ReportExtras& extras) {
  check_report(path);
  ordered_json data{{"schema", "moesim.report/1"}, {"verb", verb}};
  data["categories"] = ordered_json::array();
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    data["categories"].push_back(sim::name(static_cast<sim::Category>(c)));
  data["gpus_per_node"] = extras.gpus_per_node;
  data["result"] = result;
  data["timelines"] = ordered_json::array();
  for (const TimelineView& view : extras.timelines) data["timelines"].push_back(timeline_data(view));
  data["matrices"] = ordered_json::array();
  for (const TrafficMatrix& matrix : extras.matrices) {
    if (matrix.ranks < 2 || matrix.ranks > kMatrixRanks) continue;
    ordered_json bytes = ordered_json::array();
    for (const double one : matrix.bytes) bytes.push_back(std::llround(one));
    data["matrices"].push_back(
        {{"title", matrix.title}, {"ranks", matrix.ranks}, {"bytes", std::move(bytes)}});
  }
  const std::string_view page = report_template();
  const std::size_t at = page.find(kMarker);
  check(at != std::string_view::npos, "the page of reports has a place for data");
  std::string text(page.substr(0, at));
  text += for_a_page(data);
  text += page.substr(at + kMarker.size());
  write_file(path, text);
}

TrafficMatrix traffic_matrix(const replay::DispatcherForecast& forecast) {
  const models::Program& program = forecast.program;
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

}  // namespace moesim::tools

#include "tools/moesim/show/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "models/answers/answer.h"
#include "models/dispatchers/dispatcher.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report_template.h"

namespace moesim::tools {

namespace {

using nlohmann::ordered_json;

constexpr std::string_view kMarker = "@MOESIM_DATA@", kVerb = "@MOESIM_VERB@";
// Largest group whose full matrix is shown; beyond, the picture is noise of many megabytes.
constexpr int kMatrixRanks = 256;

// A counter with few points is kept, else reduced to the maximum of every visible span.
ordered_json counter_data(const TimelineView::Counter& counter, std::int64_t end_ps, std::int64_t unit_ps) {
  constexpr std::size_t kMostPoints = 4000;
  std::vector<std::pair<std::int64_t, double>> points;
  if (counter.points.size() <= kMostPoints) {
    points = counter.points;
  } else {
    const std::int64_t stretch =
        std::max<std::int64_t>(1, end_ps / static_cast<std::int64_t>(kMostPoints / 2));
    std::int64_t now = -1;
    double value = 0, largest = 0;
    const auto close = [&](std::int64_t next) {
      if (now < 0) return;
      points.emplace_back(now * stretch, largest);
      if (next > now + 1 && value != largest) points.emplace_back((now + 1) * stretch, value);
    };
    for (const auto& [when, changed] : counter.points) {
      if (when / stretch != now) {
        close(when / stretch);
        now = when / stretch;
        largest = value;
      }
      value = changed;
      largest = std::max(largest, value);
    }
    close(INT64_MAX);
  }
  ordered_json gap = ordered_json::array(), values = ordered_json::array();
  std::int64_t at = 0;
  for (const auto& [when, value] : points) {
    const std::int64_t units = (when + unit_ps / 2) / unit_ps;
    gap.push_back(units - at);
    values.push_back(std::round(value * 1000) / 1000);
    at = units;
  }
  return {
      {"rank", counter.rank}, {"name", counter.name}, {"gap", std::move(gap)}, {"value", std::move(values)}};
}

// Columns with the distance to the previous slice: small integers, which deflate and parse well. The unit is
// the power of ten that keeps seven digits of the whole.
ordered_json timeline_data(const TimelineView& view) {
  std::int64_t unit_ps = 1000;
  while (view.end_ps / unit_ps > 10'000'000) unit_ps *= 10;
  const auto units = [&](std::int64_t ps) { return (ps + unit_ps / 2) / unit_ps; };
  ordered_json tracks = ordered_json::array();
  for (const TimelineView::Track& track : view.tracks) {
    const ordered_json none = ordered_json::array();
    ordered_json name = none, category = none, gap = none, length = none, note = none;
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
  ordered_json counters = ordered_json::array();
  for (const TimelineView::Counter& counter : view.counters)
    counters.push_back(counter_data(counter, view.end_ps, unit_ps));
  return {{"title", view.title},
          {"of", view.of},
          {"end_us", static_cast<double>(view.end_ps) * 1e-6},
          {"unit_us", static_cast<double>(unit_ps) * 1e-6},
          {"ranks", view.ranks},
          {"names", view.names.list()},
          {"notes", view.notes.list()},
          {"tracks", std::move(tracks)},
          {"counters", std::move(counters)},
          {"left_out", view.left_out}};
}

// Escapes '<', since nothing inside a script element may look like its end.
std::string for_a_page(const ordered_json& data) {
  const std::string text = json_line(data);
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
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw InputError(SourcePlace{path}, "cannot be written: there is no folder " + folder.string());
  if (fs::is_directory(path, ignored)) throw InputError(SourcePlace{path}, "a folder", "a file to write");
}

bool wants_result(const CommonOptions& common) {
  return common.format == Format::kJson || !common.report.empty();
}

bool publish(const ordered_json& result, const CommonOptions& common, const ReportExtras& extras) {
  if (!common.report.empty()) {
    // "moesim.<verb>/1"
    const std::string& schema = result.at("schema").get_ref<const std::string&>();
    const std::size_t from = schema.find('.') + 1;
    write_report(common.report, schema.substr(from, schema.find('/') - from), result, extras);
  }
  if (common.format != Format::kJson) return false;
  print_json(result);
  return true;
}

std::string report_text(std::string_view verb, const ordered_json& result, const ReportExtras& extras) {
  ordered_json data{{"schema", "moesim.report/1"}, {"verb", verb}, {"sure", models::Decision::kSure}};
  data["categories"] = ordered_json::array();
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    data["categories"].push_back(sim::name(static_cast<sim::Category>(c)));
  data["dispatchers"] = ordered_json::array();
  for (const auto& one : models::dispatcher_registry()) data["dispatchers"].push_back(one.name);
  data["gpus_per_node"] = extras.gpus_per_node;
  data["result"] = result;
  data["timelines"] = ordered_json::array();
  for (const TimelineView& view : extras.timelines) data["timelines"].push_back(timeline_data(view));
  data["pipelines"] = ordered_json::array();
  std::size_t boxes = 0;
  for (const PipelinePicture& picture : extras.pipelines) {
    boxes += picture.boxes.size();
    if (data["pipelines"].empty() || boxes <= kReportBoxes)
      data["pipelines"].push_back(pipeline_json(picture));
  }
  data["matrices"] = ordered_json::array();
  for (const TrafficMatrix& matrix : extras.matrices) {
    if (matrix.ranks < 2 || matrix.ranks > kMatrixRanks) continue;
    ordered_json bytes = ordered_json::array();
    for (const double one : matrix.bytes) bytes.push_back(std::llround(one));
    data["matrices"].push_back(
        {{"title", matrix.title}, {"ranks", matrix.ranks}, {"bytes", std::move(bytes)}});
  }
  std::string page = with_data(report_template(), data);
  return page.replace(page.find(kVerb), kVerb.size(), verb);
}

void write_report(const std::string& path, std::string_view verb, const ordered_json& result,
                  const ReportExtras& extras) {
  check_report(path);
  write_file(path, report_text(verb, result, extras));
}

std::string with_data(std::string_view page, const ordered_json& data) {
  const std::size_t at = page.find(kMarker);
  check(at != std::string_view::npos, "a page has a place for data");
  std::string text(page.substr(0, at));
  text += for_a_page(data);
  text += page.substr(at + kMarker.size());
  return text;
}

}  // namespace moesim::tools

// `--report out.html`: the JSON result of a verb, with timelines and traffic for the pictures, put into one
// page that needs nothing else. What is shown is decided in tools/report/src.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/pipeline_picture.h"
#include "tools/moesim/show/timeline_view.h"
#include "tools/moesim/show/traffic_matrix.h"

namespace CLI {
class App;
}

namespace moesim::tools {

// What a report shows beside the result.
struct ReportExtras {
  std::vector<TimelineView> timelines;
  std::vector<PipelinePicture> pipelines;
  std::vector<TrafficMatrix> matrices;
  int gpus_per_node = 8;
};

// Slices that all timelines of a report hold together, so that it opens at once and stays below 5 MB.
inline constexpr std::size_t kReportSlices = 120'000;
// Boxes of all pictures of pipelines together; the winner's is there in any case.
inline constexpr std::size_t kReportBoxes = 20'000;

// Adds `--report FILE`. A build without the page refuses it with one line when it is given.
void declare_report(CLI::App& app, std::string& path);

// Throws InputError where this build has no page or `path` can not be a file of its own; call it before the
// work.
void check_report(const std::string& path);

// Whether somebody asked for the JSON result: printed, or as a report.
bool wants_result(const CommonOptions& common);
// Writes the report where one was asked for, and prints the result where the format is JSON: then true.
bool publish(const nlohmann::ordered_json& result, const CommonOptions& common,
             const ReportExtras& extras = {});

// `result` is what `--format json` prints for `verb`.
std::string report_text(std::string_view verb, const nlohmann::ordered_json& result,
                        const ReportExtras& extras = {});
void write_report(const std::string& path, std::string_view verb, const nlohmann::ordered_json& result,
                  const ReportExtras& extras = {});

// A page of report_template.h with its data.
std::string with_data(std::string_view page, const nlohmann::ordered_json& data);

}  // namespace moesim::tools

// `--report out.html`: writes the JSON result of a verb, with timelines and traffic for its pictures, into
// one self-contained page. tools/report/src decides what is shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/comparison_detail.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/pipeline_picture.h"
#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

// Data of a report besides the result.
struct ReportExtras {
  std::vector<TimelineView> timelines;
  std::vector<PipelinePicture> pipelines;
  std::vector<TrafficMatrix> matrices;
  int gpus_per_node = 8;
};

// Limit on slices of all timelines of a report together, so that it opens at once and stays below 5 MB.
inline constexpr std::size_t kReportSlices = 120'000;
// Limit on boxes of all pipeline pictures together; the winner's is always included.
inline constexpr std::size_t kReportBoxes = 20'000;

// Adds `--report FILE`. A build without the page refuses the option in one line.
void declare_report(CLI::App& app, std::string& path);

// Throws InputError where this build has no page or `path` cannot be a file of its own; called before the
// work.
void check_report(const std::string& path);

// Returns whether the JSON result was requested: printed, or as a report.
bool wants_result(const CommonOptions& common);
// Writes the report if requested, and prints the result where the format is JSON; returns true then.
bool publish(const nlohmann::ordered_json& result, const CommonOptions& common,
             const ReportExtras& extras = {});

// `result`: the output of `--format json` of `verb`.
std::string report_text(std::string_view verb, const nlohmann::ordered_json& result,
                        const ReportExtras& extras = {});
void write_report(const std::string& path, std::string_view verb, const nlohmann::ordered_json& result,
                  const ReportExtras& extras = {});

// Inserts data into a page of report_template.h.
std::string with_data(std::string_view page, const nlohmann::ordered_json& data);

}  // namespace moesim::tools

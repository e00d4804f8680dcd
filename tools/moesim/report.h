// `--report out.html`: the JSON result of a verb, with timelines and traffic for the pictures, put into one
// page that needs nothing else. What is shown is decided in tools/report/src.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "replay/layer_comparison.h"
#include "tools/moesim/timeline_view.h"

namespace CLI {
class App;
}

namespace moesim::tools {

// Bytes from rank to rank over the whole of what is shown: bytes[from * ranks + to].
struct TrafficMatrix {
  std::string title;
  int ranks = 0;
  std::vector<double> bytes;
};

// What a report shows beside the result.
struct ReportExtras {
  std::vector<TimelineView> timelines;
  std::vector<TrafficMatrix> matrices;
  int gpus_per_node = 8;
};

// Slices that all timelines of a report hold together, so that it opens at once and stays below 5 MB.
inline constexpr std::size_t kReportSlices = 120'000;

// Adds `--report FILE`. A build without the page refuses it with one line when it is given.
void declare_report(CLI::App& app, std::string& path);

// Throws InputError where this build has no page or `path` can not be a file of its own; call it before the
// work.
void check_report(const std::string& path);

// `result` is what `--format json` prints for `verb`.
void write_report(const std::string& path, std::string_view verb, const nlohmann::ordered_json& result,
                  const ReportExtras& extras = {});

// Who sends how many bytes to whom in one layer of a dispatcher, forward and backward. Exchanges follow their
// split matrices, every other collective is spread evenly over its members; rows add up to the bytes that
// ranks send.
TrafficMatrix traffic_matrix(const replay::DispatcherForecast& forecast);

}  // namespace moesim::tools

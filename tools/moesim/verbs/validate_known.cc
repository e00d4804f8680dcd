#include "tools/moesim/verbs/validate_known.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "calibration/check/check.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "calibration/training/training_rows.h"
#include "models/hardware/profile.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"

namespace moesim::tools {

namespace {

using calibration::CsvTable;
using nlohmann::ordered_json;

struct Figure {
  std::string what, source, unit;
  double published = 0, ours = 0;
  double spread = 0;           // of what was measured, relative
  std::optional<double> miss;  // the ratio that is known to lie outside of it

  double ratio() const { return ours / published; }
  double low() const { return std::min(1.0, miss.value_or(1)) - spread; }
  double high() const { return std::max(1.0, miss.value_or(1)) + spread; }
  bool inside() const { return low() <= ratio() && ratio() <= high(); }
};

// A file of the folder, with the lines of its rows.
struct Known {
  std::filesystem::path path;
  std::string text;
  CsvTable table;
  std::map<long, std::size_t> row_of_line;

  explicit Known(const std::filesystem::path& file)
      : path(file), text(read_file(file)), table(CsvTable::parse(text, file.string())) {
    for (std::size_t r = 0; r < table.rows(); ++r) row_of_line[table.place(r).line] = r;
  }
  // Returns the row without the figure itself.
  Figure figure(long line, std::string unit) const {
    const std::size_t r = row_of_line.at(line);
    return {table.text(r, "what"),
            table.text(r, "source"),
            std::move(unit),
            0,
            0,
            table.number(r, "spread", 0, 1),
            table.optional_number(r, "miss", 0, 100)};
  }
  void expect_all(std::size_t found, const std::string& reason) const {
    if (found != table.rows())
      throw InputError(SourcePlace{path.string()},
                       fmt::format("{} of {} figures with a forecast ({})", found, table.rows(), reason),
                       "all of them");
  }
};

// Adds figures of bandwidths, GB/s in `column`.
void add_bandwidths(const std::filesystem::path& path, const char* column, std::vector<Figure>& all) {
  const Known known(path);
  std::map<std::string, models::Profile> profiles;
  const calibration::CheckReport report = calibration::check_rows(
      calibration::read_table(known.text, path.string()),
      [&](const std::string& gpu) -> const models::Profile* {
        const calibration::Device* device = calibration::device_of_gpu(gpu);
        if (!device) return nullptr;
        const std::string name(device->profile);
        const auto found = profiles.find(name);
        return found != profiles.end() ? &found->second
                                       : &profiles.emplace(name, models::Profile::load(name)).first->second;
      });
  known.expect_all(report.rows.size(), report.skipped.empty() ? "" : report.skipped.begin()->first);
  for (const calibration::CheckedRow& row : report.rows) {
    Figure f = known.figure(row.origin.place.line, "GB/s");
    f.published = known.table.number(known.row_of_line.at(row.origin.place.line), column, 1e-3, 1e6);
    f.ours = f.published * row.measured / row.forecast.value;
    all.push_back(std::move(f));
  }
}

void add_training(const std::filesystem::path& path, bool memory, std::vector<Figure>& all) {
  const Known known(path);
  calibration::TrainingTable table = calibration::read_training_table(
      path.string(), memory ? calibration::RowsWith::kPlan : calibration::RowsWith::kTime);
  known.expect_all(table.rows.size(), table.skipped.empty() ? "" : table.skipped.front().reason);
  for (calibration::TrainingRow& row : table.rows) {
    Figure f = known.figure(row.line, memory ? "GB" : "s");
    f.published = memory ? row.memory.peak * 1e-9 : row.measured_s;
    f.ours = memory ? memory_of(row).max_bytes * 1e-9 : forecast_of(row, 0).seconds();
    all.push_back(std::move(f));
  }
}

std::string band(const Figure& f) { return fmt::format("{:.2f} to {:.2f}", f.low(), f.high()); }

}  // namespace

int validate_known(const std::string& folder, const CommonOptions& common) {
  const std::filesystem::path in(folder);
  std::vector<Figure> all;
  add_bandwidths(in / "collectives.csv", "busbw_GBps", all);
  add_bandwidths(in / "kernels.csv", "bottleneck_GBps", all);
  add_training(in / "steps.csv", false, all);
  add_training(in / "memory.csv", true, all);
  bool printed = false;
  if (wants_result(common)) {
    ordered_json result = envelope("validate", describe_inputs(common), {});
    result["figures"] = ordered_json::array();
    for (const Figure& f : all)
      result["figures"].push_back({{"what", f.what},
                                   {"source", f.source},
                                   {"unit", f.unit},
                                   {"published", f.published},
                                   {"forecast", f.ours},
                                   {"ratio", f.ratio()},
                                   {"spread", f.spread},
                                   {"miss", f.miss ? ordered_json(*f.miss) : ordered_json()},
                                   {"band", {f.low(), f.high()}},
                                   {"inside", f.inside()}});
    printed = publish(result, common);
  }
  const auto outside = std::ranges::count_if(all, [](const Figure& f) { return !f.inside(); });
  if (!printed) {
    Table table({{"figure", Table::Align::kLeft},
                 {"published"},
                 {"ours"},
                 {"unit", Table::Align::kLeft},
                 {"ratio"},
                 {"band", Table::Align::kLeft},
                 {"source", Table::Align::kLeft}});
    for (const Figure& f : all)
      table.row({f.what, fmt::format("{:.4g}", f.published), fmt::format("{:.4g}", f.ours), f.unit,
                 fmt::format("{:.2f}{}", f.ratio(),
                             !f.inside() ? " !"
                             : f.miss    ? " *"
                                         : "  "),
                 band(f), f.source});
    print(common.format == Format::kCsv ? table.csv() : table.text());
    if (common.format == Format::kTable)
      print(fmt::format("\n{} of {} figures lie inside their bands, {} of them as known misses (*)\n",
                        all.size() - static_cast<std::size_t>(outside), all.size(),
                        std::ranges::count_if(all, [](const Figure& f) { return f.miss && f.inside(); })));
  }
  for (const Figure& f : all)
    if (!f.inside())
      warn(common,
           fmt::format("check failed: {}: {:.4g} {} where {:.4g} is published, {:.2f} times, outside of {}",
                       f.what, f.ours, f.unit, f.published, f.ratio(), band(f)));
  return outside > 0 ? 1 : 0;
}

}  // namespace moesim::tools

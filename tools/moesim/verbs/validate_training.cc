#include "tools/moesim/verbs/validate_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/statistics.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/publication.h"
#include "calibration/training/step_constants.h"
#include "calibration/training/training_rows.h"
#include "models/answers/answer.h"
#include "models/hardware/cluster.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/progress.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/error_figures.h"
#include "tools/moesim/verbs/left_out.h"
#include "tools/moesim/verbs/skipped_rows.h"

namespace moesim::tools {

namespace {

using calibration::forecast_of;
using calibration::plan_text;
using calibration::publication_of;
using calibration::read_tables;
using calibration::Refit;
using calibration::TrainingRow;
using calibration::TrainingTable;

using nlohmann::ordered_json;

struct Compared {
  TrainingRow row;
  models::Answer forecast;
  double error() const { return forecast.time_us.value * 1e-6 / row.measured_s - 1; }
  bool inside() const {
    const double us = row.measured_s * 1e6;
    return forecast.time_us.low <= us && us <= forecast.time_us.high;
  }
};

struct Group {
  std::vector<double> errors, signed_errors;
  int inside = 0;
};

// Correlations of mapping comparisons: rows of one publication, model and sequence length.
std::map<std::string, double> correlations(const std::vector<Compared>& all) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_source;
  for (const Compared& c : all) {
    auto& [measured, forecast] = by_source[publication_of(c.row.source)];
    measured.push_back(c.row.measured_s > 0
                           ? c.forecast.tflops_per_gpu() * c.forecast.time_us.value * 1e-6 / c.row.measured_s
                           : 0);
    forecast.push_back(c.forecast.tflops_per_gpu());
  }
  std::map<std::string, double> result;
  for (const auto& [source, values] : by_source)
    if (values.first.size() >= 3) result[source] = rank_correlation(values.first, values.second);
  return result;
}

using GroupKey = std::pair<std::string, std::string>;  // publication, GPU

struct Summary {
  std::map<GroupKey, Group> groups;
  std::map<std::string, double> correlations;
  double median_error = 0;
  int inside = 0;
};

Summary summary_of(const std::vector<Compared>& all) {
  Summary out;
  std::vector<double> errors;
  for (const Compared& c : all) {
    Group& g = out.groups[{publication_of(c.row.source), c.row.gpu}];
    g.errors.push_back(std::abs(c.error()));
    g.signed_errors.push_back(c.error());
    g.inside += c.inside();
    out.inside += c.inside();
    errors.push_back(std::abs(c.error()));
  }
  out.median_error = median(errors);
  out.correlations = correlations(all);
  return out;
}

ordered_json row_json(const Compared& c) {
  return {{"table", c.row.table},
          {"line", c.row.line},
          {"source", c.row.source},
          {"framework", c.row.framework},
          {"gpu", c.row.gpu},
          {"gpus", c.forecast.gpus},
          {"model", c.row.model},
          {"plan", plan_text(c.row.scenario)},
          {"dispatcher", c.forecast.dispatcher},
          {"forecast_us", c.forecast.time_us.value},
          {"low_us", c.forecast.time_us.low},
          {"high_us", c.forecast.time_us.high},
          {"measured_us", c.row.measured_s * 1e6},
          {"measured_from", c.row.measured_from},
          {"error", c.error()},
          {"peak_memory_bytes", c.forecast.memory.max_bytes},
          {"fits", c.forecast.memory.fits},
          {"recompute", c.row.scenario.training.recompute.text()},
          {"assumptions", c.row.assumptions}};
}

ordered_json result_of(const TrainingValidation& options, const CommonOptions& common,
                       const std::vector<Compared>& all, const TrainingTable& table, const Summary& summary,
                       const std::vector<Refit>& refits) {
  ordered_json inputs = describe_inputs(common);
  ordered_json result = envelope("validate", inputs, {});
  result["rows"] = ordered_json::array();
  for (const Compared& c : all) {
    ordered_json row = row_json(c);
    if (options.detail == "breakdown") row["breakdown_us"] = breakdown_json(c.forecast.breakdown_us);
    result["rows"].push_back(std::move(row));
  }
  result["median_abs_error"] = summary.median_error;
  result["interval_coverage"] = static_cast<double>(summary.inside) / static_cast<double>(all.size());
  result["groups"] = ordered_json::array();
  for (const auto& [key, g] : summary.groups)
    result["groups"].push_back({{"source", key.first},
                                {"gpu", key.second},
                                {"rows", g.errors.size()},
                                {"median_abs_error", median(g.errors)},
                                {"bias", median(g.signed_errors)},
                                {"inside", g.inside}});
  result["rank_correlation"] = ordered_json::object();
  for (const auto& [source, value] : summary.correlations) result["rank_correlation"][source] = value;
  if (options.leave_out) result["left_out"] = left_out_json(refits);
  result["skipped"] = skipped_json(table);
  return result;
}

Table table_of(const std::vector<Compared>& all) {
  Table rows({{"line"},
              {"model", Table::Align::kLeft},
              {"gpu", Table::Align::kLeft},
              {"GPUs"},
              {"framework", Table::Align::kLeft},
              {"plan", Table::Align::kLeft},
              {"measured [s]"},
              {"forecast [s]"},
              {"low"},
              {"high"},
              {"error"}});
  for (const Compared& c : all)
    rows.row({fmt::format("{}", c.row.line), c.row.scenario.model.name,
              c.row.gpu.substr(0, c.row.gpu.find('-')), fmt::format("{}", c.forecast.gpus),
              c.row.framework.substr(0, 24), plan_text(c.row.scenario),
              fmt::format("{:.3f}", c.row.measured_s), fmt::format("{:.3f}", c.forecast.time_us.value * 1e-6),
              fmt::format("{:.3f}", c.forecast.time_us.low * 1e-6),
              fmt::format("{:.3f}", c.forecast.time_us.high * 1e-6), percent(c.error())});
  return rows;
}

void print_summary(const std::vector<Compared>& all, const TrainingTable& table, const Summary& summary) {
  Table groups({{"source", Table::Align::kLeft},
                {"gpu", Table::Align::kLeft},
                {"rows"},
                {"median |error|"},
                {"bias"},
                {"in interval"}});
  for (const auto& [key, g] : summary.groups)
    groups.row({key.first, key.second.substr(0, 24), fmt::format("{}", g.errors.size()),
                percent(median(g.errors)).substr(1), percent(median(g.signed_errors)),
                fmt::format("{}", g.inside)});
  print("\n" + groups.text() + "\n");
  for (const auto& [source, value] : summary.correlations)
    print(fmt::format("order of the plans of {}: rank correlation {:.3f}\n", source, value));
  print(skipped_text(table));
  print(fmt::format("\n{} rows, median absolute error {}; measured inside the 90 % interval in {} of {}\n",
                    all.size(), percent(summary.median_error).substr(1), summary.inside, all.size()));
}

}  // namespace

int validate_training(const TrainingValidation& options, const CommonOptions& common) {
  TrainingTable table = read_tables(options.tables);
  std::vector<Compared> all;
  std::vector<Refit> refits;
  std::optional<ProgressLine> line(std::in_place, common);
  const Progress progress = line->teller();
  if (options.leave_out) refits = leave_out_sources(table.rows, progress);
  std::int64_t done = 0;
  for (TrainingRow& row : table.rows) {
    if (progress) progress(done++, static_cast<std::int64_t>(table.rows.size()));
    try {
      models::Answer forecast = forecast_of(row, options.draws);
      all.push_back({std::move(row), std::move(forecast)});
    } catch (const InputError& error) {
      table.skipped.push_back(
          {row.line, row.source, row.gpu, row.model, error.what(), row.decision_id, row.backend});
    }
  }
  line.reset();
  if (all.empty())
    throw InputError(fmt::format(
        "{}: found no row that can be forecast ({} skipped{}), expected at least one", options.tables.front(),
        table.skipped.size(), table.skipped.empty() ? "" : ", the first: " + table.skipped.front().reason));
  const Summary summary = summary_of(all);
  const bool printed =
      wants_result(common) && publish(result_of(options, common, all, table, summary, refits), common);
  if (!printed) {
    const Table rows = table_of(all);
    print(common.format == Format::kCsv ? rows.csv() : rows.text());
    if (common.format != Format::kCsv) {
      print_summary(all, table, summary);
      print(left_out_text(refits));
    }
  }
  return options.max_error > 0 && summary.median_error > options.max_error ? 1 : 0;
}

}  // namespace moesim::tools

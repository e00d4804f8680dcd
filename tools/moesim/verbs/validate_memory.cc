#include "tools/moesim/verbs/validate_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/statistics.h"
#include "calibration/training/training_rows.h"
#include "models/answers/invariants.h"
#include "models/step/step_memory.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/verbs/error_figures.h"
#include "tools/moesim/verbs/skipped_rows.h"

namespace moesim::tools {

namespace {

using calibration::MeasuredMemory;
using calibration::plan_text;
using calibration::read_training_table;
using calibration::RowsWith;
using calibration::TrainingRow;
using calibration::TrainingTable;

using nlohmann::ordered_json;

struct Compared {
  TrainingRow row;
  models::StepMemory memory;

  bool measured() const { return row.memory.peak > 0 && row.memory.ran; }
  double error() const { return memory.max_bytes / row.memory.peak - 1; }
  bool unfit() const { return row.memory.ran && !memory.fits; }
};

// Pipeline stages with measured peaks: forecast and measured bytes.
struct StagePeak {
  std::string_view stage;
  double forecast = 0, measured = 0;
};
std::vector<StagePeak> stage_peaks(const Compared& c) {
  std::vector<StagePeak> all;
  const MeasuredMemory& m = c.row.memory;
  if (m.first_stage > 0) all.push_back({"first", c.memory.stages.front().bytes.total(), m.first_stage});
  if (m.last_stage > 0) all.push_back({"last", c.memory.stages.back().bytes.total(), m.last_stage});
  return all;
}

ordered_json or_null(bool given, double value) { return given ? ordered_json(value) : ordered_json(); }

ordered_json causes_json(const models::StageMemory& stage) {
  ordered_json causes = ordered_json::array();
  for (const models::MemoryCause& c : stage.causes)
    causes.push_back({{"kind", models::name_of(c.kind)}, {"what", c.what}, {"bytes", c.bytes}});
  return causes;
}

struct Summary {
  std::vector<double> errors;
  double worst = 0;
  int ran = 0, unfit = 0;
};

Summary summary_of(const std::vector<Compared>& all) {
  Summary s;
  for (const Compared& c : all) {
    s.ran += c.row.memory.ran;
    s.unfit += c.unfit();
    if (c.measured()) s.errors.push_back(std::abs(c.error()));
  }
  for (const double e : s.errors) s.worst = std::max(s.worst, e);
  return s;
}

ordered_json row_json(const Compared& c, bool causes) {
  const models::Scenario& s = c.row.scenario;
  ordered_json row{{"line", c.row.line},
                   {"id", c.row.memory.id},
                   {"source", c.row.source},
                   {"gpu", c.row.gpu},
                   {"gpus", s.parallel.world()},
                   {"model", c.row.model},
                   {"dispatcher", s.model.experts == 0 ? "none" : s.dispatchers.front().text()},
                   {"plan", plan_text(s)},
                   {"recompute", s.training.recompute.text()},
                   {"forecast_bytes", c.memory.max_bytes},
                   {"measured_bytes", or_null(c.row.memory.peak > 0, c.row.memory.peak)},
                   {"error", or_null(c.measured(), c.measured() ? c.error() : 0)},
                   {"ran", c.row.memory.ran},
                   {"fits", c.memory.fits},
                   {"fits_probability", c.memory.fits_probability},
                   {"limit_bytes", c.memory.limit_bytes},
                   {"stage", c.memory.stage}};
  row["moment"] = c.memory.stages[static_cast<std::size_t>(c.memory.stage)].moment;
  row["stages"] = ordered_json::array();
  for (const StagePeak& p : stage_peaks(c))
    row["stages"].push_back({{"stage", p.stage},
                             {"forecast_bytes", p.forecast},
                             {"measured_bytes", p.measured},
                             {"error", p.forecast / p.measured - 1}});
  row["assumptions"] = c.row.assumptions;
  if (causes) row["causes"] = causes_json(c.memory.stages[static_cast<std::size_t>(c.memory.stage)]);
  return row;
}

void print_table(const std::vector<Compared>& all, const TrainingTable& table, const Summary& summary,
                 const CommonOptions& common) {
  Table rows({{"line"},
              {"model", Table::Align::kLeft},
              {"gpu", Table::Align::kLeft},
              {"GPUs"},
              {"plan", Table::Align::kLeft},
              {"recompute", Table::Align::kLeft},
              {"measured [GB]"},
              {"forecast [GB]"},
              {"error"},
              {"limit [GB]"},
              {"ran", Table::Align::kLeft},
              {"fits", Table::Align::kLeft},
              {"P(fits)"}});
  for (const Compared& c : all)
    rows.row({fmt::format("{}", c.row.line), c.row.scenario.model.name,
              c.row.gpu.substr(0, c.row.gpu.find('-')), fmt::format("{}", c.row.scenario.parallel.world()),
              plan_text(c.row.scenario), c.row.scenario.training.recompute.text(),
              c.row.memory.peak > 0 ? fmt::format("{:.2f}", c.row.memory.peak * 1e-9) : "-",
              fmt::format("{:.2f}", c.memory.max_bytes * 1e-9), c.measured() ? percent(c.error()) : "-",
              fmt::format("{:.2f}", c.memory.limit_bytes * 1e-9), c.row.memory.ran ? "yes" : "no",
              c.memory.fits ? "yes" : "no", fmt::format("{:.2f}", c.memory.fits_probability)});
  if (common.format == Format::kCsv) {
    print(rows.csv());
    return;
  }
  print(rows.text());
  if (!table.skipped.empty()) print("\n" + skipped_text(table));
  print("\n");
  if (!summary.errors.empty())
    print(fmt::format("{} measured peaks: median absolute error {}, worst {}\n", summary.errors.size(),
                      percent(median(summary.errors)).substr(1), percent(summary.worst).substr(1)));
  print(fmt::format("{} of {} jobs that ran are called fitting\n", summary.ran - summary.unfit, summary.ran));
}

}  // namespace

int validate_memory(const MemoryValidation& options, const CommonOptions& common) {
  TrainingTable table = read_training_table(options.table, RowsWith::kPlan);
  std::vector<Compared> all;
  for (TrainingRow& row : table.rows) {
    try {
      models::StepMemory memory = memory_of(row);
      models::check_possible(row.memory.id, models::impossible(memory));
      all.push_back({std::move(row), std::move(memory)});
    } catch (const InputError& error) {
      table.skipped.push_back({row.line, row.source, row.gpu, row.model, error.what(), {}, {}});
    }
  }
  if (all.empty())
    throw InputError(
        fmt::format("{}: found no row whose memory can be forecast ({} skipped{}), expected at least "
                    "one",
                    options.table, table.skipped.size(),
                    table.skipped.empty() ? "" : ", the first: " + table.skipped.front().reason));
  const Summary summary = summary_of(all);
  bool printed = false;
  if (wants_result(common)) {
    ordered_json inputs = describe_inputs(common);
    ordered_json result = envelope("validate", inputs, {});
    result["rows"] = ordered_json::array();
    for (const Compared& c : all) result["rows"].push_back(row_json(c, options.detail == "causes"));
    const bool any = !summary.errors.empty();
    result["median_abs_error"] = or_null(any, any ? median(summary.errors) : 0);
    result["worst_abs_error"] = or_null(any, summary.worst);
    result["ran"] = summary.ran;
    result["ran_but_called_unfit"] = summary.unfit;
    result["skipped"] = skipped_json(table);
    printed = publish(result, common);
  }
  if (!printed) print_table(all, table, summary, common);
  return options.max_error > 0 && (median(summary.errors) > options.max_error || summary.unfit > 0) ? 1 : 0;
}

}  // namespace moesim::tools

#include "tools/moesim/validation/scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include "base/file_io.h"
#include "base/statistics.h"
#include "calibration/check/check.h"
#include "calibration/check/leave_out.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/answers/invariants.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/validation/validation.h"

namespace moesim::tools {

using calibration::publication_of;
using fmt::format;
using nlohmann::ordered_json;

// ---- what the questions share ----

void Score::add(double error, bool is_inside) {
  errors.push_back(error);
  inside += is_inside;
}

double Score::median_abs() const {
  std::vector<double> magnitudes;
  for (const double error : errors) magnitudes.push_back(std::abs(error));
  return median(std::move(magnitudes));
}

double Score::worst() const {
  double worst = 0;
  for (const double error : errors) worst = std::max(worst, std::abs(error));
  return worst;
}

double Score::bias() const { return median(errors); }

bool inside(const models::Estimate& us, double measured_s) {
  return us.low <= measured_s * 1e6 && measured_s * 1e6 <= us.high;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  // Ties have their mean rank.
  const auto ranks_of = [](const std::vector<double>& values) {
    std::vector<double> ranks;
    for (const double value : values) {
      const auto below = std::ranges::count_if(values, [&](double other) { return other < value; });
      ranks.push_back(static_cast<double>(below) +
                      static_cast<double>(std::ranges::count(values, value) - 1) / 2);
    }
    return ranks;
  };
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  const double mean = (static_cast<double>(x.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::string share(double fraction) { return percent(fraction).substr(1); }

ordered_json given_if(bool given, double value) { return given ? ordered_json(value) : ordered_json(); }

void each_row(PublishedTable& table, const CommonOptions& common,
              const std::function<void(PublishedRow& row)>& take) {
  ProgressLine line(common);
  const Progress progress = line.teller();
  std::int64_t done = 0;
  for (PublishedRow& row : table.rows) {
    if (progress) progress(done++, static_cast<std::int64_t>(table.rows.size()));
    try {
      take(row);
    } catch (const InputError& error) {
      table.skipped.push_back({row, error.what()});
    }
  }
}

void expect_some(bool left, const std::string& file, std::string_view what, const PublishedTable& table) {
  if (!left)
    throw InputError(format("{}: found no {} can be forecast ({} skipped{}), expected at least one", file,
                            what, table.skipped.size(),
                            table.skipped.empty() ? "" : ", the first: " + table.skipped.front().reason));
}

void show(const CommonOptions& common, const std::function<ordered_json()>& result, const Table& table,
          const std::string& text) {
  if (wants_result(common) && publish(result(), common)) return;
  print(common.format == Format::kCsv ? table.csv() : table.text() + text);
}

ordered_json new_result(const CommonOptions& common) {
  return envelope("validate", describe_inputs(common), {});
}

ordered_json skipped_json(const PublishedTable& table) {
  ordered_json all = ordered_json::array();
  for (const SkippedRow& s : table.skipped)
    all.push_back(
        {{"line", s.line}, {"source", s.source}, {"gpu", s.gpu}, {"model", s.model}, {"reason", s.reason}});
  return all;
}

std::string skipped_text(const PublishedTable& table) {
  std::map<std::string, int> reasons;
  for (const SkippedRow& s : table.skipped) ++reasons[s.reason];
  std::string text;
  for (const auto& [reason, count] : reasons) text += format("skipped {}: {}\n", count, reason);
  return text;
}

ordered_json left_out_json(const std::vector<Refit>& refits) {
  ordered_json all = ordered_json::array();
  for (const Refit& one : refits)
    all.push_back({{"source", one.publication},
                   {"constant", one.constant},
                   {"shipped", one.shipped},
                   {"value", one.value},
                   {"rows", one.rows}});
  return all;
}

std::string left_out_text(const std::vector<Refit>& refits) {
  std::string text;
  for (const Refit& one : refits)
    text += format("without {}: {} {:.3g} for {:.3g}, {}\n", one.publication, one.constant, one.value,
                   one.shipped,
                   one.rows > 0 ? format("fitted to {} rows of others", one.rows)
                                : std::string("its value without any row"));
  return text;
}

namespace {

constexpr Table::Align kLeft = Table::Align::kLeft;

using Scores = std::map<std::vector<std::string>, Score>;  // of named groups

// `longest`: cuts the last of the names.
Table scores_table(std::vector<Table::Column> columns, const Scores& groups,
                   std::size_t longest = std::string::npos) {
  columns.insert(columns.end(), {{"rows"}, {"median |error|"}, {"bias"}, {"in interval"}});
  Table table(columns);
  for (const auto& [names, score] : groups) {
    std::vector<std::string> cells = names;
    cells.back() = cells.back().substr(0, longest);
    cells.insert(cells.end(), {format("{}", score.errors.size()), share(score.median_abs()),
                               percent(score.bias()), format("{}", score.inside)});
    table.row(std::move(cells));
  }
  return table;
}

// ---- training ----

struct Forecasted {
  PublishedRow row;
  models::Answer forecast;

  double error() const { return forecast.time_us.value * 1e-6 / row.measured_s - 1; }
};

const std::vector<Column<Forecasted>> kTrainingColumns{
    {{"line"}, [](const Forecasted& c) { return format("{}", c.row.line); }},
    {{"model", kLeft}, [](const Forecasted& c) { return c.row.scenario.model.name; }},
    {{"gpu", kLeft}, [](const Forecasted& c) { return c.row.gpu.substr(0, c.row.gpu.find('-')); }},
    {{"GPUs"}, [](const Forecasted& c) { return format("{}", c.forecast.gpus); }},
    {{"framework", kLeft}, [](const Forecasted& c) { return c.row.framework.substr(0, 24); }},
    {{"plan", kLeft}, [](const Forecasted& c) { return plan_text(c.row.scenario); }},
    {{"measured [s]"}, [](const Forecasted& c) { return format("{:.3f}", c.row.measured_s); }},
    {{"forecast [s]"}, [](const Forecasted& c) { return format("{:.3f}", c.forecast.time_us.value * 1e-6); }},
    {{"low"}, [](const Forecasted& c) { return format("{:.3f}", c.forecast.time_us.low * 1e-6); }},
    {{"high"}, [](const Forecasted& c) { return format("{:.3f}", c.forecast.time_us.high * 1e-6); }},
    {{"error"}, [](const Forecasted& c) { return percent(c.error()); }}};

ordered_json row_json(const Forecasted& c, bool breakdown) {
  ordered_json row{{"table", c.row.table},
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
  if (breakdown) row["breakdown_us"] = breakdown_json(c.forecast.breakdown_us);
  return row;
}

// Compares the order of the plans of each publication, by TFLOP/s.
std::map<std::string, double> correlations(const std::vector<Forecasted>& all) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_source;
  for (const Forecasted& c : all) {
    auto& [measured, forecast] = by_source[publication_of(c.row.source)];
    measured.push_back(c.forecast.tflops_per_gpu() * c.forecast.time_us.value * 1e-6 / c.row.measured_s);
    forecast.push_back(c.forecast.tflops_per_gpu());
  }
  std::map<std::string, double> result;
  for (const auto& [source, values] : by_source)
    if (values.first.size() >= 3) result[source] = rank_correlation(values.first, values.second);
  return result;
}

}  // namespace

int validate_training(const TableQuestion& question, const CommonOptions& common) {
  PublishedTable table = read_tables(question.tables);
  std::vector<Refit> refits;
  if (question.leave_out) refits = leave_out_sources(table.rows, ProgressLine(common).teller());
  std::vector<Forecasted> all;
  each_row(table, common, [&](PublishedRow& row) {
    models::Answer forecast = forecast_of(row, question.draws.value_or(32));
    all.push_back({std::move(row), std::move(forecast)});
  });
  expect_some(!all.empty(), question.tables.front(), "row that", table);
  Score total;
  Scores groups;  // by publication and GPU
  for (const Forecasted& c : all)
    for (Score* score : {&total, &groups[{publication_of(c.row.source), c.row.gpu}]})
      score->add(c.error(), inside(c.forecast.time_us, c.row.measured_s));
  const std::map<std::string, double> orders = correlations(all);
  const auto result = [&] {
    ordered_json out = new_result(common);
    out["rows"] = ordered_json::array();
    for (const Forecasted& c : all) out["rows"].push_back(row_json(c, !question.detail.empty()));
    out["median_abs_error"] = total.median_abs();
    out["interval_coverage"] = static_cast<double>(total.inside) / static_cast<double>(all.size());
    out["groups"] = ordered_json::array();
    for (const auto& [names, score] : groups)
      out["groups"].push_back({{"source", names[0]},
                               {"gpu", names[1]},
                               {"rows", score.errors.size()},
                               {"median_abs_error", score.median_abs()},
                               {"bias", score.bias()},
                               {"inside", score.inside}});
    out["rank_correlation"] = ordered_json::object();
    for (const auto& [source, value] : orders) out["rank_correlation"][source] = value;
    if (question.leave_out) out["left_out"] = left_out_json(refits);
    out["skipped"] = skipped_json(table);
    return out;
  };
  std::string text = "\n" + scores_table({{"source", kLeft}, {"gpu", kLeft}}, groups, 24).text() + "\n";
  for (const auto& [source, value] : orders)
    text += format("order of the plans of {}: rank correlation {:.3f}\n", source, value);
  text += skipped_text(table) +
          format("\n{} rows, median absolute error {}; measured inside the 90 % interval in {} of {}\n",
                 all.size(), share(total.median_abs()), total.inside, all.size()) +
          left_out_text(refits);
  show(common, result, table_of(kTrainingColumns, all), text);
  return question.max_error > 0 && total.median_abs() > question.max_error ? 1 : 0;
}

// ---- memory ----

namespace {

struct Peak {
  PublishedRow row;
  models::StepMemory memory;

  bool measured() const { return row.memory.peak > 0 && row.memory.ran; }
  double error() const { return memory.max_bytes / row.memory.peak - 1; }
  const models::StageMemory& fullest() const { return memory.stages[static_cast<std::size_t>(memory.stage)]; }
};

std::string gigabytes(double bytes) { return format("{:.2f}", bytes * 1e-9); }
std::string yes_or_no(bool yes) { return yes ? "yes" : "no"; }

const std::vector<Column<Peak>> kMemoryColumns{
    {{"line"}, [](const Peak& c) { return format("{}", c.row.line); }},
    {{"model", kLeft}, [](const Peak& c) { return c.row.scenario.model.name; }},
    {{"gpu", kLeft}, [](const Peak& c) { return c.row.gpu.substr(0, c.row.gpu.find('-')); }},
    {{"GPUs"}, [](const Peak& c) { return format("{}", c.row.scenario.parallel.world()); }},
    {{"plan", kLeft}, [](const Peak& c) { return plan_text(c.row.scenario); }},
    {{"recompute", kLeft}, [](const Peak& c) { return c.row.scenario.training.recompute.text(); }},
    {{"measured [GB]"},
     [](const Peak& c) { return c.row.memory.peak > 0 ? gigabytes(c.row.memory.peak) : "-"; }},
    {{"forecast [GB]"}, [](const Peak& c) { return gigabytes(c.memory.max_bytes); }},
    {{"error"}, [](const Peak& c) { return c.measured() ? percent(c.error()) : "-"; }},
    {{"limit [GB]"}, [](const Peak& c) { return gigabytes(c.memory.limit_bytes); }},
    {{"ran", kLeft}, [](const Peak& c) { return yes_or_no(c.row.memory.ran); }},
    {{"fits", kLeft}, [](const Peak& c) { return yes_or_no(c.memory.fits); }},
    {{"P(fits)"}, [](const Peak& c) { return format("{:.2f}", c.memory.fits_probability); }}};

ordered_json row_json(const Peak& c, bool causes) {
  const models::Scenario& s = c.row.scenario;
  const MeasuredMemory& m = c.row.memory;
  ordered_json row{{"line", c.row.line},
                   {"id", m.id},
                   {"source", c.row.source},
                   {"gpu", c.row.gpu},
                   {"gpus", s.parallel.world()},
                   {"model", c.row.model},
                   {"dispatcher", s.model.experts == 0 ? "none" : s.dispatchers.front().text()},
                   {"plan", plan_text(s)},
                   {"recompute", s.training.recompute.text()},
                   {"forecast_bytes", c.memory.max_bytes},
                   {"measured_bytes", given_if(m.peak > 0, m.peak)},
                   {"error", given_if(c.measured(), c.error())},
                   {"ran", m.ran},
                   {"fits", c.memory.fits},
                   {"fits_probability", c.memory.fits_probability},
                   {"limit_bytes", c.memory.limit_bytes},
                   {"stage", c.memory.stage},
                   {"moment", c.fullest().moment},
                   {"stages", ordered_json::array()},
                   {"assumptions", c.row.assumptions}};
  const auto add_stage = [&](const char* stage, const models::StageMemory& memory, double measured) {
    if (measured > 0)
      row["stages"].push_back({{"stage", stage},
                               {"forecast_bytes", memory.bytes.total()},
                               {"measured_bytes", measured},
                               {"error", memory.bytes.total() / measured - 1}});
  };
  add_stage("first", c.memory.stages.front(), m.first_stage);
  add_stage("last", c.memory.stages.back(), m.last_stage);
  if (causes) row["causes"] = ordered_json::array();
  if (causes)
    for (const models::MemoryCause& cause : c.fullest().causes)
      row["causes"].push_back(
          {{"kind", models::name_of(cause.kind)}, {"what", cause.what}, {"bytes", cause.bytes}});
  return row;
}

}  // namespace

int validate_memory(const TableQuestion& question, const CommonOptions& common) {
  PublishedTable table = read_tables(question.tables, RowsWith::kPlan);
  std::vector<Peak> all;
  Score score;
  int ran = 0, unfit = 0;
  each_row(table, common, [&](PublishedRow& row) {
    models::StepMemory memory = memory_of(row);
    models::check_possible(row.memory.id, models::impossible(memory));
    const Peak& c = all.emplace_back(Peak{std::move(row), std::move(memory)});
    if (c.measured()) score.add(c.error(), false);
    ran += c.row.memory.ran;
    unfit += c.row.memory.ran && !c.memory.fits;
  });
  expect_some(!all.empty(), question.tables.front(), "row whose memory", table);
  const bool any = !score.errors.empty();
  const auto result = [&] {
    ordered_json out = new_result(common);
    out["rows"] = ordered_json::array();
    for (const Peak& c : all) out["rows"].push_back(row_json(c, !question.detail.empty()));
    out["median_abs_error"] = given_if(any, score.median_abs());
    out["worst_abs_error"] = given_if(any, score.worst());
    out["ran"] = ran;
    out["ran_but_called_unfit"] = unfit;
    out["skipped"] = skipped_json(table);
    return out;
  };
  std::string text = table.skipped.empty() ? "\n" : "\n" + skipped_text(table) + "\n";
  if (any)
    text += format("{} measured peaks: median absolute error {}, worst {}\n", score.errors.size(),
                   share(score.median_abs()), share(score.worst()));
  text += format("{} of {} jobs that ran are called fitting\n", ran - unfit, ran);
  show(common, result, table_of(kMemoryColumns, all), text);
  return question.max_error > 0 && (score.median_abs() > question.max_error || unfit > 0) ? 1 : 0;
}

// ---- known figures ----

namespace {

using calibration::CsvTable;

struct Figure {
  std::string what, source, unit;
  double published = 0, ours = 0;
  double spread = 0;           // of what was measured, relative
  std::optional<double> miss;  // the ratio that is known to lie outside of it

  double ratio() const { return ours / published; }
  double low() const { return std::min(1.0, miss.value_or(1)) - spread; }
  double high() const { return std::max(1.0, miss.value_or(1)) + spread; }
  bool inside() const { return low() <= ratio() && ratio() <= high(); }
  std::string band() const { return format("{:.2f} to {:.2f}", low(), high()); }
};

const std::vector<Column<Figure>> kKnownColumns{
    {{"figure", kLeft}, [](const Figure& f) { return f.what; }},
    {{"published"}, [](const Figure& f) { return format("{:.4g}", f.published); }},
    {{"ours"}, [](const Figure& f) { return format("{:.4g}", f.ours); }},
    {{"unit", kLeft}, [](const Figure& f) { return f.unit; }},
    {{"ratio"},
     [](const Figure& f) {
       return format("{:.2f}{}", f.ratio(), !f.inside() ? " !" : f.miss ? " *" : "  ");
     }},
    {{"band", kLeft}, [](const Figure& f) { return f.band(); }},
    {{"source", kLeft}, [](const Figure& f) { return f.source; }}};

// Adds the figures of a file. `ours`: by line the published value and ours, all in the unit.
void add_figures(const std::string& path, const std::string& unit, const std::string& why_not,
                 const std::map<long, std::pair<double, double>>& ours, std::vector<Figure>& all) {
  const CsvTable table = CsvTable::parse(read_file(path), path);
  if (ours.size() != table.rows())
    throw InputError(SourcePlace{path},
                     format("{} of {} figures with a forecast ({})", ours.size(), table.rows(), why_not),
                     "all of them");
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const auto [published, forecast] = ours.at(table.place(r).line);
    all.push_back({table.text(r, "what"), table.text(r, "source"), unit, published, forecast,
                   table.number(r, "spread", 0, 1), table.optional_number(r, "miss", 0, 100)});
  }
}

// Bandwidths, GB/s in `column`.
void add_bandwidths(const std::string& path, const char* column, std::vector<Figure>& all) {
  const std::string text = read_file(path);
  const CsvTable table = CsvTable::parse(text, path);
  std::map<long, double> published;
  for (std::size_t r = 0; r < table.rows(); ++r)
    published[table.place(r).line] = table.number(r, column, 1e-3, 1e6);
  std::map<std::string, models::Profile> profiles;
  const calibration::CheckReport report = calibration::check_rows(
      calibration::read_table(text, path), [&](const std::string& gpu) -> const models::Profile* {
        const calibration::Device* device = calibration::device_of_gpu(gpu);
        if (!device) return nullptr;
        const std::string name(device->profile);
        const auto at = profiles.find(name);
        return &(at != profiles.end() ? at : profiles.emplace(name, models::Profile::load(name)).first)
                    ->second;
      });
  std::map<long, std::pair<double, double>> ours;
  for (const calibration::CheckedRow& row : report.rows) {
    const double value = published.at(row.origin.place.line);
    ours[row.origin.place.line] = {value, value * row.measured / row.forecast.value};
  }
  add_figures(path, "GB/s", report.skipped.empty() ? "" : report.skipped.begin()->first, ours, all);
}

// Training steps, or their memory.
void add_training(const std::string& path, bool memory, std::vector<Figure>& all) {
  PublishedTable table = read_tables({path}, memory ? RowsWith::kPlan : RowsWith::kTime);
  std::map<long, std::pair<double, double>> ours;
  for (PublishedRow& row : table.rows)
    ours[row.line] = memory ? std::pair(row.memory.peak * 1e-9, memory_of(row).max_bytes * 1e-9)
                            : std::pair(row.measured_s, forecast_of(row, 0).seconds());
  add_figures(path, memory ? "GB" : "s", table.skipped.empty() ? "" : table.skipped.front().reason, ours,
              all);
}

}  // namespace

int validate_known(const TableQuestion& question, const CommonOptions& common) {
  const std::filesystem::path folder(question.tables.front());
  std::vector<Figure> all;
  add_bandwidths((folder / "collectives.csv").string(), "busbw_GBps", all);
  add_bandwidths((folder / "kernels.csv").string(), "bottleneck_GBps", all);
  add_training((folder / "steps.csv").string(), false, all);
  add_training((folder / "memory.csv").string(), true, all);
  const auto result = [&] {
    ordered_json out = new_result(common);
    out["figures"] = ordered_json::array();
    for (const Figure& f : all)
      out["figures"].push_back({{"what", f.what},
                                {"source", f.source},
                                {"unit", f.unit},
                                {"published", f.published},
                                {"forecast", f.ours},
                                {"ratio", f.ratio()},
                                {"spread", f.spread},
                                {"miss", f.miss ? ordered_json(*f.miss) : ordered_json()},
                                {"band", {f.low(), f.high()}},
                                {"inside", f.inside()}});
    return out;
  };
  const auto inside = std::ranges::count_if(all, [](const Figure& f) { return f.inside(); });
  const auto missed = std::ranges::count_if(all, [](const Figure& f) { return f.miss && f.inside(); });
  show(common, result, table_of(kKnownColumns, all),
       format("\n{} of {} figures lie inside their bands, {} of them as known misses (*)\n", inside,
              all.size(), missed));
  for (const Figure& f : all)
    if (!f.inside())
      warn(common,
           format("check failed: {}: {:.4g} {} where {:.4g} is published, {:.2f} times, outside of {}",
                  f.what, f.ours, f.unit, f.published, f.ratio(), f.band()));
  return std::ranges::all_of(all, [](const Figure& f) { return f.inside(); }) ? 0 : 1;
}

// ---- rows left out of a fit ----

std::string left_out_text(const calibration::CheckReport& report) {
  Scores groups;
  for (const calibration::CheckedRow& row : report.rows)
    groups[{publication_of(row.origin.source), row.op, row.scope}].add(row.error(), row.covered());
  return scores_table({{"left out", kLeft}, {"operation", kLeft}, {"where", kLeft}}, groups).text() + "\n";
}

}  // namespace moesim::tools

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
#include "calibration/check/published.h"
#include "calibration/rows/csv_table.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/answers/invariants.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/people.h"
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
  std::vector<double> magnitudes = errors;
  for (double& error : magnitudes) error = std::abs(error);
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
      table.skipped.push_back({static_cast<const RowText&>(row), error.what()});
    }
  }
}

void expect_some(bool left, const std::string& file, std::string_view what, const PublishedTable& table) {
  if (!left)
    throw InputError(format("{}: found no {} can be forecast ({} skipped{}), expected at least one", file,
                            what, table.skipped.size(),
                            table.skipped.empty() ? "" : ", the first: " + table.skipped.front().reason));
}

void show(const CommonOptions& common, const ordered_json& figures, const Table& table,
          const std::string& text) {
  ordered_json result = envelope("validate", describe_inputs(common), {});
  result.update(figures);
  if (wants_result(common) && publish(result, common)) return;
  print(common.format == Format::kCsv ? table.csv() : table.text() + text);
}

Columns<SkippedRow> columns_of(Of<SkippedRow>) {
  using S = SkippedRow;
  return {{"line", &S::line},
          {"source", &S::source},
          {"gpu", &S::gpu},
          {"model", &S::model},
          {"reason", &S::reason}};
}

std::string skipped_text(const PublishedTable& table) {
  std::map<std::string, int> reasons;
  for (const SkippedRow& s : table.skipped) ++reasons[s.reason];
  std::string text;
  for (const auto& [reason, count] : reasons) text += format("skipped {}: {}\n", count, reason);
  return text;
}

Columns<Refit> columns_of(Of<Refit>) {
  return {
      {"source", &Refit::publication},
      {"constant", &Refit::constant},
      {"shipped", &Refit::shipped},
      {"value", &Refit::value},
      {"rows", &Refit::rows, "of other publications that it was fitted to; 0: its value without any row"}};
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

using Scores = std::map<std::vector<std::string>, Score>;  // of named groups

const Columns<Score>& score_columns() {
  static const Columns<Score> all{
      {"rows", [](const Score& s) { return s.errors.size(); }, "", "rows"},
      {"median_abs_error", &Score::median_abs, "", share_head("median |error|", 1)},
      {"bias", &Score::bias, "median", share_head("bias", 1, true)},
      {"inside", &Score::inside, "the 90 % interval", "in interval"}};
  return all;
}

// `longest`: cuts the last of the names.
Table scores_table(const std::vector<const char*>& names, const Scores& groups,
                   std::size_t longest = std::string::npos) {
  std::vector<Table::Column> columns;
  columns.reserve(names.size());
  for (const char* name : names) columns.push_back({name, Table::Align::kLeft});
  Table table(score_columns().heads(columns));
  for (const auto& [group, score] : groups) {
    std::vector<std::string> cells = group;
    cells.back() = cells.back().substr(0, longest);
    table.row(score_columns().cells(std::move(cells), score));
  }
  return table;
}

// ---- training ----

struct Forecasted {
  PublishedRow row;
  models::Answer forecast;
  bool breakdown = false;  // is told

  double error() const { return forecast.time_us.value * 1e-6 / row.measured_s - 1; }
};

std::string up_to_dash(const std::string& gpu) { return gpu.substr(0, gpu.find('-')); }
std::string cut(const std::string& framework) { return framework.substr(0, 24); }
std::string seconds(double us) { return format("{:.3f}", us / 1e6); }

// The columns of people: lines by the model's own name.
template <class Row>
Columns<Row> people(std::initializer_list<std::string_view> paths) {
  const Columns<Row> all = columns_of(Of<Row>{});
  return all.some({"line"})
      .add({{"", [](const Row& r) { return r.row.scenario.model.name; }, "", "model"}})
      .add(all.some(paths));
}

Columns<Forecasted> columns_of(Of<Forecasted>) {
  using F = Forecasted;
  using R = PublishedRow;
  const auto row = [](auto of) { return [of](const F& f) { return std::invoke(of, f.row); }; };
  const auto answer = [](auto of) { return [of](const F& f) { return std::invoke(of, f.forecast); }; };
  using A = models::Answer;
  return {{"table", row(&R::table), "the file"},
          {"line", row(&R::line), "", "line"},
          {"source", row(&R::source)},
          {"framework", row(&R::framework), "", {"framework", cut}},
          {"gpu", row(&R::gpu), "", {"gpu", up_to_dash}},
          {"gpus", answer(&A::gpus), "", "GPUs"},
          {"model", row(&R::model)},
          {"plan", row([](const R& r) { return plan_text(r.scenario); }), "", "plan"},
          {"dispatcher", answer(&A::dispatcher)},
          {"forecast_us", answer([](const A& a) { return a.time_us.value; }), "", {"forecast [s]", 3, 1e-6}},
          {"low_us", answer([](const A& a) { return a.time_us.low; }), "", {"low", 3, 1e-6}},
          {"high_us", answer([](const A& a) { return a.time_us.high; }), "", {"high", 3, 1e-6}},
          {"measured_us", row([](const R& r) { return r.measured_s * 1e6; }), "", {"measured [s]", seconds}},
          {"measured_from", row(&R::measured_from)},
          {"error", &F::error, "", share_head("error", 1, true)},
          {"peak_memory_bytes", answer([](const A& a) { return a.memory.max_bytes; })},
          {"fits", answer([](const A& a) { return a.memory.fits; })},
          {"recompute", row([](const R& r) { return r.scenario.training.recompute.text(); })},
          {"cell", row([](const R& r) { return calibration::step_cell(r.scenario); })},
          {"assumptions", row(&R::assumptions)},
          {"breakdown_us?",
           [](const F& f) { return where(f.breakdown, breakdown_of(f.forecast.breakdown_us)); }}};
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

struct Training {
  std::vector<Forecasted> rows = {};
  Score total = {};
  Scores groups = {};                    // by publication and GPU
  int open = 0, tuned = 0, untuned = 0;  // rows whose host decides and is not stated; inside either interval
  std::map<std::string, double> orders = {};
  std::optional<std::vector<Refit>> refits = {};
  std::vector<SkippedRow> skipped = {};
};

Columns<Training> columns_of(Of<Training>) {
  using T = Training;
  using Group = Scores::value_type;
  Columns<Group> group{{"source", [](const Group& g) { return g.first[0]; }},
                       {"gpu", [](const Group& g) { return g.first[1]; }}};
  Columns<T> all{
      {"rows", &T::rows},
      {"median_abs_error", [](const T& t) { return t.total.median_abs(); }},
      {"interval_coverage",
       [](const T& t) { return static_cast<double>(t.total.inside) / static_cast<double>(t.rows.size()); }},
      {"open_hosts",
       {{"rows", &T::open}, {"inside_tuned", &T::tuned}, {"inside_untuned", &T::untuned}},
       "rows that leave open whether the host is tuned, where that decides the time"}};
  return all.list("groups", group.add(score_columns(), &Group::second), &T::groups)
      .add({{"rank_correlation", &T::orders, "of the plans of a publication, by TFLOP/s"},
            {"left_out?", &T::refits,
             "with --leave-out source: constants that a publication's rows set, and their values without it"},
            {"skipped", &T::skipped}});
}

}  // namespace

const ResultSchema kTrainingSchema("validate-training", "validate --training", schema_of<Training>);

int validate_training(const TableQuestion& question, const CommonOptions& common) {
  PublishedTable table = read_tables(question.tables);
  Training out;
  if (question.leave_out) out.refits = leave_out_sources(table.rows, ProgressLine(common).teller());
  each_row(table, common, [&](PublishedRow& row) {
    models::Answer forecast = forecast_of(row, question.draws);
    out.rows.push_back({std::move(row), std::move(forecast), !question.detail.empty()});
  });
  expect_some(!out.rows.empty(), question.tables.front(), "row that", table);
  for (const Forecasted& c : out.rows)
    for (Score* score : {&out.total, &out.groups[{publication_of(c.row.source), c.row.gpu}]})
      score->add(c.error(), inside(c.forecast.time_us, c.row.measured_s));
  for (const Forecasted& c : out.rows)
    if (const auto& hosts = c.forecast.hosts) {
      ++out.open;
      out.tuned += inside(hosts->tuned, c.row.measured_s);
      out.untuned += inside(hosts->untuned, c.row.measured_s);
    }
  out.orders = correlations(out.rows);
  out.skipped = table.skipped;
  const Score& total = out.total;
  std::string text = "\n" + scores_table({"source", "gpu"}, out.groups, 24).text() + "\n";
  for (const auto& [source, value] : out.orders)
    text += format("order of the plans of {}: rank correlation {:.3f}\n", source, value);
  text +=
      skipped_text(table) +
      format("\n{} rows, median absolute error {}; measured inside the 90 % interval in {} of {}\n",
             out.rows.size(), percent(total.median_abs()), total.inside, out.rows.size()) +
      (out.open == 0 ? ""
                     : format("{} rows leave open whether the host is tuned, and that decides: {} are inside "
                              "the interval of a tuned host, {} of an untuned one\n",
                              out.open, out.tuned, out.untuned)) +
      left_out_text(out.refits.value_or(std::vector<Refit>()));
  show(common, json_of(out),
       table_of(people<Forecasted>({"gpu", "gpus", "framework", "plan", "measured_us", "forecast_us",
                                    "low_us", "high_us", "error"}),
                out.rows),
       text);
  return question.max_error > 0 && total.median_abs() > question.max_error ? 1 : 0;
}

// ---- memory ----

namespace {

struct Peak {
  PublishedRow row;
  models::StepMemory memory;
  bool causes = false;  // are told

  bool measured() const { return row.memory.peak > 0 && row.memory.ran; }
  double error() const { return memory.max_bytes / row.memory.peak - 1; }
  const models::StageMemory& fullest() const { return memory.stages[static_cast<std::size_t>(memory.stage)]; }
};

std::string gigabytes(double bytes) { return format("{:.2f}", bytes * 1e-9); }

// A stage of a pipeline that was measured.
struct MeasuredStage {
  const char* stage;
  double forecast, measured;

  double error() const { return forecast / measured - 1; }
};

Columns<MeasuredStage> columns_of(Of<MeasuredStage>) {
  using S = MeasuredStage;
  return {{"stage", &S::stage, one_of({"first", "last"})},
          {"forecast_bytes", &S::forecast},
          {"measured_bytes", &S::measured},
          {"error", &S::error}};
}

std::vector<MeasuredStage> stages_of(const Peak& p) {
  std::vector<MeasuredStage> all{{"first", p.memory.stages.front().bytes.total(), p.row.memory.first_stage},
                                 {"last", p.memory.stages.back().bytes.total(), p.row.memory.last_stage}};
  std::erase_if(all, [](const MeasuredStage& one) { return one.measured <= 0; });
  return all;
}

Columns<Peak> columns_of(Of<Peak>) {
  using P = Peak;
  using R = PublishedRow;
  using M = models::StepMemory;
  const auto row = [](auto of) { return [of](const P& p) { return std::invoke(of, p.row); }; };
  const auto memory = [](auto of) { return [of](const P& p) { return p.memory.*of; }; };
  return {
      {"line", row(&R::line), "", "line"},
      {"id", [](const P& p) { return p.row.memory.id; }},
      {"source", row(&R::source)},
      {"gpu", row(&R::gpu), "", {"gpu", up_to_dash}},
      {"gpus", row([](const R& r) { return r.scenario.parallel.world(); }), "", "GPUs"},
      {"model", row(&R::model)},
      {"dispatcher", row([](const R& r) {
         return r.scenario.model.experts == 0 ? "none" : r.scenario.dispatchers.front().text();
       })},
      {"plan", row([](const R& r) { return plan_text(r.scenario); }), "", "plan"},
      {"recompute", row([](const R& r) { return r.scenario.training.recompute.text(); }), "", "recompute"},
      {"forecast_bytes", memory(&M::max_bytes), "of the fullest rank", {"forecast [GB]", gigabytes}},
      {"measured_bytes",
       [](const P& p) { return where(p.row.memory.peak > 0, p.row.memory.peak); },
       "largest allocation over the ranks; null: not stated",
       {"measured [GB]", gigabytes}},
      {"error", [](const P& p) { return where(p.measured(), p.error()); },
       "forecast over measured, minus one; null: not measured, or the job did not run",
       share_head("error", 1, true)},
      {"ran", [](const P& p) { return p.row.memory.ran; }, "", "ran"},
      {"fits", memory(&M::fits), "", "fits"},
      {"fits_probability", memory(&M::fits_probability), "", {"P(fits)", 2}},
      {"limit_bytes", memory(&M::limit_bytes), "", {"limit [GB]", gigabytes}},
      {"stage", memory(&M::stage)},
      {"moment", [](const P& p) { return p.fullest().moment; }},
      {"stages", stages_of},
      {"assumptions", row(&R::assumptions)},
      {"causes?", [](const P& p) { return where(p.causes, p.fullest().causes); }, "of the fullest stage"}};
}

struct Memory {
  std::vector<Peak> rows = {};
  Score score = {};
  int ran = 0, unfit = 0;
  std::vector<SkippedRow> skipped = {};

  bool any() const { return !score.errors.empty(); }
};

Columns<Memory> columns_of(Of<Memory>) {
  using M = Memory;
  return {{"rows", &M::rows},
          {"median_abs_error", [](const M& m) { return where(m.any(), m.score.median_abs()); },
           "over the measured peaks"},
          {"worst_abs_error", [](const M& m) { return where(m.any(), m.score.worst()); },
           "over the measured peaks"},
          {"ran", &M::ran},
          {"ran_but_called_unfit", &M::unfit},
          {"skipped", &M::skipped}};
}

}  // namespace

const ResultSchema kMemorySchema("validate-memory", "validate --memory", schema_of<Memory>);

int validate_memory(const TableQuestion& question, const CommonOptions& common) {
  PublishedTable table = read_tables(question.tables, RowsWith::kPlan);
  Memory out;
  const Score& score = out.score;
  each_row(table, common, [&](PublishedRow& row) {
    models::StepMemory memory = memory_of(row);
    models::check_possible(row.memory.id, models::impossible(memory));
    const Peak& c = out.rows.emplace_back(Peak{std::move(row), std::move(memory), !question.detail.empty()});
    if (c.measured()) out.score.add(c.error(), false);
    out.ran += c.row.memory.ran;
    out.unfit += c.row.memory.ran && !c.memory.fits;
  });
  expect_some(!out.rows.empty(), question.tables.front(), "row whose memory", table);
  out.skipped = table.skipped;
  std::string text = table.skipped.empty() ? "\n" : "\n" + skipped_text(table) + "\n";
  if (out.any())
    text += format("{} measured peaks: median absolute error {}, worst {}\n", score.errors.size(),
                   percent(score.median_abs()), percent(score.worst()));
  text += format("{} of {} jobs that ran are called fitting\n", out.ran - out.unfit, out.ran);
  show(common, json_of(out),
       table_of(people<Peak>({"gpu", "gpus", "plan", "recompute", "measured_bytes", "forecast_bytes", "error",
                              "limit_bytes", "ran", "fits", "fits_probability"}),
                out.rows),
       text);
  return question.max_error > 0 && (score.median_abs() > question.max_error || out.unfit > 0) ? 1 : 0;
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
  double low() const { return 1 - spread; }
  double high() const { return 1 + spread; }
  bool inside() const { return low() <= ratio() && ratio() <= high(); }
  // Outside, no further than is known.
  bool known_miss() const {
    return !inside() && miss && std::min(1.0, *miss) - spread <= ratio() &&
           ratio() <= std::max(1.0, *miss) + spread;
  }
  bool fails() const { return !inside() && !known_miss(); }
  std::vector<double> band() const { return {low(), high()}; }
  std::string band_text() const { return format("{:.2f} to {:.2f}", low(), high()); }
};

std::string four_digits(double value) { return format("{:.4g}", value); }

Columns<Figure> columns_of(Of<Figure>) {
  using F = Figure;
  const auto ratio = [](const F& f) {
    return format("{:.2f}{}", f.ratio(), f.fails() ? " !" : f.known_miss() ? " *" : "  ");
  };
  return {{"what", &F::what, "", "figure"},
          {"published", &F::published, "", {"published", four_digits}},
          {"forecast", &F::ours, "", {"ours", four_digits}},
          {"unit", &F::unit, "", "unit"},
          {"ratio", &F::ratio, "of the forecast over the published figure"},
          {"", ratio, "", "ratio"},
          {"band", &F::band},
          {"", &F::band_text, "", "band"},
          {"source", &F::source, "", "source"},
          {"spread", &F::spread, "relative, of what was measured"},
          {"miss", &F::miss, "ratio of a forecast that is known to lie outside of the spread"},
          {"inside", &F::inside}};
}

struct Figures {
  std::vector<Figure> figures = {};
};

Columns<Figures> columns_of(Of<Figures>) { return {{"figures", &Figures::figures}}; }

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
  const calibration::CheckReport report =
      calibration::check_rows(calibration::read_table(text, path), calibration::built_in_of);
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

const ResultSchema kKnownSchema("validate-known", "validate --known", schema_of<Figures>);

int validate_known(const TableQuestion& question, const CommonOptions& common) {
  const std::filesystem::path folder(question.tables.front());
  Figures out;
  std::vector<Figure>& all = out.figures;
  add_bandwidths((folder / "collectives.csv").string(), "busbw_GBps", all);
  add_bandwidths((folder / "kernels.csv").string(), "bottleneck_GBps", all);
  add_training((folder / "steps.csv").string(), false, all);
  add_training((folder / "memory.csv").string(), true, all);
  const auto inside = std::ranges::count_if(all, &Figure::inside);
  const auto missed = std::ranges::count_if(all, &Figure::known_miss);
  show(
      common, json_of(out), table_of(all),
      format("\n{} of {} figures lie inside their bands; {} known misses (*)\n", inside, all.size(), missed));
  for (const Figure& f : all)
    if (f.fails())
      warn(common,
           format("check failed: {}: {:.4g} {} where {:.4g} is published, {:.2f} times, outside of {}",
                  f.what, f.ours, f.unit, f.published, f.ratio(), f.band_text()));
  return std::ranges::any_of(all, &Figure::fails) ? 1 : 0;
}

// ---- rows left out of a fit ----

std::string left_out_text(const calibration::CheckReport& report) {
  Scores groups;
  for (const calibration::CheckedRow& row : report.rows)
    groups[{publication_of(row.origin.source), row.op, row.scope}].add(row.error(), row.covered());
  return scores_table({"left out", "operation", "where"}, groups).text() + "\n";
}

}  // namespace moesim::tools

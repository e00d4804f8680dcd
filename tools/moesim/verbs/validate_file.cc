#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "calibration/check/check.h"
#include "calibration/check/published.h"
#include "calibration/rows/devices.h"
#include "models/hardware/network.h"
#include "tools/moesim/questions/normal.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/validate.h"

namespace moesim::tools {

using calibration::CheckReport;
using calibration::JudgedRow;

namespace {

constexpr double kLargeBytes = 1 << 20;  // from here on a collective's bandwidth tells about links
constexpr double kManyRows = 0.25;       // share of slow rows that makes a file not normal
constexpr std::size_t kShownRows = 12;

std::string gbps(double bytes_per_second) { return fmt::format("{:.3g}", bytes_per_second * 1e-9); }

std::string what_of(const JudgedRow& one) {
  return one.row.bytes > 0 ? fmt::format("{} of {}", one.row.op, format_bytes(one.row.bytes)) : one.row.op;
}

// "31 published runs like it on h200-sxm with infiniband-ndr have 38 to 46 GB/s"
std::string usual_text(const JudgedRow& one, const std::string& gpu) {
  const models::Estimate usual = one.usual_bandwidth();
  const std::string where = gpu + (one.row.network.empty() ? " inside a node" : " with " + one.row.network);
  std::string range = gbps(usual.low);
  if (gbps(usual.high) != range) range += " to " + gbps(usual.high);
  if (one.published)
    return fmt::format("{} published runs like it on {} have {} GB/s", one.published->rows, where, range);
  return fmt::format("a forecast for {} says {} GB/s", where, range);
}

}  // namespace

// Rows of one file, judged together.
struct JudgedFile {
  std::vector<JudgedRow> rows;
  Verdict verdict;
};

Columns<JudgedRow> columns_of(Of<JudgedRow>) {
  using R = JudgedRow;
  return {
      {"place", [](const R& r) { return r.row.origin.place.str(); }},
      {"gpu", [](const R& r) { return r.row.origin.gpu; }},
      {"op", [](const R& r) { return r.row.op; }, {}, {"operation"}},
      {"ranks", [](const R& r) { return r.row.ranks; }, {}, {"ranks"}},
      {"network", [](const R& r) { return r.row.network; }, "empty inside a node"},
      {"bytes", [](const R& r) { return r.row.bytes; }, "of a collective", {"size [MB]", 3, 1e-6}},
      {"measured_us", [](const R& r) { return r.row.measured * kUsPerSecond; }, {}, {"time [us]", 1}},
      {"bandwidth",
       [](const R& r) { return r.row.bandwidth; },
       "as the tool prints it, bytes/s",
       {"GB/s", 2, 1e-9}},
      {"usual_bandwidth", &R::usual_bandwidth, "of the published rows, or of the forecast"},
      {"low", [](const R& r) { return r.usual_bandwidth().low; }, {}, {"usual from", 2, 1e-9}},
      {"high", [](const R& r) { return r.usual_bandwidth().high; }, {}, {"to", 2, 1e-9}},
      {"rows",
       [](const R& r) { return r.published ? r.published->rows : 0; },
       "published rows of the same call",
       {"published"}},
      {"sources", [](const R& r) { return r.published ? r.published->sources : std::vector<std::string>(); }},
      {"percentile",
       &R::slower,
       "share of them, or of the forecasts, that are slower",
       {"slower [%]", 0, 100}},
      {"normal", &R::normal}};
}

Columns<JudgedFile> columns_of(Of<JudgedFile>) {
  using F = JudgedFile;
  return {{"verdict", &F::verdict}, {"rows", &F::rows}};
}

namespace {

// Of every GPU, operation and number of ranks the row of the largest message.
std::vector<const JudgedRow*> largest_rows(const std::vector<JudgedRow>& rows) {
  std::map<std::tuple<std::string, std::string, std::string>, const JudgedRow*> largest;
  for (const JudgedRow& one : rows) {
    const JudgedRow*& kept = largest[{one.row.origin.gpu, one.row.op, one.row.ranks}];
    if (!kept || one.row.bytes > kept->row.bytes || (one.row.bytes == 0 && one.ratio() > kept->ratio()))
      kept = &one;
  }
  std::vector<const JudgedRow*> all(largest.size());
  std::ranges::transform(largest, all.begin(), [](const auto& one) { return one.second; });
  return all;
}

Verdict verdict_of(const std::vector<JudgedRow>& rows, const std::string& log) {
  // Small messages tell about launches and vary; they count where there are no others.
  std::vector<JudgedRow> counted;
  for (const JudgedRow& one : rows)
    if (one.row.bytes == 0 || one.row.bytes >= kLargeBytes) counted.push_back(one);
  if (counted.empty()) counted = rows;
  std::vector<const JudgedRow*> slow;
  for (const JudgedRow& one : counted)
    if (!one.normal) slow.push_back(&one);
  std::vector<const JudgedRow*> largest = largest_rows(counted);
  const bool many = static_cast<double>(slow.size()) > kManyRows * static_cast<double>(counted.size());
  Verdict verdict;
  verdict.normal = !many && std::ranges::all_of(largest, &JudgedRow::normal);
  // What speaks for all: the slowest of the large messages that are not normal, else of all that are not.
  if (!verdict.normal) {
    std::erase_if(largest, [](const JudgedRow* row) { return row->normal; });
    if (largest.empty()) largest = slow;
  }
  const JudgedRow& one = **std::ranges::max_element(largest, {}, &JudgedRow::ratio);
  const calibration::Device* device = calibration::device_of_gpu(one.row.origin.gpu);
  const std::string gpu(device->profile);
  verdict.ratio = one.ratio();
  verdict.slower = one.slower;
  verdict.rows = one.published ? one.published->rows : 0;
  const auto run_text = [&](const char* your) {
    return fmt::format("{} {} runs at {} GB/s; {}", your, what_of(one), gbps(one.row.bandwidth),
                       usual_text(one, gpu));
  };
  const bool below_all = one.published && one.speed() < one.published->speed.front();
  verdict.sentence = verdict.normal
                         ? fmt::format("Normal: {}; {:.0f} % are slower.", run_text("your"), 100 * one.slower)
                         : fmt::format("{}: {}{:.1f} times too slow.", run_text("Your"),
                                       below_all ? "below all of them, " : "", verdict.ratio);
  if (verdict.ratio > 1 + calibration::kSlack) {
    Circumstances run;
    run.kind = one.row.bytes > 0 ? "collective" : "kernel";
    run.op = one.row.bytes > 0 ? one.row.op : "kernel";
    run.gpu = gpu;
    run.nodes = one.row.nodes;
    if (!one.row.network.empty()) run.network = models::NetworkProfile::load(one.row.network).kind;
    run.log = log;
    verdict.causes = causes_of(run, verdict.ratio, {});
  }
  return verdict;
}

}  // namespace

void FileValidation::declare(CLI::App& app) {
  app.add_option("file", file, "a log of nccl-tests, DeepEP or a training, a table, a recording");
  facts.declare(app, false);
  facts.declare_dispatch(app, false);
  app.add_option("--network", network, "of rows between nodes: a name or a file [the usual one of the GPU]");
  app.add_option("--nics", nics, "Network ports of a node [the network's]")->check(CLI::Range(1, 64));
  app.add_option("--nic-rate", nic_rate, "Rate of a port, 200Gbps [the network's]");
}

int validate_rows(const FileValidation& o, const std::string& log, const CommonOptions& common) {
  if (log.find("\"traceEvents\"") != std::string::npos)
    throw InputError(SourcePlace{o.file}, "a profiler trace",
                     "the recording that 'moesim trace convert' makes of the traces of all ranks");
  calibration::Measurements rows = read_all_rows({o.file}, o.facts.facts(), common);
  calibration::take_gpu(rows, o.facts.facts().gpu);
  calibration::Between between{o.network, o.nics, 0};
  if (!o.nic_rate.empty()) between.port_bandwidth = parse_bandwidth(o.nic_rate);
  CheckReport report = calibration::check_rows(rows, calibration::built_in_of, between);
  std::erase_if(report.rows, [](const calibration::CheckedRow& row) { return row.bandwidth <= 0; });
  std::vector<std::string> warnings;
  for (const auto& [reason, count] : report.skipped)
    warnings.push_back(fmt::format("{} rows are not judged: {}", count, reason));
  if (report.rows.empty())
    throw InputError(SourcePlace{o.file},
                     warnings.empty() ? "no rows of collectives or dispatch kernels" : warnings.front(),
                     "rows that moesim can judge");
  for (const auto& [network, count] : report.assumed_networks())
    if (o.network.empty())
      warnings.push_back(fmt::format("{} rows between nodes do not say their network: {} assumed (--network)",
                                     count, network));
  JudgedFile judged;
  for (const calibration::CheckedRow& row : report.rows) judged.rows.push_back(calibration::judge(row));
  judged.verdict = verdict_of(judged.rows, log);
  if (common.format == Format::kJson) {
    print_result("validate", describe_inputs(common), json_of(judged), warnings);
    return judged.verdict.normal ? 0 : 1;
  }
  if (common.format == Format::kCsv) {
    print(csv_of(json_of(judged).at("rows")));
  } else {
    static const auto kColumns = columns_of(Of<JudgedRow>{});
    Table table(kColumns.heads({}));
    std::vector<const JudgedRow*> shown;
    for (const JudgedRow& one : judged.rows) shown.push_back(&one);
    std::ranges::stable_sort(shown, [](const auto* a, const auto* b) { return a->ratio() > b->ratio(); });
    if (shown.size() > kShownRows) shown.resize(kShownRows);
    for (const JudgedRow* one : shown) table.row(kColumns.cells({}, *one));
    print_answer(judged.verdict.sentence);
    print("\n" + table.text());
    if (shown.size() < judged.rows.size())
      print(fmt::format("  the {} slowest of {} rows; --format csv has all\n", shown.size(),
                        judged.rows.size()));
    if (const std::string causes = verdict_text(judged.verdict); !causes.empty()) print("\n" + causes);
  }
  for (const std::string& warning : warnings) warn(common, warning);
  return judged.verdict.normal ? 0 : 1;
}

const ResultSchema kValidateRowsSchema("validate-rows", "validate FILE", schema_of<JudgedFile>);

}  // namespace moesim::tools

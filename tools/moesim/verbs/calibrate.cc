// `moesim calibrate`: imports measurements, fits profiles, and checks them against held-out rows.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "calibration/check/check.h"
#include "calibration/check/leave_out.h"
#include "calibration/fit/derive.h"
#include "calibration/fit/fit_networks.h"
#include "calibration/fit/fit_profile.h"
#include "calibration/fit/machine_numbers.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/validation/validation.h"
#include "tools/moesim/verbs/calibrate_rows.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {
std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }
}  // namespace

using calibration::CheckedRow;
using calibration::CheckGroup;
using calibration::CheckReport;

Columns<CheckGroup> columns_of(Of<CheckGroup>) {
  using G = CheckGroup;
  return {{"gpu", &G::gpu, "", "gpu"},
          {"op", &G::op, "", "operation"},
          {"scope", &G::scope, "", "scope"},
          {"sizes", &G::sizes, "", "sizes"},
          {"ranks", &G::ranks, "", {"ranks", or_dash}},
          {"rows", &G::rows, "", "rows"},
          {"mean_abs_error", &G::mean_abs_error, "", share_head("mean |error|", 1)},
          {"median_abs_error", &G::median_abs_error, "", share_head("median", 1)},
          {"bias", &G::bias, "", share_head("bias", 1, true)},
          {"coverage", &G::coverage, "of the 90 % interval", share_head("in 90 %", 1)}};
}

// One line per row, to find what a law gets wrong.
Columns<CheckedRow> columns_of(Of<CheckedRow>) {
  using R = CheckedRow;
  const auto signed_error = [](double error) { return fmt::format("{:+.4f}", error); };
  return {{"place", [](const R& r) { return r.origin.place.str(); }, "", "place"},
          {"gpu", [](const R& r) { return r.origin.gpu; }, "", "gpu"},
          {"op", &R::op, "", "operation"},
          {"scope", &R::scope, "", "scope"},
          {"ranks", &R::ranks, "", {"ranks", or_dash}},
          {"law", &R::law, "that priced it", "law"},
          {"measured_us", [](const R& r) { return 1e6 * r.measured; }, "", {"measured_us", 3}},
          {"forecast_us", [](const R& r) { return 1e6 * r.forecast.value; }, "", {"forecast_us", 3}},
          {"low_us", [](const R& r) { return 1e6 * r.forecast.low; }, "of the 90 % interval", {"low_us", 3}},
          {"high_us", [](const R& r) { return 1e6 * r.forecast.high; }, "", {"high_us", 3}},
          {"error", &R::error, "forecast over measured, less 1", {"error", signed_error}},
          {"cell", &R::cell, "what rows of one call share", "cell"},
          {"source", [](const R& r) { return calibration::publication_of(r.origin.source); }, "", "source"}};
}

Columns<CheckReport> columns_of(Of<CheckReport>) {
  const Columns<CheckGroup> group = columns_of(Of<CheckGroup>{});
  const auto large = [](const CheckReport& r) { return r.collectives_from(1 << 20); };
  Columns<CheckReport> all, of_large;
  of_large.add(group.some({"rows", "mean_abs_error", "median_abs_error", "coverage"}), large);
  return all.add(group.some({"mean_abs_error", "median_abs_error", "coverage", "rows"}), &CheckReport::total)
      .add({{"collectives_from_1_mib?", of_large, "of the rows of collectives of 1 MiB and more",
             [=](const CheckReport& r) { return large(r).rows > 0; }}})
      .list("skipped", skipped_columns(), &CheckReport::skipped)
      .add({{"groups", &CheckReport::groups}});
}

namespace {

using calibration::Device;
using calibration::ImportFacts;
using calibration::Measurements;
using calibration::RefineReport;
using models::Profile;

// A report, with its rows where they are asked for.
struct Checked {
  const CheckReport& report;
  bool rows;
};

Columns<Checked> columns_of(Of<Checked>) {
  Columns<Checked> all;
  all.add(columns_of(Of<CheckReport>{}), [](const Checked& c) -> const CheckReport& { return c.report; });
  return all.add(
      {{"checked?", [](const Checked& c) { return where(c.rows, c.report.rows); }, "each row, with --rows"}});
}

const ResultSchema kCheck("calibrate-check", "calibrate check", schema_of<Checked>);

// Merges groups over sizes and ranks to fit one screen.
std::vector<CheckGroup> merged(const CheckReport& report) {
  CheckReport coarse = report;
  for (auto& row : coarse.rows) {
    row.sizes = "all";
    row.ranks.clear();
  }
  return coarse.groups();
}

enum class Detail { kMerged, kGroups, kRows };

std::string assumption(const std::string& network, std::size_t rows) {
  return fmt::format("{} rows between nodes do not say their network: {} assumed (--network)", rows, network);
}

int report_check(const CommonOptions& common, const CheckReport& report, const nlohmann::ordered_json& inputs,
                 Detail detail, std::optional<double> max_error) {
  const CheckGroup total = report.total(), large = report.collectives_from(1 << 20);
  if (report.rows.empty()) {
    std::string reasons;
    for (const auto& [reason, count] : report.skipped) reasons += (reasons.empty() ? "" : "; ") + reason;
    throw InputError("no row could be checked" + (reasons.empty() ? std::string() : ": " + reasons));
  }
  std::size_t skipped = 0;
  for (const auto& [reason, count] : report.skipped) skipped += count;
  if (common.format == Format::kJson) {
    std::vector<std::string> warnings;
    for (const auto& [network, count] : report.assumed_networks())
      warnings.push_back(assumption(network, count));
    print_result("calibrate-check", inputs, json_of(Checked{report, detail == Detail::kRows}), warnings);
  } else {
    const bool groups = detail == Detail::kGroups || common.format == Format::kCsv;
    const Table table =
        detail == Detail::kRows ? table_of(report.rows) : table_of(groups ? report.groups() : merged(report));
    if (common.format == Format::kCsv) {
      print(table.csv());
    } else {
      std::string text = table.text();
      text += fmt::format(
          "\n{} rows: mean |error| {}, median {}, {} inside their 90 % interval; {} rows skipped\n",
          total.rows, percent(total.mean_abs_error), percent(total.median_abs_error), percent(total.coverage),
          skipped);
      if (large.rows > 0)
        text += fmt::format("  {} collectives from 1 MiB: mean |error| {}, median {}, {} inside\n",
                            large.rows, percent(large.mean_abs_error), percent(large.median_abs_error),
                            percent(large.coverage));
      for (const auto& [network, count] : report.assumed_networks())
        text += "  " + assumption(network, count) + "\n";
      for (const auto& [reason, count] : report.skipped)
        text += fmt::format("  skipped {:5}  {}\n", count, reason);
      print(text);
    }
  }
  return max_error && total.mean_abs_error > *max_error ? 1 : 0;
}

constexpr std::uint64_t kMostLogBytes = std::uint64_t{1} << 30;

calibration::Imported imported_log(const std::string& kind, const std::string& file,
                                   const ImportFacts& facts) {
  if (kind == "recording") return {import_recording(file, facts), {}};
  if (kind == "csv" || kind == "echo") return {read_any(file, facts), {}};
  const std::string text = read_file(file, kMostLogBytes);
  if (kind == "google-benchmark") return calibration::import_google_benchmark(text, file, facts);
  return kind == "deepep" ? calibration::import_deepep(text, file, facts)
                          : calibration::import_nccl_tests(text, file, facts);
}

Measurements imported_as(const std::string& kind, const std::vector<std::string>& files,
                         const ImportFacts& facts, const CommonOptions& common) {
  std::vector<calibration::Imported> parts;
  if (kind == "nccl-inspector") {
    // A job's files belong together: a call's duration is that of the rank that waited least.
    const auto text_of = [](const std::string& file) { return read_file(file, kMostLogBytes); };
    parts.push_back(calibration::import_inspector(files, text_of, facts));
  } else {
    for (const std::string& file : files) parts.push_back(imported_log(kind, file, facts));
  }
  Measurements all;
  for (calibration::Imported& part : parts) {
    for (const std::string& note : part.notes) warn(common, note);
    all.append(std::move(part.rows));
  }
  return all;
}

Run declare_import(CLI::App& app) {
  struct Options {
    std::string kind, out;
    std::vector<std::string> files;
    FactOptions facts;
  };
  auto options = std::make_shared<Options>();
  app.add_option(
         "kind", options->kind,
         "nccl-tests (also rccl-tests), nccl-inspector (all ranks' logs of a job), deepep (also HybridEP), "
         "google-benchmark, csv, echo or recording")
      ->required()
      ->check(CLI::IsMember({"nccl-tests", "rccl-tests", "nccl-inspector", "deepep", "google-benchmark",
                             "csv", "echo", "recording"}));
  app.add_option("files", options->files, "Logs, JSON results, tables or folders of realistic recordings")
      ->required();
  app.add_option("-o,--out", options->out, "Measurement file to write (default: standard output)");
  options->facts.declare(app);
  options->facts.declare_dispatch(app);
  return [options](const CommonOptions& common) {
    if (common.format == Format::kCsv)
      throw InputError("found --format csv, expected none: measurement files are JSON");
    const ImportFacts facts = options->facts.facts();
    const bool dispatch = facts.tokens > 0 || facts.hidden > 0 || facts.topk > 0 || facts.experts > 0;
    if (dispatch && options->kind != "deepep")
      throw InputError(
          fmt::format("found --tokens, --hidden, --topk or --experts with {}, which does not look at them; "
                      "expected deepep",
                      options->kind));
    if (facts.op && options->kind != "nccl-tests" && options->kind != "rccl-tests")
      throw InputError(fmt::format(
          "found --op with {}, which does not look at it; expected nccl-tests or rccl-tests", options->kind));
    Measurements all = imported_as(options->kind, options->files, facts, common);
    calibration::take_gpu(all, facts.gpu);
    warn_of_unknown_gpus(all, common);
    const std::string json = calibration::to_json(
        all, "moesim calibrate import " + options->kind + ": " + join(options->files, ", "));
    if (options->out.empty()) {
      print(json);
    } else {
      write_file(options->out, json);
      if (!common.quiet) print(fmt::format("{}: {} rows\n", options->out, all.size()));
    }
    return 0;
  };
}

// Returns the GPUs of the rows, in the order of the device table.
std::vector<const Device*> devices_in(const Measurements& all) {
  std::map<const Device*, bool> seen;
  const auto note = [&](const auto& rows) {
    for (const auto& row : rows)
      if (const Device* device = calibration::device_of_gpu(row.origin.gpu)) seen[device] = true;
  };
  note(all.collectives);
  note(all.gemms);
  note(all.grouped);
  note(all.ffns);
  note(all.dispatches);
  note(all.kernels);
  std::vector<const Device*> result;
  for (const Device& device : calibration::devices())
    if (seen.contains(&device)) result.push_back(&device);
  if (const Device* host = calibration::find_device("host"); seen.contains(host)) result.push_back(host);
  return result;
}

struct FitOptions {
  std::vector<std::string> files;
  std::string out, provenance, leave_out, constants, networks;
  bool all = false, quick = false, complete = false, rows = false;
  FactOptions facts;
};

int print_left_out(const FitOptions& options, const CommonOptions& common, const Measurements& all) {
  const CheckReport report = calibration::leave_out(all, options.leave_out);
  auto inputs = describe_inputs(common);
  inputs["left_out"] = options.leave_out;
  if (options.leave_out == "source" && common.format == Format::kTable) print(left_out_text(report));
  return report_check(common, report, inputs, options.rows ? Detail::kRows : Detail::kMerged, std::nullopt);
}

calibration::FitProfileOptions fit_of(const FitOptions& options, const CommonOptions& common) {
  calibration::FitProfileOptions fit;
  fit.leave_out_shapes = !options.quick;
  fit.networks = !options.all;  // built-in GPU profiles leave traffic between nodes to network profiles
  std::vector<std::string> names;
  names.reserve(options.files.size());
  for (const std::string& file : options.files)
    names.push_back(std::filesystem::path(file).filename().string());
  fit.provenance =
      options.provenance.empty() ? "moesim calibrate fit of " + join(names, ", ") : options.provenance;
  fit.progress = [&common](const std::string& what) {
    if (!common.quiet) say(fmt::format("fitting {}\n", what));
  };
  return fit;
}

int write_networks(const FitOptions& options, const CommonOptions& common, const Measurements& all) {
  if (options.all || !options.out.empty())
    throw InputError("found --networks with --all or --out, expected it alone: it writes network profiles");
  const calibration::FitProfileOptions fit = fit_of(options, common);
  const auto shipped =
      [loaded = std::map<std::string_view, Profile>()](const Device& device) mutable -> const Profile& {
    const auto [at, added] = loaded.try_emplace(device.profile);
    if (added) at->second = Profile::load(std::string(device.profile));
    return at->second;
  };
  const std::vector<models::NetworkProfile> networks =
      calibration::fit_networks(all, shipped, {fit.provenance, fit.progress});
  for (const models::NetworkProfile& network : networks)
    write_file(std::filesystem::path(options.networks) / (network.name + ".json"), network.to_json());
  if (!common.quiet) print(fmt::format("{} networks in {}\n", networks.size(), options.networks));
  return 0;
}

// The GPU that --gpu names, or the only one with rows.
const Device& wanted_device(const FitOptions& options, const Measurements& all) {
  if (!options.facts.gpu.empty()) {
    const Device* named = calibration::device_of_gpu(options.facts.facts().gpu);
    if (!named)
      throw InputError("found --gpu " + in_quotes(options.facts.gpu) +
                       ", expected a GPU with a profile (moesim list profiles) or host");
    return *named;
  }
  const auto found = devices_in(all);
  if (found.size() == 1) return *found.front();
  std::vector<std::string> gpus;
  gpus.reserve(found.size());
  for (const Device* device : found) gpus.emplace_back(device->gpu);
  throw InputError("found rows of " + std::to_string(found.size()) + " GPUs (" + join(gpus, ", ") +
                   "), expected --gpu to choose one, or --all");
}

// Grouped products move the law of dense ones that stands in for them. `unused` receives the rows of the file
// that made no law, by reason.
Profile with_grouped(const Profile& fitted, const Measurements& all,
                     std::map<std::string, std::size_t>& unused) {
  Measurements grouped;
  grouped.grouped = all.grouped;
  RefineReport report;
  Profile profile = calibration::refine(fitted, grouped, report);
  unused = std::move(report.skipped);
  all.each_list([&](const auto& list) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(list)>, decltype(all.grouped)>)
      for (const auto& row : list)
        if (const std::string why = calibration::not_of(fitted, row.origin); !why.empty()) ++unused[why];
  });
  return profile;
}

int write_profile(const FitOptions& options, const CommonOptions& common, const Measurements& all,
                  const calibration::ConstantsByProfile& constants) {
  const Device& wanted = wanted_device(options, all);
  std::map<std::string, std::size_t> unused;
  Profile profile = with_grouped(calibration::fit_profile(wanted, all, fit_of(options, common)), all, unused);
  if (options.complete && !wanted.relative.empty())
    calibration::derive_missing(profile, Profile::load(std::string(wanted.relative)), all);
  calibration::fit_call_overheads(profile, all);
  calibration::add_constants(profile, constants);
  if (profile.sets().empty())
    throw InputError("found too few rows of " + std::string(wanted.gpu) +
                     " to fit a law, expected three sizes of a collective or several shapes of a product");
  write_file(options.out, profile.to_json());
  if (common.quiet) return 0;
  print(fmt::format("{}: {} laws\n", options.out, profile.sets().size()));
  for (const auto& [reason, rows] : unused) print(fmt::format("  skipped {:5}  {}\n", rows, reason));
  return 0;
}

int write_all_profiles(const FitOptions& options, const CommonOptions& common, const Measurements& all,
                       const calibration::ConstantsByProfile& constants) {
  const calibration::FitProfileOptions fit = fit_of(options, common);
  std::map<std::string, Profile> done;
  for (const Device& device : calibration::devices()) {
    Profile profile = calibration::fit_profile(device, all, fit);
    for (const Device* at = &device; !at->relative.empty();) {
      at = calibration::find_device(at->relative);
      calibration::derive_missing(profile, done.at(std::string(at->profile)), all);
    }
    calibration::fit_call_overheads(profile, all);
    calibration::add_constants(profile, constants);
    done.emplace(std::string(device.profile), profile);
    write_file(std::filesystem::path(options.out) / (std::string(device.profile) + ".json"),
               profile.to_json());
  }
  if (!common.quiet) print(fmt::format("{} profiles in {}\n", done.size(), options.out));
  return 0;
}

Run declare_fit(CLI::App& app) {
  auto options = std::make_shared<FitOptions>();
  app.add_option("files", options->files, "Measurement files and tables")->required();
  app.add_option("-o,--out", options->out, "Profile to write, or with --all the folder for all profiles");
  app.add_option(
      "--networks", options->networks,
      "Instead of GPU profiles: folder for network profiles, fitted to rows between nodes of all GPUs");
  app.add_flag("--all", options->all,
               "Fit every known GPU and derive what was not measured from its relatives");
  app.add_option("--constants", options->constants,
                 "Constants with sources to put into the profiles (moesim.constants/1)");
  app.add_flag("--complete", options->complete,
               "Take laws that the rows do not give from the built-in profile of the GPU's relative");
  app.add_flag("--quick", options->quick,
               "Skip the leave-one-shape-out refits that widen intervals for unseen shapes");
  app.add_option("--leave-out", options->leave_out,
                 "Write no profile; refit without some rows, forecast these and print the errors: " +
                     join(calibration::kLeaveOut, ", "))
      ->check(CLI::IsMember(calibration::kLeaveOut));
  app.add_flag("--rows", options->rows, "With --leave-out: one line per row that was left out");
  app.add_option("--provenance", options->provenance, "Date, driver, machine: goes into the profile");
  options->facts.declare(app);
  return [options](const CommonOptions& common) {
    const FitOptions& o = *options;
    Measurements all;
    for (const std::string& file : o.files) all.append(read_any(file, o.facts.facts()));
    if (!o.leave_out.empty()) return print_left_out(o, common, all);
    if (o.out.empty() && o.networks.empty())
      throw InputError("found no --out, expected the profile to write (or --leave-out)");
    calibration::ConstantsByProfile constants;
    if (!o.constants.empty()) constants = calibration::parse_constants(read_file(o.constants), o.constants);
    if (!o.networks.empty()) return write_networks(o, common, all);
    return o.all ? write_all_profiles(o, common, all, constants) : write_profile(o, common, all, constants);
  };
}

struct CheckOptions {
  std::string profile, max_error, network;
  std::vector<std::string> against;
  bool all = false, groups = false, rows = false;
  FactOptions facts;
};

// Rows of other GPUs are not gaps of this profile.
void join_other_gpus(CheckReport& report, const Profile& own) {
  std::size_t others = 0;
  std::erase_if(report.skipped, [&](const auto& entry) {
    const bool other = entry.first.starts_with("no profile for ");
    if (other) others += entry.second;
    return other;
  });
  if (others > 0) report.skipped["rows of other GPUs than " + own.gpu()] = others;
}

int run_check(CheckOptions o, const CommonOptions& common) {
  if (o.all == !o.profile.empty())
    throw InputError("found " + std::string(o.all ? "a profile and --all" : "neither a profile nor --all") +
                     ", expected one of them");
  std::optional<double> max_error;
  if (!o.max_error.empty()) max_error = parse_fraction(o.max_error);
  Measurements rows = read_all_rows(o.against, o.facts.facts(), common);
  calibration::take_gpu(rows, o.facts.facts().gpu);
  // A network's laws are checked with every row's own GPU.
  if (is_network(o.profile)) {
    if (!o.network.empty())
      throw InputError("found the network " + in_quotes(o.profile) + " and --network, expected one of them");
    o.network = std::exchange(o.profile, "");
    o.all = true;
  }
  std::optional<Profile> one;
  if (!o.all) one = Profile::load(o.profile);
  const auto profile_of = [&](const std::string& gpu) -> const Profile* {
    if (!one) return calibration::built_in_of(gpu);
    const Device* device = calibration::device_of_gpu(gpu);
    const bool same = one->gpu() == gpu || (device && device == calibration::device_of_gpu(one->gpu()));
    return same ? &*one : nullptr;
  };
  CheckReport report = calibration::check_rows(rows, profile_of, {o.network});
  if (!o.network.empty() &&
      std::all_of(report.rows.begin(), report.rows.end(),
                  [](const calibration::CheckedRow& row) { return row.network.empty(); }))
    throw InputError("found --network " + in_quotes(o.network) +
                     ", expected rows between nodes: there are none that can be checked");
  if (one) join_other_gpus(report, *one);
  auto inputs = describe_inputs(common);
  inputs["profile"] = o.all ? "each row's own" : o.profile;
  if (!o.network.empty()) inputs["network"] = o.network;
  const Detail detail = o.rows ? Detail::kRows : o.groups ? Detail::kGroups : Detail::kMerged;
  return report_check(common, report, inputs, detail, max_error);
}

Run declare_check(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  app.add_option("profile", options->profile, "Built-in profile or network, or a file of one");
  app.add_flag("--all", options->all, "Check each row against the built-in profile of its own GPU");
  app.add_option("--against", options->against,
                 "Rows that the fit has not seen: whatever 'calibrate import' takes")
      ->required();
  app.add_option(
      "--network", options->network,
      "Network of rows between nodes that name none: one of 'moesim list networks' or a file; else "
      "what their source tells, or the usual one of their GPU");
  app.add_option("--max-error", options->max_error,
                 "Exit 1 if the mean absolute error is larger (10% or 0.1)");
  app.add_flag("--groups", options->groups, "One line per size decade and rank count");
  app.add_flag("--rows", options->rows, "One line per row, with its place and its forecast");
  options->facts.declare(app);
  return [options](const CommonOptions& common) { return run_check(*options, common); };
}

}  // namespace

Verb calibrate_verb() {
  Verb verb;
  verb.name = "calibrate";
  verb.summary = "Measure a machine, import others' results, fit a profile, check it";
  verb.examples =
      "  moesim calibrate import nccl-tests all_gather.log --gpu h200-sxm --out raw.json\n"
      "  moesim calibrate check --all --against collectives.csv --max-error 10%\n";
  verb.declare = [](CLI::App& app) -> Run {
    return declare_commands(
        app, {{"node", "Measure this machine and write a cluster file of it, in one command", declare_node},
              {"measure", "Measure this machine with the programs of calibration/bench", declare_measure},
              {"import", "Turn logs and tables into a measurement file", declare_import},
              {"fit", "Fit a profile to measurements", declare_fit},
              {"refine", "Make a built-in profile one's own with a few rows", declare_refine},
              {"next", "What to measure next, so that a scenario is decided right", declare_next},
              {"check", "Compare a profile with measured rows", declare_check}});
  };
  return verb;
}

}  // namespace moesim::tools

// `moesim calibrate node`: measures the machine (or takes measured rows), finds the profile and the network
// nearest to the rows, refines their laws, checks them on held-out rows, and writes a cluster file for
// compare.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "calibration/check/check.h"
#include "calibration/fit/refine.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/calibrate_rows.h"

namespace moesim::tools {

Columns<calibration::BaseEvidence> columns_of(Of<calibration::BaseEvidence>) {
  using B = calibration::BaseEvidence;
  return {{"name", &B::name},
          {"log_probability", &B::log_probability, "of the rows, up to a constant"},
          {"rows", &B::rows}};
}

namespace {

namespace fs = std::filesystem;
using calibration::BaseEvidence;
using calibration::CheckGroup;
using calibration::CheckReport;
using calibration::Measurements;
using calibration::RefineReport;
using models::NetworkProfile;
using models::Profile;
using nlohmann::ordered_json;

struct Options {
  std::string out = "cluster.json", provenance;
  std::vector<std::string> with;
  MeasureOptions measure;
  FactOptions facts;
};

// A fifth of the rows of each kind is held out from the checked laws: one of five rows, and of the next five
// the one before, since the benchmark cycles through five operations at each size.
constexpr std::size_t kHeld = 5;

struct Parted {
  Measurements own, held;
};

Parted parted(const Measurements& rows) {
  Parted parts;
  const auto part = [](const auto& all, auto& own, auto& held) {
    for (std::size_t i = 0; i < all.size(); ++i)
      ((i + i / kHeld) % kHeld == kHeld / 2 ? held : own).push_back(all[i]);
  };
  part(rows.collectives, parts.own.collectives, parts.held.collectives);
  part(rows.gemms, parts.own.gemms, parts.held.gemms);
  part(rows.grouped, parts.own.grouped, parts.held.grouped);
  part(rows.ffns, parts.own.ffns, parts.held.ffns);
  part(rows.dispatches, parts.own.dispatches, parts.held.dispatches);
  part(rows.kernels, parts.own.kernels, parts.held.kernels);
  parts.own.machine = rows.machine;
  return parts;
}

// A base refined by all rows, and the check of laws refined by four fifths on the others.
struct Made {
  std::vector<BaseEvidence> evidence;
  RefineReport report;
  std::string file;
  CheckGroup before, after;
};

std::string because_of(const Options& options, const std::string& base, const std::string& before) {
  return fmt::format("moesim calibrate node: {} with the rows of this machine{}. Before: {}", base,
                     options.provenance.empty() ? "" : " (" + options.provenance + ")", before);
}

Made make_profile(const Measurements& rows, const Options& options, const std::string& file) {
  Made made;
  made.file = file;
  made.evidence = profile_evidence(rows);
  const Profile base = Profile::load(made.evidence.front().name);
  // A GPU without its own profile uses the nearest one's.
  const std::string gpu = *gpus_of(rows).begin();
  const Measurements own = calibration::device_of_gpu(gpu) ? rows : calibration::renamed(rows, base.gpu());
  const Parted parts = parted(own);
  RefineReport ignored;
  const Profile trial = calibration::refine(base, parts.own, ignored);
  const auto checked = [&](const Profile& profile) {
    return calibration::check_rows(parts.held, [&](const std::string&) { return &profile; }).total();
  };
  made.before = checked(base);
  made.after = checked(trial);
  Profile mine = calibration::refine(base, own, made.report);
  mine.describe(base.name(), base.gpu(), because_of(options, base.name(), base.provenance()), base.gaps());
  write_file(file, mine.to_json());
  return made;
}

Made make_network(const Measurements& rows, const Options& options, const std::string& file) {
  Made made;
  made.file = file;
  NetworkProfile mine = nearest_network(rows, made.evidence, made.report);
  const NetworkProfile base = NetworkProfile::load(made.evidence.front().name);
  const Parted parts = parted(rows);
  RefineReport ignored;
  std::vector<BaseEvidence> again;
  const NetworkProfile trial = nearest_network(parts.own, again, ignored);
  const auto checked = [&](const NetworkProfile& network, const std::string& name) {
    const fs::path at = fs::path(file).string() + ".trial";
    if (name.empty()) write_file(at, network.to_json());
    const CheckReport report =
        calibration::check_rows(parts.held, calibration::built_in_of, {name.empty() ? at.string() : name});
    std::error_code error;
    fs::remove(at, error);
    return report.total();
  };
  made.before = checked(base, base.name);
  made.after = checked(trial, "");
  mine.provenance = because_of(options, base.name, base.provenance);
  write_file(file, mine.to_json());
  return made;
}

std::string line_of(const char* what, const Made& made) {
  std::string text = fmt::format("{:8} {}\n", what, because(made.evidence));
  text += fmt::format("         {}: {} rows moved {} laws\n", made.file, made.report.rows,
                      made.report.laws.size());
  if (made.after.rows > 0)
    text += fmt::format(
        "         of {} rows left out: mean |error| {:.1f} % by the base, {:.1f} % by laws of the others, "
        "{:.0f} % "
        "inside 90 %\n",
        made.after.rows, 100 * made.before.mean_abs_error, 100 * made.after.mean_abs_error,
        100 * made.after.coverage);
  for (const auto& [reason, rows] : made.report.skipped)
    text += fmt::format("         skipped {:5}  {}\n", rows, reason);
  return text;
}

Columns<Made> columns_of(Of<Made>) {
  const auto after = [](auto member) { return [member](const Made& m) { return m.after.*member; }; };
  Columns<Made> all{
      {"base",
       {{"name", [](const Made& m) { return m.evidence.front().name; }}, {"evidence", &Made::evidence}}},
      {"file", &Made::file, "that was written"},
      {"rows", [](const Made& m) { return m.report.rows; }, "that moved a law"},
      {"laws", [](const Made& m) { return m.report.laws.size(); }, "that moved"},
      {"left_out",
       {{"rows", after(&CheckGroup::rows)},
        {"mean_abs_error_before", [](const Made& m) { return m.before.mean_abs_error; }},
        {"mean_abs_error", after(&CheckGroup::mean_abs_error)},
        {"coverage", after(&CheckGroup::coverage), "inside their 90 % interval"}},
       "a fifth of the rows, by the base and by laws of the others"}};
  return all.list("skipped", skipped_columns(), [](const Made& m) { return m.report.skipped; });
}

struct MadeCluster {
  std::string cluster;
  Made profile;
  std::optional<Made> network;
  std::string next;
};

Columns<MadeCluster> columns_of(Of<MadeCluster>) {
  using M = MadeCluster;
  return {{"cluster", &M::cluster, "the cluster file that was written"},
          {"profile", &M::profile},
          {"network?", &M::network, "where rows between nodes are there"},
          {"next", &M::next, "the command that uses the cluster"}};
}

int run(const Options& options, const CommonOptions& common) {
  std::vector<std::string> files = options.with;
  if (files.empty()) files.push_back(measure_machine(options.measure, common));
  Measurements rows = read_all_rows(files, options.facts.facts(), common);
  calibration::take_gpu(rows, options.facts.facts().gpu);
  const auto gpus = gpus_of(rows);
  if (gpus.size() != 1)
    throw InputError(fmt::format("found rows of {} GPUs ({}), expected one machine's", gpus.size(),
                                 join(std::vector<std::string>(gpus.begin(), gpus.end()), ", ")));
  const RowsByPlace parts = by_place(rows);
  if (parts.inside.size() == 0)
    throw InputError("found no row inside a node, expected some: the cluster's GPU profile comes from them");
  const std::string stem = fs::path(options.out).replace_extension().string();
  const Made profile = make_profile(parts.inside, options, stem + ".profile.json");
  const Profile mine = Profile::load(profile.file);
  std::vector<std::pair<const char*, Made>> made = {{"GPU", profile}};
  int nodes = 1, gpus_per_node = 0;
  for (const auto& row : rows.collectives) {
    nodes = std::max(nodes, row.nodes);
    gpus_per_node = std::max(gpus_per_node, row.gpus_per_node);
  }
  if (gpus_per_node == 0) gpus_per_node = mine.device().gpus_per_node;
  ordered_json cluster = {{"profile", profile.file}, {"nodes", nodes}, {"gpus_per_node", gpus_per_node}};
  if (parts.between.size() > 0) {
    made.emplace_back("network", make_network(parts.between, options, stem + ".network.json"));
    cluster["network"] = made.back().second.file;
  }
  write_file(options.out, json_text(cluster, 1));
  const std::string next =
      fmt::format("moesim compare --model qwen3-30b-a3b --cluster {} --ep {} --dispatcher all", options.out,
                  nodes * gpus_per_node);
  if (common.format == Format::kJson) {
    const bool network = made.size() > 1;
    print_result("calibrate-node", describe_inputs(common),
                 json_of(MadeCluster{options.out, profile,
                                     network ? std::optional(made.back().second) : std::nullopt, next}));
    return 0;
  }
  std::string text;
  for (const auto& [what, one] : made) text += line_of(what, one);
  print(text + fmt::format("cluster  {}: {} node{} of {} {}\nnext:    {}\n", options.out, nodes,
                           nodes > 1 ? "s" : "", gpus_per_node, *gpus.begin(), next));
  return 0;
}

}  // namespace

const ResultSchema kCalibrateNodeSchema("calibrate-node", "calibrate node", schema_of<MadeCluster>);

Run declare_node(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("-o,--out", options->out, "Cluster file to write; profile and network lie beside it")
      ->capture_default_str();
  app.add_option("--with", options->with,
                 "Rows that were measured already: whatever 'calibrate import' takes (default: measure)");
  app.add_option("--raw", options->measure.out,
                 "Folder for what is measured; what is there already is not measured again")
      ->capture_default_str();
  declare_bench(app, options->measure);
  app.add_option("--provenance", options->provenance, "Date, driver, machine: goes into the profile");
  options->facts.declare(app);
  options->facts.declare_dispatch(app);
  return [options](const CommonOptions& common) {
    if (common.format == Format::kCsv)
      throw InputError("calibrate node: found --format csv, expected table or json");
    if (!options->with.empty() &&
        (options->measure.brief || options->measure.minutes > 0 || options->measure.ranks > 1 ||
         !options->measure.program.empty() || !options->measure.bench.empty()))
      throw InputError("found --with and options of measuring, expected one of them");
    return run(*options, common);
  };
}

}  // namespace moesim::tools

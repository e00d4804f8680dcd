#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/devices.h"
#include "models/hardware/cluster.h"
#include "models/hardware/network.h"
#include "models/workload/scenario.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/people.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/calibrate_rows.h"

namespace moesim::tools {

Columns<calibration::RefinedLaw> columns_of(Of<calibration::RefinedLaw>) {
  using L = calibration::RefinedLaw;
  return {{"key", &L::key},
          {"moved_sigma",
           &L::moved_sigma,
           "change of the log time in standard deviations of what was known of another machine, signed",
           {"sigma", [](double sigma) { return fmt::format("{:+.1f}", sigma); }}},
          {"own_share", &L::own_share,
           "of the variance over what the law is for, how much the rows took away", share_head("from rows")},
          {"moved", [](const L& l) { return std::expm1(l.moved); }, "mean change of the time, a share of it",
           share_head("moved", 1, true)},
          {"rows", &L::rows, "", "rows"},
          {"outliers", &L::outliers, "rows that count less than half", "far off"},
          {"error_before", &L::error_before, "mean |log error| of the rows under the base",
           share_head("error", 1)},
          {"error_left_out", &L::error_left_out, "the same of each row under a law of the others",
           share_head("now", 1)},
          {"added", &L::added, "the base had no such law"},
          {"believed", &L::believed, "false: no law of this kind reaches the rows, and the base's stays"}};
}

namespace {

using calibration::Device;
using calibration::Measurements;
using calibration::RefinedLaw;
using calibration::RefineReport;
using models::Cluster;
using models::NetworkProfile;
using models::Profile;
using nlohmann::ordered_json;

struct Options {
  std::string base, of, out, scenario, provenance;
  std::vector<calibration::BaseEvidence> evidence;  // where the base was not given
  std::vector<std::string> with;
  FactOptions facts;
};

// The winner of a scenario before and after.
struct Flip {
  std::string scenario;
  std::string before, after;
  std::optional<double> probability_before, probability_after;
  std::string_view verdict_before, verdict_after;

  bool flips() const { return before != after; }
};

struct Side {
  const std::string& winner;
  const std::optional<double>& probability;
  std::string_view verdict;
};

Columns<Side> columns_of(Of<Side>) {
  return {{"winner", [](const Side& s) { return s.winner; }},
          {"probability", [](const Side& s) { return s.probability; }, "that it is the fastest"},
          {"verdict", &Side::verdict}};
}

Columns<Flip> columns_of(Of<Flip>) {
  return {{"scenario", &Flip::scenario},
          {"before",
           [](const Flip& f) {
             return Side{f.before, f.probability_before, f.verdict_before};
           }},
          {"after",
           [](const Flip& f) {
             return Side{f.after, f.probability_after, f.verdict_after};
           }},
          {"flips", &Flip::flips}};
}

// Replaces a cluster's laws by the refined ones.
using Refined = std::function<Cluster(Cluster)>;

Flip flip_of(const std::string& name, const models::Scenario& scenario, const Refined& refined) {
  const auto asked = [&](const Cluster& cluster) {
    models::Scenario one = scenario;
    one.cluster = std::make_shared<const Cluster>(cluster);
    return ask(std::move(one), models::AnswerOptions{.each = true});
  };
  const Comparison before = asked(*scenario.cluster), after = asked(refined(*scenario.cluster));
  const auto winner = [](const Comparison& e) {
    return e.winner() ? e.winner()->dispatcher : std::string("none");
  };
  return {name,
          winner(before),
          winner(after),
          before.decision.probability(),
          after.decision.probability(),
          models::name_of(before.decision.verdict),
          models::name_of(after.decision.verdict)};
}

// Without --scenario: a layer of three models under the usual dispatchers, at two lengths of the sequence, on
// one node of the GPU, or on two nodes of the network.
std::vector<Flip> usual_flips(const ordered_json& cluster, int ep, const Refined& refined) {
  constexpr int kMostExperts = 64;  // of the first model
  std::vector<Flip> flips;
  for (const char* model : {"qwen2-57b-a14b", "qwen3-30b-a3b", "deepseek-v3"})
    for (const int seq : {1024, 4096}) {
      const ordered_json text = {{"model", model},
                                 {"cluster", cluster},
                                 {"parallel", {{"ep", std::min(ep, kMostExperts)}, {"seq", seq}}},
                                 {"dispatcher", "allgather,alltoall,flex-deepep"},
                                 {"routing", "zipf:0.5"}};
      models::Scenario scenario =
          models::Scenario::parse(JsonNode::parse(text.dump(), "the usual scenarios"));
      flips.push_back(flip_of(fmt::format("{}, EP {}, sequence {}", model, std::min(ep, kMostExperts), seq),
                              scenario, refined));
    }
  return flips;
}

// Returns the suggested next command.
std::string next_command(const Options& options) {
  return is_network(options.base)
             ? fmt::format(
                   "moesim calibrate check {} --against OTHER_ROWS, or a cluster with \"network\": \"{}\"",
                   options.out, options.out)
             : fmt::format(
                   "moesim calibrate check {} --against OTHER_ROWS, or a cluster with \"profile\": \"{}\"",
                   options.out, options.out);
}

std::string text_of(const RefineReport& report, const std::vector<Flip>& flips, const Options& options) {
  Columns<RefinedLaw> columns{{"",
                               [](const RefinedLaw& l) {
                                 return l.key + (!l.believed ? " (not believed)" : l.added ? " (new)" : "");
                               },
                               "", "law"}};
  columns.add(
      columns_of(Of<RefinedLaw>{})
          .some({"rows", "outliers", "moved", "moved_sigma", "own_share", "error_before", "error_left_out"}));
  std::string text = table_of(columns, report.laws).text();
  if (!options.evidence.empty()) text += "\nbase: " + because(options.evidence) + "\n";
  const std::string& out = options.out;
  int moved_rows = 0, moved_laws = 0;
  for (const RefinedLaw& law : report.laws)
    if (law.believed) moved_rows += law.rows, ++moved_laws;
  text += fmt::format(
      "\n{}: {} rows moved {} laws, the others are as they were\n"
      "sigma: of what was known of another machine; from rows: share of the variance that the rows removed; error: "
      "of the rows before, and by a law of the others\n",
      out, moved_rows, moved_laws);
  for (const auto& [reason, rows] : report.skipped) text += fmt::format("  skipped {:5}  {}\n", rows, reason);
  const std::string next = "next: " + next_command(options) + "\n";
  if (flips.empty()) return text + next;
  const Columns<Flip> decisions{
      {"", &Flip::scenario, "", "decision"},
      {"", &Flip::before, "", "before"},
      {"", &Flip::probability_before, "", {"P", 2}},
      {"", &Flip::after, "", "now"},
      {"", &Flip::probability_after, "", {"P", 2}},
      {"", [](const Flip& f) { return f.flips() ? "flips" : "stays"; }, "", "winner"}};
  return text + "\n" + table_of(decisions, flips).text() + "\n" + next;
}

struct RefinedProfile {
  const RefineReport& report;
  const std::vector<Flip>& flips;
  const Options& options;
};

Columns<RefinedProfile> columns_of(Of<RefinedProfile>) {
  using R = RefinedProfile;
  Columns<R> all{
      {"out", [](const R& r) { return r.options.out; }},
      {"base",
       {{"name", [](const R& r) { return r.options.base; }},
        {"evidence?", [](const R& r) { return where(!r.options.evidence.empty(), r.options.evidence); },
         "of each candidate, where none was given"}}},
      {"next", [](const R& r) { return next_command(r.options); }, "the command that uses the result"},
      {"rows", [](const R& r) { return r.report.rows; }, "of the laws below"},
      {"laws", [](const R& r) { return r.report.laws; }},
      {"decisions", [](const R& r) { return r.flips; }}};
  return all.list("skipped", skipped_columns(), [](const R& r) { return r.report.skipped; });
}

// Throws InputError where no row refined a law.
void check_used(const RefineReport& report, const std::string& base) {
  if (!report.laws.empty()) return;
  std::vector<std::string> reasons;
  for (const auto& [reason, rows] : report.skipped)
    reasons.push_back(fmt::format("{} ({} rows)", reason, rows));
  throw InputError("found no row that speaks of " + base +
                   (reasons.empty() ? std::string() : ": " + join(reasons, "; ")));
}

std::vector<Flip> flips_of(const Options& options, const CommonOptions& common, const ordered_json& cluster,
                           int ep, const Refined& refined,
                           const std::function<bool(const Cluster&)>& uses_base) {
  if (options.scenario.empty()) return usual_flips(cluster, ep, refined);
  models::Scenario scenario = settle(question_of_file(options.scenario, common), common).scenario;
  if (!scenario.cluster || !uses_base(*scenario.cluster))
    throw InputError("found the scenario " + in_quotes(options.scenario) + " on " +
                     (scenario.cluster ? in_quotes(scenario.cluster->name) : "no cluster") +
                     ", expected a cluster with " + options.base);
  return {flip_of(options.scenario, scenario, refined)};
}

// Returns the gaps that the user's rows have not filled.
std::vector<std::string> gaps_left(const Profile& profile, const RefineReport& report) {
  const auto has = [&](std::string_view prefix) {
    return std::any_of(report.laws.begin(), report.laws.end(),
                       [&](const RefinedLaw& law) { return law.key.starts_with(prefix); });
  };
  std::vector<std::string> gaps;
  for (const std::string& gap : profile.gaps())
    if (!(gap.starts_with("launch.kernel") && has("machine/launch") && has("machine/host_sync")) &&
        !(gap.starts_with("overlap:") && has("machine/compute_under_communication")) &&
        !(gap.starts_with("memory-bound kernels:") && has("kernel/")))
      gaps.push_back(gap);
  return gaps;
}

// Sets the base nearest to the rows, of their kind.
void choose_base(Options& options, Measurements& rows) {
  RowsByPlace parts = by_place(rows);
  const std::size_t inside = parts.inside.size(), between = parts.between.size();
  if (options.of.empty()) {
    if (inside > 0 && between > 0)
      throw InputError(fmt::format(
          "found {} rows inside a node and {} between nodes and no base, expected --of gpu or --of "
          "network (a profile and a network are two files)",
          inside, between));
    options.of = between > 0 ? "network" : "gpu";
  }
  const bool network = options.of == "network";
  if ((network ? between : inside) == 0)
    throw InputError("found --of " + options.of + ", expected rows " +
                     (network ? "between nodes" : "inside a node"));
  if (network) {
    RefineReport ignored;
    nearest_network(parts.between, options.evidence, ignored);
  } else {
    options.evidence = profile_evidence(parts.inside);
  }
  options.base = options.evidence.front().name;
  // A GPU without a profile uses the nearest one's.
  if (!network) {
    const auto gpus = gpus_of(rows);
    const bool known = std::any_of(gpus.begin(), gpus.end(), [](const std::string& gpu) {
      return calibration::device_of_gpu(gpu) != nullptr;
    });
    if (!known) rows = calibration::renamed(std::move(rows), Profile::load(options.base).gpu());
  }
}

int run(Options options, const CommonOptions& common) {
  calibration::ImportFacts facts = options.facts.facts();
  std::optional<Profile> profile;
  if (!options.base.empty() && !is_network(options.base)) {
    profile = Profile::load(options.base);
    if (facts.gpu.empty()) facts.gpu = profile->gpu();
  }
  std::vector<std::string> names;
  for (const std::string& file : options.with)
    names.push_back(std::filesystem::path(file).filename().string());
  Measurements rows = read_all_rows(options.with, facts, common);
  calibration::take_gpu(rows, options.facts.facts().gpu);
  if (options.base.empty()) {
    choose_base(options, rows);
    if (options.of == "gpu") profile = Profile::load(options.base);
  } else if (!options.of.empty()) {
    throw InputError("found --of with a base, expected one of them");
  }
  const bool network = is_network(options.base);
  RefineReport report;
  std::vector<Flip> flips;
  std::string written;
  const auto provenance = [&](const std::string& before) {
    return fmt::format("moesim calibrate refine {} with {}{}. Before: {}", options.base, join(names, ", "),
                       options.provenance.empty() ? "" : " (" + options.provenance + ")", before);
  };
  if (network) {
    const NetworkProfile base = NetworkProfile::load(options.base);
    std::vector<calibration::BaseEvidence> again;
    NetworkProfile mine = options.evidence.empty()
                              ? calibration::refine(base, rows, calibration::built_in, report)
                              : nearest_network(rows, again, report);
    check_used(report, options.base);
    mine.provenance = provenance(base.provenance);
    written = mine.to_json();
    const Device* device = nullptr;
    for (const auto& row : rows.collectives)
      device = device ? device : calibration::device_of_gpu(row.origin.gpu);
    for (const auto& row : rows.dispatches)
      device = device ? device : calibration::device_of_gpu(row.origin.gpu);
    flips = flips_of(
        options, common, {{"profile", std::string(device->profile)}, {"nodes", 2}, {"network", options.base}},
        2 * base.gpus_per_node,
        [&](Cluster cluster) {
          models::use_network(cluster, mine);
          return cluster;
        },
        [&](const Cluster& cluster) {
          return cluster.network == options.base || cluster.network == base.name;
        });
  } else {
    Profile mine = calibration::refine(*profile, rows, report);
    check_used(report, options.base);
    mine.describe(profile->name(), profile->gpu(), provenance(profile->provenance()),
                  gaps_left(mine, report));
    written = mine.to_json();
    flips = flips_of(
        options, common, {{"profile", options.base}, {"nodes", 1}}, profile->device().gpus_per_node,
        [&](Cluster cluster) {
          cluster.profile = mine;
          if (!cluster.network.empty()) models::use_network(cluster, NetworkProfile::load(cluster.network));
          return cluster;
        },
        [&](const Cluster& cluster) { return cluster.profile.name() == profile->name(); });
  }
  write_file(options.out, written);
  for (const RefinedLaw& law : report.laws)
    if (!law.believed)
      warn(common,
           fmt::format("{}: its {} rows take {:.3g} times the base's forecast, which no law of this kind "
                       "reaches; the law stays as it was: check the unit, the GPU and the ranks of the rows",
                       law.key, law.rows, std::exp(law.off)));
  auto inputs = describe_inputs(common);
  inputs["base"] = options.base;
  if (common.format == Format::kJson)
    print_result("calibrate-refine", inputs, json_of(RefinedProfile{report, flips, options}));
  else
    print(text_of(report, flips, options));
  const auto believed = [](const RefinedLaw& law) { return law.believed; };
  return std::ranges::all_of(report.laws, believed) ? 0 : 1;
}

}  // namespace

Run declare_refine(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("base", options->base,
                 "Profile or network that is nearest: a built-in name or a file (default: the one under "
                 "which the rows are "
                 "most likely)");
  app.add_option("--of", options->of,
                 "Without a base, of rows inside a node and between nodes: what to refine")
      ->check(CLI::IsMember({"gpu", "network"}));
  app.add_option("--with", options->with, "Rows of one's own machine: whatever 'calibrate import' takes")
      ->required();
  app.add_option("-o,--out", options->out, "Profile to write")->required();
  app.add_option("--scenario", options->scenario,
                 "Scenario whose decision may flip (default: six layers of three models)");
  app.add_option("--provenance", options->provenance, "Date, driver, machine: goes into the profile");
  options->facts.declare(app);
  options->facts.declare_dispatch(app);
  return [options](const CommonOptions& common) {
    if (common.format == Format::kCsv)
      throw InputError("calibrate refine: found --format csv, expected table or json");
    return run(*options, common);
  };
}

const ResultSchema kCalibrateRefineSchema("calibrate-refine", "calibrate refine", schema_of<RefinedProfile>);

}  // namespace moesim::tools

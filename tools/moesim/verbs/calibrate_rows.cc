#include "tools/moesim/verbs/calibrate_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/row_laws.h"
#include "models/hardware/network.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

using calibration::built_in;
using calibration::Device;
using calibration::ImportFacts;
using calibration::Measurements;

// Reads any measurement file: our JSON, a published table, an Echo table, a log.
Measurements read_any(const std::string& path, const ImportFacts& facts) {
  const std::string text = read_file(path, std::uint64_t{1} << 30);
  if (calibration::is_echo_table(text)) {
    ImportFacts echo = facts;
    // The data set keeps the tables in folders named after the GPU.
    if (const Device* device = calibration::device_of_path(path); device && echo.gpu.empty())
      echo.gpu = device->gpu;
    return calibration::import_echo(text, path, echo);
  }
  return calibration::read_measurements(path);
}

Measurements read_rows_or_logs(const std::string& path, const ImportFacts& facts,
                               const CommonOptions& common) {
  const std::string text = read_file(path, std::uint64_t{1} << 30);
  if (calibration::is_echo_table(text)) return read_any(path, facts);
  calibration::Imported imported = calibration::import_any(text, path, facts);
  for (const std::string& note : imported.notes) warn(common, note);
  return std::move(imported.rows);
}

Measurements read_all_rows(const std::vector<std::string>& paths, const ImportFacts& facts,
                           const CommonOptions& common) {
  Measurements rows;
  std::vector<std::string> of_inspector;
  const auto text_of = [](const std::string& path) { return read_file(path, std::uint64_t{1} << 30); };
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
      rows.append(import_recording(path, facts));
    else if (calibration::is_inspector_log(text_of(path)))
      of_inspector.push_back(path);
    else
      rows.append(read_rows_or_logs(path, facts, common));
  }
  if (of_inspector.empty()) return rows;
  calibration::Imported imported = calibration::import_inspector(of_inspector, text_of, facts);
  for (const std::string& note : imported.notes) warn(common, note);
  rows.append(std::move(imported.rows));
  return rows;
}

bool is_network(const std::string& name_or_path) {
  const auto& names = models::NetworkProfile::names();
  if (std::find(names.begin(), names.end(), name_or_path) != names.end()) return true;
  const auto& profiles = models::Profile::names();
  if (std::find(profiles.begin(), profiles.end(), name_or_path) != profiles.end() ||
      !path_exists(name_or_path))
    return false;
  return read_file(name_or_path, std::uint64_t{1} << 30).find("\"moesim.network/") != std::string::npos;
}

RowsByPlace by_place(const Measurements& rows) {
  RowsByPlace parts;
  parts.inside = rows;
  const auto move_out = [](auto& from, auto& to, const auto& between) {
    const auto first =
        std::stable_partition(from.begin(), from.end(), [&](const auto& row) { return !between(row); });
    to.insert(to.end(), first, from.end());
    from.erase(first, from.end());
  };
  move_out(parts.inside.collectives, parts.between.collectives, [](const calibration::CollectiveRow& row) {
    const Device* device = calibration::device_of_gpu(row.origin.gpu);
    return device ? !calibration::inside_domain(row, built_in(*device)) : row.nodes > 1;
  });
  move_out(parts.inside.dispatches, parts.between.dispatches,
           [](const calibration::DispatchRow& row) { return calibration::across_domains(row); });
  return parts;
}

std::set<std::string> gpus_of(const Measurements& rows) {
  std::set<std::string> gpus;
  rows.each_list([&](const auto& list) {
    for (const auto& row : list) gpus.insert(row.origin.gpu);
  });
  return gpus;
}

void warn_of_unknown_gpus(const Measurements& rows, const CommonOptions& common) {
  for (const std::string& gpu : gpus_of(rows))
    if (!calibration::device_of_gpu(gpu))
      warn(common, fmt::format("found rows of {}, a GPU without a profile: --gpu says of which one they are "
                               "(moesim list profiles)",
                               in_quotes(gpu)));
}

std::vector<calibration::BaseEvidence> profile_evidence(const Measurements& rows) {
  std::set<const Device*> own;
  for (const std::string& gpu : gpus_of(rows))
    if (const Device* device = calibration::device_of_gpu(gpu)) own.insert(device);
  const auto& names = models::Profile::names();
  std::vector<models::Profile> candidates;
  for (const Device& device : calibration::devices())
    if ((own.empty() || own.contains(&device)) &&
        std::find(names.begin(), names.end(), device.profile) != names.end())
      candidates.push_back(built_in(device));
  if (candidates.empty())
    throw InputError("found rows of " + *gpus_of(rows).begin() +
                     ", which has no built-in profile to move, expected a GPU's (calibrate fit makes a "
                     "profile of rows alone)");
  return calibration::evidence_of(candidates, rows);
}

models::NetworkProfile nearest_network(const Measurements& rows,
                                       std::vector<calibration::BaseEvidence>& evidence,
                                       calibration::RefineReport& report) {
  return calibration::refine_nearest(calibration::possible_networks(rows), rows, built_in, evidence, report);
}

std::string because(const std::vector<calibration::BaseEvidence>& evidence) {
  const auto& best = evidence.front();
  if (evidence.size() == 1) return best.name + ", the only one that the rows can be of";
  const auto& next = evidence[1];
  if (next.rows < best.rows)
    return fmt::format("{}, by the rows: it has laws for {} of them, {} for {}", best.name, best.rows,
                       next.name, next.rows);
  const double likelier = std::exp(best.log_probability - next.log_probability);
  return fmt::format("{}, by {} rows: {} times as likely as {}", best.name, best.rows,
                     likelier < 1e6 ? fmt::format("{:.2g}", likelier) : "over a million", next.name);
}

void FactOptions::declare(CLI::App& app, bool sizes) {
  app.add_option("--gpu", gpu,
                 "GPU the rows were measured on, as a profile, a table or its driver names it (NVIDIA H200)");
  app.add_option("--source", source, "Who measured; goes into the provenance");
  app.add_option("--library", library, "Library version where the files do not name it (NCCL 2.18.6)");
  app.add_option("--op", op, "Operation of a log that does not name its test (all_gather, alltoall, ...)");
  if (sizes)
    app.add_option("--nodes", nodes, "Nodes of a log without rank lines")->check(CLI::Range(1, 1 << 20));
  app.add_option("--gpus-per-node", gpus_per_node, "GPUs per node of a log without rank lines")
      ->check(CLI::Range(1, 1024));
}

void FactOptions::declare_dispatch(CLI::App& app, bool sizes) {
  const auto size = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24).description(""));
  };
  size("--tokens", tokens, "Tokens a rank sends, of a deepep log that does not say");
  size("--hidden", hidden, "Width of a token, of a deepep log that does not say");
  size("--topk", topk, "Experts of a token, of a deepep log that does not say");
  if (sizes) size("--experts", experts, "Experts of all ranks, of a deepep log that does not say");
}

ImportFacts FactOptions::facts() const {
  ImportFacts facts;
  facts.tokens = tokens, facts.hidden = hidden, facts.topk = topk, facts.experts = experts;
  const Device* device = calibration::device_of_gpu(gpu);
  facts.gpu = device && device->profile == gpu ? std::string(device->gpu) : calibration::table_name(gpu);
  facts.source = source;
  facts.library = library;
  facts.nodes = nodes;
  facts.gpus_per_node = gpus_per_node;
  if (!op.empty()) {
    facts.op = calibration::op_named(op);
    if (!facts.op)
      throw InputError("found --op " + in_quotes(op) +
                       ", expected all_gather, reduce_scatter, all_reduce, alltoall, sendrecv or broadcast");
  }
  return facts;
}

Columns<std::pair<const std::string, std::size_t>> skipped_columns() {
  using Skipped = std::pair<const std::string, std::size_t>;
  return {{"reason", &Skipped::first}, {"rows", &Skipped::second}};
}

}  // namespace moesim::tools

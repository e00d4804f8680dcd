#include "tools/moesim/verbs/calibrate_rows.h"

#include <CLI/CLI.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/logged_row.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

using calibration::Device;
using calibration::ImportFacts;
using calibration::Measurements;

// Any measurement that a file can hold: our JSON, a published table, an Echo table, a log.
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

void FactOptions::declare(CLI::App& app) {
  app.add_option("--gpu", gpu, "GPU the rows were measured on (H200-SXM5-141GB, or a profile's name)");
  app.add_option("--source", source, "Who measured; goes into the provenance");
  app.add_option("--library", library, "Library version where the files do not name it (NCCL 2.18.6)");
  app.add_option("--op", op, "Operation of a log that does not name its test (all_gather, alltoall, ...)");
  app.add_option("--nodes", nodes, "Nodes of a log without rank lines")->check(CLI::Range(1, 1 << 20));
  app.add_option("--gpus-per-node", gpus_per_node, "GPUs per node of a log without rank lines")
      ->check(CLI::Range(1, 1024));
}

void FactOptions::declare_dispatch(CLI::App& app) {
  const auto size = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24).description(""));
  };
  size("--tokens", tokens, "Tokens a rank sends, of a deepep log that does not say");
  size("--hidden", hidden, "Width of a token, of a deepep log that does not say");
  size("--topk", topk, "Experts of a token, of a deepep log that does not say");
  size("--experts", experts, "Experts of all ranks, of a deepep log that does not say");
}

ImportFacts FactOptions::facts() const {
  ImportFacts facts;
  facts.gpu = gpu;
  facts.tokens = tokens, facts.hidden = hidden, facts.topk = topk, facts.experts = experts;
  if (const Device* device = calibration::device_of_gpu(gpu); device && device->profile == gpu)
    facts.gpu = device->gpu;
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

}  // namespace moesim::tools

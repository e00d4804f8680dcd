// What every `moesim calibrate` command takes: files of measured rows, and the facts that a log does not say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// Options of the facts.
struct FactOptions {
  std::string gpu, source, op, library;
  int nodes = 0, gpus_per_node = 0;
  std::int64_t tokens = 0, hidden = 0, topk = 0, experts = 0;

  void declare(CLI::App& app);
  void declare_dispatch(CLI::App& app);  // of dispatch and combine kernels
  // Throws InputError for an unknown operation.
  calibration::ImportFacts facts() const;
};

// Rows of a file of ours, a published table or an Echo table.
calibration::Measurements read_any(const std::string& path, const calibration::ImportFacts& facts);
// The same, and logs and results of other tools, told by their content (calibration/rows/import_logs.h). What
// was left out is warned of.
calibration::Measurements read_rows_or_logs(const std::string& path, const calibration::ImportFacts& facts,
                                            const CommonOptions& common);

}  // namespace moesim::tools

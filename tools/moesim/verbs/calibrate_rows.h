// What every `moesim calibrate` command takes: files of measured rows, and the facts that a log does not say.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "calibration/fit/choose_base.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"
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

// All files' rows: also folders of realistic recordings, and the logs that NCCL Inspector's ranks wrote of
// one job, which belong together.
calibration::Measurements read_all_rows(const std::vector<std::string>& paths,
                                        const calibration::ImportFacts& facts, const CommonOptions& common);

// Whether a base is a network's: a built-in name, or a file of one.
bool is_network(const std::string& name_or_path);

// A built-in profile of a device, loaded once.
const models::Profile& built_in(const calibration::Device& device);

// Rows by what they are of: inside a scale-up domain of their GPU or of a GPU alone, and between nodes. A GPU
// without a profile has domains of a node.
struct RowsByPlace {
  calibration::Measurements inside, between;
};
RowsByPlace by_place(const calibration::Measurements& rows);

// The names of the GPUs that rows are of.
std::set<std::string> gpus_of(const calibration::Measurements& rows);

// What rows are nearest to, best first; of a GPU those profiles that are its own, all of them where none is.
std::vector<calibration::BaseEvidence> profile_evidence(const calibration::Measurements& rows);
// The network that rows between nodes are nearest to, moved by them (calibration/fit/choose_base.h).
models::NetworkProfile nearest_network(const calibration::Measurements& rows,
                                       std::vector<calibration::BaseEvidence>& evidence,
                                       calibration::RefineReport& report);
// "infiniband-ndr, by the rows: e^12 times as likely as efa-p5"
std::string because(const std::vector<calibration::BaseEvidence>& evidence);

}  // namespace moesim::tools

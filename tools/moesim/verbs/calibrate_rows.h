// Inputs of all `moesim calibrate` commands: files of measured rows, and facts that logs do not contain.
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

// Options for these facts.
struct FactOptions {
  std::string gpu, source, op, library;
  int nodes = 0, gpus_per_node = 0;
  std::int64_t tokens = 0, hidden = 0, topk = 0, experts = 0;

  void declare(CLI::App& app);
  void declare_dispatch(CLI::App& app);  // for dispatch and combine kernels
  // Throws InputError for an unknown operation.
  calibration::ImportFacts facts() const;
};

// Reads rows of a file of ours, a published table or an Echo table.
calibration::Measurements read_any(const std::string& path, const calibration::ImportFacts& facts);
// Likewise, and logs and results of other tools, recognised by content (calibration/rows/import_logs.h).
// Warns of rows left out.
calibration::Measurements read_rows_or_logs(const std::string& path, const calibration::ImportFacts& facts,
                                            const CommonOptions& common);

// Reads all files' rows, including folders of realistic recordings and the logs of NCCL Inspector's ranks,
// which belong to one job.
calibration::Measurements read_all_rows(const std::vector<std::string>& paths,
                                        const calibration::ImportFacts& facts, const CommonOptions& common);

// Returns whether a base is a network: a built-in name, or a file.
bool is_network(const std::string& name_or_path);

// Returns a device's built-in profile, loaded once.
const models::Profile& built_in(const calibration::Device& device);

// Rows split by place: inside a scale-up domain of their GPU or on a GPU alone, and between nodes. For a GPU
// without a profile a domain is a node.
struct RowsByPlace {
  calibration::Measurements inside, between;
};
RowsByPlace by_place(const calibration::Measurements& rows);

// Returns the names of the rows' GPUs.
std::set<std::string> gpus_of(const calibration::Measurements& rows);
// Names GPUs without a profile, and what to do about them.
void warn_of_unknown_gpus(const calibration::Measurements& rows, const CommonOptions& common);

// Returns the profiles nearest to the rows, best first: those of the rows' GPU, or all where there is none.
std::vector<calibration::BaseEvidence> profile_evidence(const calibration::Measurements& rows);
// Returns the network nearest to rows between nodes, refined by them (calibration/fit/choose_base.h).
models::NetworkProfile nearest_network(const calibration::Measurements& rows,
                                       std::vector<calibration::BaseEvidence>& evidence,
                                       calibration::RefineReport& report);
// Returns "infiniband-ndr, by the rows: over a million times as likely as efa-p5".
std::string because(const std::vector<calibration::BaseEvidence>& evidence);

}  // namespace moesim::tools

// Inputs of all `moesim calibrate` commands: files of measured rows, and facts that logs do not contain.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calibration/fit/refine.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// Options for these facts.
struct FactOptions {
  std::string gpu, source, op, library;
  int nodes = 0, gpus_per_node = 0;
  std::int64_t tokens = 0, hidden = 0, topk = 0, experts = 0;

  // `sizes`: false where the verb has --nodes and --experts of its own.
  void declare(CLI::App& app, bool sizes = true);
  void declare_dispatch(CLI::App& app, bool sizes = true);  // for dispatch and combine kernels
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
// Returns the network nearest to rows between nodes, refined by them (calibration/fit/refine.h).
models::NetworkProfile nearest_network(const calibration::Measurements& rows,
                                       std::vector<calibration::BaseEvidence>& evidence,
                                       calibration::RefineReport& report);
// Returns "infiniband-ndr, by the rows: over a million times as likely as efa-p5".
std::string because(const std::vector<calibration::BaseEvidence>& evidence);

Columns<calibration::BaseEvidence> columns_of(Of<calibration::BaseEvidence>);

// Rows that were left out, by their reason.
Columns<std::pair<const std::string, std::size_t>> skipped_columns();

struct MeasureOptions {
  std::string out = "raw", bench, program, filter, forecast;
  int ranks = 1, gpus_per_node = 0;
  bool dry_run = false, brief = false;
  double min_time = 0, minutes = 0;
};

// Runs the benchmarks that have not run yet and returns the measurement file.
std::string measure_machine(const MeasureOptions& options, const CommonOptions& common);

// Declares the options that start the benchmarks, for other commands that measure.
void declare_bench(CLI::App& app, MeasureOptions& options);

// Returns the durations of collectives in a realistic recording, from the calls inside its forward and
// backward steps. The member that arrives last does not wait, so an instance's duration is that of its
// fastest member; instances of one call and group are averaged.
//
// * Exchanges of rows right after the experts' products give `collectives`: there the host is ahead of the
//   GPU, the call's start event waits behind the products, and the duration is the transfer. Uneven splits
//   are completed from the rows that each rank holds (replay/recording/recorded_routing.h) and written as the
//   equal all-to-all that takes as long.
// * All other calls give `exposed_calls`: the GPU waits while the host launches them, so that the duration is
//   launch and transfer together and says nothing about the links.
//
// `facts`: GPU (required), source, library; gpus_per_node (0 = 8) tells which groups lie inside a node.
// Throws InputError for a scaling recording (its communication moved no data), one without collectives,
// members that disagree.
calibration::Measurements import_recording(const std::string& folder, const calibration::ImportFacts& facts);

// Commands that make and read rows: of a machine, what to measure next, of a node into a cluster file, to
// refine a profile.
Run declare_measure(CLI::App& app);
Run declare_next(CLI::App& app);
Run declare_node(CLI::App& app);
Run declare_refine(CLI::App& app);

}  // namespace moesim::tools

// Cross-validation: refits without some rows and forecasts exactly these.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/check/check.h"
#include "calibration/rows/measurements.h"

namespace moesim::calibration {

// Returns the publication of a row's source without table, file or remark: "arXiv 2504.14960",
// "NVIDIA-NeMo/Megatron-Bridge", "MLPerf".
std::string publication_of(std::string_view source);

// The groups left out, one after another, for every GPU:
//   "sizes"    one message size of the collectives inside a node, not the smallest and largest
//   "decades"  one decade of sizes, likewise
//   "ranks"    one GPU count of the collectives inside a node
//   "between"  one GPU count between two others; where no GPU measured three, the count of a GPU with the
//              same links, forecast from the other's rows alone
//   "nodes"    one node count of a law of a network (collectives and kernels between domains)
//   "far"      all node counts of such a law but the two smallest
//   "clusters" one of several clusters with the same network
//   "networks" a whole network, forecast from its line rate and all other networks
//   "shapes"   one (n, k) of dense GEMMs; one (hidden, intermediate, experts) of expert FFNs
//   "tokens"   one decade of token counts of expert FFNs and of dispatch and combine kernels, not the
//              smallest and largest
//   "ep"       one EP size of dispatch and combine kernels
//   "routing"  one kind of routing (balanced, skewed) of expert FFNs
//   "gpus"     a whole GPU, forecast from its data sheet and its relative's rows: collectives inside a
//              domain, GEMMs
//   "machines" all rows of a machine but twelve, forecast from those of all others
//   "own"      the same rows after those twelve have refined the laws (OwnRowsCase)
//   "source"   a whole publication, forecast from all others
inline const std::vector<std::string> kLeaveOut = {
    "sizes",  "decades", "ranks", "between", "nodes", "far",      "clusters", "networks",
    "shapes", "tokens",  "ep",    "routing", "gpus",  "machines", "own",      "source"};

// Skips groups without which nothing is left to fit. Throws InputError for an unknown word.
CheckReport leave_out(const Measurements& measurements, const std::string& what);

inline constexpr std::size_t kOwnRows = 12;

// A machine with published rows, treated once as the user's own: forecast from those of all others.
struct OwnRowsCase {
  std::string gpu, machine;  // "H100-SXM5-80GB", "together-nccl-tests NCCL 2.27"
  std::string base;          // the profile fitted to the others: of a GPU or of a network
  std::string nearest;       // network chosen by the few rows, with `choose`
  CheckReport before;        // all its rows but kOwnRows, under the laws of the others
  CheckReport after;         // the same rows after kOwnRows of the machine have refined the laws
};

// Returns machines with at least so many rows besides the kOwnRows, for each operation (`by_law`) or for all
// operations of a machine together, over which the few rows are then spread. Collectives inside a node and
// between nodes, and dispatch kernels. The base is the machine's own network or GPU, or with `choose` the
// network that the few rows choose.
std::vector<OwnRowsCase> own_rows_cases(const Measurements& all, bool by_law, bool choose = false);

}  // namespace moesim::calibration

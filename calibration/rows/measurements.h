// Measured rows of every kind to which profiles are fitted and against which they are checked, in SI units.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_error.h"
#include "sim/graph/collective.h"

namespace moesim::calibration {

// The origin of a row.
struct Origin {
  SourcePlace place;
  std::string gpu;           // "H100-SXM5-80GB"
  std::string source;        // publisher of the measurement
  std::string network = {};  // a built-in network profile or a kind of network, where the row names it
};

// Throws InputError where it names a network without a profile, and no kind.
void check_network(const Origin& origin);

struct CollectiveRow {
  Origin origin;
  sim::CollectiveOp op = sim::CollectiveOp::all_reduce;
  int nodes = 1;
  int gpus_per_node = 1;
  double bytes = 0;  // the nccl-tests "size"
  double seconds = 0;
  std::string datatype;
  std::string library;
  std::string algorithm =
      {};  // NCCL's choice where its log says it: "ring/simple/16", with protocol and channels

  int ranks() const { return nodes * gpus_per_node; }
};

// Returns busbw over algbw, as nccl-tests print them.
double wire_share(sim::CollectiveOp op, double ranks);

struct GemmRow {
  Origin origin;
  std::string dtype;
  std::string kernel;
  double m = 0, n = 0, k = 0;
  double seconds = 0;
  bool sustained = false;  // measured after thousands of warm-up iterations
};

struct GroupedGemmRow {
  Origin origin;
  std::string kind;
  std::string dtype;
  int groups = 0;
  double m_per_group = 0, n = 0, k = 0;
  double seconds = 0;
};

// A whole expert FFN on one GPU: permute, up and gate, activation, down, unpermute.
struct FfnRow {
  Origin origin;
  std::string framework, kernel, dtype, routing;
  std::int64_t tokens = 0;  // over all ranks
  int hidden = 0, inter = 0, topk = 0, experts = 0, tp = 1, ep = 1;
  double seconds = 0;
};

// One dispatch or combine call of an expert-parallel library.
struct DispatchRow {
  Origin origin;
  std::string kernel, dtype, note;
  int ep = 0, nodes = 1;
  double tokens = 0;  // per rank
  int hidden = 0, topk = 0;
  double topk_groups = 0;  // 0: no limit, or not stated
  double bandwidth = 0;    // bytes/s as printed; 0: not stated
  double seconds = 0;      // 0: only a bandwidth was published
  int experts = 0;
  double sms = 0;
};

inline constexpr double kMostBytes = 1e15;  // per message; more is a wrong unit

struct Measurements {
  std::vector<CollectiveRow> collectives;
  std::vector<GemmRow> gemms;
  std::vector<GroupedGemmRow> grouped;
  std::vector<FfnRow> ffns;
  std::vector<DispatchRow> dispatches;
  // Memory-bound kernels by class name, from our own benchmark only.
  struct KernelRow {
    Origin origin;
    std::string kernel;
    double bytes = 0;
    double seconds = 0;
    int launches = 1;
  };
  std::vector<KernelRow> kernels;
  // Costs of a GPU outside of kernels, from our own benchmark only: one of machine_numbers(), seconds or a
  // factor.
  struct MachineRow {
    Origin origin;
    std::string what;
    double value = 0;
  };
  std::vector<MachineRow> machine;
  // "launch", "host_sync", "smallest_kernel", "d2h_copy", "compute_under_communication".
  static const std::vector<std::string>& machine_numbers();
  // Collectives of a traced run that the host had to launch while the GPU waited: time of launch and transfer
  // together, from recordings only.
  std::vector<CollectiveRow> exposed_calls;
  static constexpr const char* kExposedAreFitted =
      "calls of a recording that hold their launch (calibrate fit)";

  std::size_t size() const;
  void append(Measurements other);

  // Calls `list` with every list of rows.
  template <class List>
  void each_list(List&& list) const {
    named_lists(*this, [&](const char*, auto& rows) { list(rows); });
  }
  template <class List>
  void each_list(List&& list) {
    named_lists(*this, [&](const char*, auto& rows) { list(rows); });
  }
  // Likewise, with the names of a measurement file in its order.
  template <class Self, class List>
  static void named_lists(Self& self, const List& list) {
    list("collectives", self.collectives);
    list("exposed_calls", self.exposed_calls);
    list("gemms", self.gemms);
    list("grouped_gemms", self.grouped);
    list("expert_ffns", self.ffns);
    list("dispatches", self.dispatches);
    list("kernels", self.kernels);
    list("machine", self.machine);
  }
};

// Reads a CSV table in one of the layouts of the published data set, recognised by its columns: collectives,
// dense or grouped GEMMs, expert FFNs, dispatch and combine calls. Throws InputError for an unknown layout,
// and with the line for a field that is not a number in its physical range or a time that contradicts bytes
// and bandwidth or FLOPs (a wrong unit).
Measurements read_table(std::string_view text, const std::string& file);

// Reads a table, a measurement file of `moesim calibrate import`, or the Google Benchmark JSON of
// calibration/bench, recognised by content.
Measurements read_measurements(const std::filesystem::path& path);

// "moesim.measurements/1": measured rows as JSON, which import and measure write and fit reads. Throws
// InputError with the line for an unknown key, or a missing or impossible value.
Measurements parse_measurement_file(std::string_view json, const std::string& file);
std::string to_json(const Measurements& measurements, const std::string& provenance);

}  // namespace moesim::calibration

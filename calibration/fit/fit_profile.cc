#include "calibration/fit/fit_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "calibration/fit/fit_collectives.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_kernels.h"
#include "calibration/fit/machine_numbers.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/size_curve.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;
using models::Profile;

// Additional log standard deviation of a rank count between measured ones: four GPUs of a GB200 from two and
// eight of B200 and B300 (docs/calibration.md, `fit --leave-out between`).
constexpr double kUnmeasuredRanks = 0.055;
constexpr double kUnmeasuredNodes = 0.10;
// Grouped products of training reach 71 to 82 % of the peak, dense ones 71 to 84 % (H100, H200, B200, GB200).
constexpr double kDenseForGrouped = 0.15;

template <class Row>
std::string sources_of_rows(const std::vector<Row>& rows) {
  std::set<std::string> sources;
  for (const Row& row : rows) sources.insert(row.origin.source);
  return sources_of(sources, 3);
}

// Excludes rows of element types unknown to the models (4-bit weights).
template <class Row>
bool usable(const Row& row) {
  if constexpr (std::is_same_v<Row, GemmRow> || std::is_same_v<Row, GroupedGemmRow> ||
                std::is_same_v<Row, FfnRow>)
    return known_dtype(row.dtype);
  return true;
}

template <class Row>
std::vector<Row> rows_of(const std::vector<Row>& rows, const Device& device) {
  std::vector<Row> result;
  for (const Row& row : rows)
    if (device_of_gpu(row.origin.gpu) == &device && usable(row)) result.push_back(row);
  return result;
}

// Returns the version as numbers: among several library versions the newest of the broad sweep is the
// default.
std::vector<int> version_of(const std::string& library) {
  const std::size_t begin = std::min(library.find_first_of("0123456789"), library.size());
  const std::string version = library.substr(begin, library.find_first_not_of("0123456789.", begin) - begin);
  std::vector<int> parts;
  for (const std::string_view part : split(version, '.'))
    if (const auto number = parse_int(part)) parts.push_back(static_cast<int>(*number));
  return parts;
}

// Returns whether some rank count was measured over enough sizes for its own curve.
bool is_sweep(const std::vector<CollectiveRow>& rows) {
  std::map<int, std::set<double>> sizes;
  for (const CollectiveRow& row : rows) sizes[row.ranks()].insert(row.bytes);
  return std::any_of(sizes.begin(), sizes.end(), [](const auto& entry) { return entry.second.size() >= 3; });
}

// Returns the machine of a row, in whole nodes however many GPUs the row used.
models::Cluster machine_cluster(const Profile& profile, const CollectiveRow& row) {
  const Machine* machine = machine_of(row.origin);
  return cluster_of(
      profile, machine, row.nodes,
      machine ? machine->gpus_per_node : std::max(row.gpus_per_node, profile.device().gpus_per_node));
}

class Fitter {
 public:
  Fitter(const Device& device, const Measurements& all, const FitProfileOptions& options)
      : device_(device), all_(all), options_(options) {
    profile_.device() = device.limits;
    profile_.launch() = device.launch;
  }

  Profile run() {
    scaleup_collectives();
    if (options_.networks) network_collectives();
    gemms();
    ffns();
    dispatches();
    fit_kernel_rows();
    for (const MachineNumber& number : set_machine_numbers(profile_, rows_of(all_.machine, device_)))
      measured_.insert(number.what);
    profile_.describe(std::string(device_.profile), std::string(device_.gpu), options_.provenance,
                      unmeasured());
    return std::move(profile_);
  }

 private:
  // Returns the parts of a profile besides the fits that have no measurement.
  std::vector<std::string> unmeasured() const {
    std::vector<std::string> gaps;
    if (device_.launch.kernel > 0 && !(measured_.contains("launch") && measured_.contains("host_sync")))
      gaps.emplace_back(
          "launch.kernel: near the 3.9 to 5 us of Kineto traces; launch.host_sync and launch.d2h_copy: common "
          "figures, not measured; launch.kernel_floor: the smallest GEMM of the published tables");
    if (device_.launch.kernel > 0 && !measured_.contains("compute_under_communication"))
      gaps.emplace_back(
          "overlap: nobody measured how computing and communication slow each other down; 1 stands for it");
    const bool kernels = std::any_of(profile_.sets().begin(), profile_.sets().end(),
                                     [](const auto& entry) { return entry.first.starts_with("kernel/"); });
    if (!kernels)
      gaps.emplace_back(
          "memory-bound kernels: shares of the measured HBM bandwidth as models/costs/kernels.cc states "
          "them");
    if (device_.limits.power_slowdown > 1)
      gaps.emplace_back(
          "power_slowdown: fitted to the DeepSeek-V3 rows of published training steps (docs/validation.md), "
          "scored on the others");
    const auto derived = [&](std::string_view kind) {
      std::vector<std::string> keys;
      for (const auto& [key, set] : profile_.sets())
        if (set.derived && key.starts_with(kind)) keys.push_back(key);
      return join(keys, ", ");
    };
    if (const std::string across = derived("ep/"); !across.empty())
      gaps.push_back("dispatch kernels inside a domain known from rows across nodes only: " + across);
    if (const std::string grouped = derived("grouped_gemm/"); !grouped.empty())
      gaps.push_back(
          "grouped products of training: only kernels of inference were measured; the dense law stands in: " +
          grouped);
    int flagged = 0;
    for (const DispatchRow& row : rows_of(all_.dispatches, device_))
      flagged += suspect(row) && !across_domains(row);
    if (flagged > 0)
      gaps.push_back(std::to_string(flagged) +
                     " rows of dispatch kernels that the data set suspects stay out of the fits");
    return gaps;
  }

  void tell(const std::string& what) const {
    if (options_.progress) options_.progress(std::string(device_.profile) + ": " + what);
  }

  void scaleup_collectives() {
    // Rows by operation and variant; the newest version with a size sweep over several counts is the default.
    std::map<std::string, std::vector<CollectiveRow>> groups;
    std::map<sim::CollectiveOp, std::string> newest;
    std::map<std::pair<sim::CollectiveOp, std::string>, std::set<double>> sizes;
    for (const CollectiveRow& row : rows_of(all_.collectives, device_))
      if (inside_domain(row, profile_)) sizes[{row.op, row.library}].insert(row.bytes);
    for (const auto& [key, set] : sizes) {
      const sim::CollectiveOp op = key.first;
      const std::string& library = key.second;
      auto& best = newest[op];
      const auto rank = [&](const std::string& candidate) {
        return std::pair(sizes[{op, candidate}].size() >= 8, version_of(candidate));
      };
      if (best.empty() || rank(best) < rank(library)) best = library;
    }
    for (const CollectiveRow& row : rows_of(all_.collectives, device_)) {
      if (!inside_domain(row, profile_)) continue;
      std::string key = collective_key(row.op, false);
      const bool main = row.library == newest[row.op];
      if (!main) key += "@" + row.library;
      if (integer_reduction(row)) key += main ? "@int" : ",int";
      groups[key].push_back(row);
    }
    for (const auto& [key, rows] : groups) {
      if (!is_sweep(rows)) continue;  // single points correct a derived law (derive.h)
      tell(key);
      ParameterSet set = fit_size_curve(rows);
      // Integer rows of the same version, if any: they show the ring where the switch reduces others.
      const auto integer = groups.find(key.find('@') == std::string::npos ? key + "@int" : key + ",int");
      const auto extra =
          missing_rank_counts(rows, integer == groups.end() ? std::vector<CollectiveRow>{} : integer->second,
                              all_.collectives, device_);
      if (!extra.empty()) {
        auto points = medians(rows);
        points.insert(points.end(), extra.begin(), extra.end());
        const ParameterSet measured = set;
        set = curve_through(points, std::max(measured.residual, 0.01));
        set.residual = measured.residual;
        set.rows = measured.rows;
        set.domain = measured.domain;
      }
      set.systematic = kUnmeasuredRanks;
      set.source = sources_of_rows(rows);
      profile_.set(key, set);
    }
  }

  void network_collectives() {
    std::map<std::string, std::vector<CollectiveRow>> groups;
    std::map<std::string, std::vector<std::string>> machines;  // default key -> machine keys
    for (const CollectiveRow& row : rows_of(all_.collectives, device_)) {
      if (inside_domain(row, profile_)) continue;
      const Machine* machine = machine_of(row.origin);
      const std::string key = collective_key(row.op, true);
      const std::string special = machine ? key + "@" + std::string(machine->name) : key;
      auto& rows = groups[special];
      if (rows.empty()) machines[key].push_back(special);
      rows.push_back(row);
    }
    for (auto& [key, names] : machines) {
      std::string best;
      for (const std::string& name : names) {
        const auto& rows = groups[name];
        if (rows.size() < 6) continue;
        tell(name);
        const models::Cluster cluster = machine_cluster(profile_, rows.front());
        ParameterSet set = fit_network(cluster, rows);
        set.systematic = kUnmeasuredNodes;
        set.source = sources_of_rows(rows);
        profile_.set(name, set);
        // The default machine: InfiniBand with a port per GPU where one was measured, else the best fitted.
        const auto preference = [&](const std::string& candidate) {
          const bool usual = candidate.ends_with("@xxrjun") || candidate.ends_with("@sophia") ||
                             candidate.ends_with("@echo");
          return std::pair(usual, -profile_.at(candidate).residual);
        };
        if (best.empty() || preference(best) < preference(name)) best = name;
      }
      if (!best.empty() && best != key) profile_.set(key, profile_.at(best));
    }
  }

  void gemms() {
    std::map<std::string, std::vector<GemmRow>> groups;
    for (const GemmRow& row : rows_of(all_.gemms, device_)) groups[law_keys(row).front()].push_back(row);
    std::map<std::string, std::string> defaults;  // dtype key -> kernel key
    for (const auto& [key, rows] : groups) {
      tell(key);
      ParameterSet set = fit_dense_gemm(profile_, rows, options_.leave_out_shapes);
      set.source = sources_of_rows(rows);
      profile_.set(key, set);
      // Kernels whose host time hides the GPU (eager launches) are not the default, since the simulator
      // models the host itself.
      const std::string plain = key.substr(0, key.find('@'));
      const auto preference = [&](const std::string& candidate) {
        const ParameterSet& s = profile_.at(candidate);
        return std::tuple(s.get("host", 0) < 20e-6 && s.get("floor", 0) < 15e-6,
                          !candidate.ends_with("@sustained"), s.rows);
      };
      auto& best = defaults[plain];
      if (best.empty() || preference(best) < preference(key)) best = key;
    }
    for (const auto& [plain, key] : defaults) {
      const ParameterSet& set = profile_.at(key);
      if (set.get("host", 0) < 20e-6 && set.get("floor", 0) < 15e-6) profile_.set(plain, set);
    }
    // DeepGEMM's tables of grouped products: one law with the dense ones.
    for (const GroupedGemmRow& row : rows_of(all_.grouped, device_)) {
      const std::string dtype(models::name_of(models::dtype_named(row.dtype)));
      if (const ParameterSet* dense = profile_.find("gemm/" + dtype);
          dense && !profile_.find("grouped_gemm/" + dtype))
        profile_.set("grouped_gemm/" + dtype, *dense);
    }
  }

  void ffns() {
    std::map<std::string, std::vector<FfnRow>> groups;
    for (const FfnRow& row : rows_of(all_.ffns, device_)) groups[law_keys(row).front()].push_back(row);
    for (const auto& [key, rows] : groups) {
      tell(key);
      ParameterSet set = fit_ffn(profile_, rows, key, options_.leave_out_shapes);
      set.source = sources_of_rows(rows);
      profile_.set(key, set);
    }
    // The grouped products of training (Megatron, Transformer Engine) are CUTLASS or cuBLAS kernels, as
    // TensorRT-LLM's of this name. An inference kernel's law is not theirs: where there is no other, the law
    // of dense products stands in, with a doubt.
    for (const auto& [key, rows] : groups) {
      const std::string plain = grouped_key(key);
      if (key.find("moe_torch_flow_cutlass") == std::string::npos || profile_.find(plain)) continue;
      ParameterSet set = profile_.at(key);
      set.law = "tiles";
      set.source = "the grouped products inside the expert FFN of " + set.source;
      profile_.set(plain, set);
    }
    for (const auto& [key, rows] : groups) {
      const std::string plain = grouped_key(key);
      const ParameterSet* dense = profile_.find(plain.substr(plain.find('_') + 1));
      if (profile_.find(plain) || !dense) continue;
      ParameterSet set = *dense;
      set.derived = true;
      set.systematic = std::hypot(set.systematic, kDenseForGrouped);
      set.source = "the dense products of " + set.source;
      profile_.set(plain, set);
    }
  }

  // "grouped_gemm/bf16" of "ffn/bf16@moe_torch_flow_cutlass".
  static std::string grouped_key(const std::string& ffn) {
    return "grouped_gemm/" + ffn.substr(4, ffn.find('@') - 4);
  }

  void dispatches() {
    std::map<std::string, std::vector<DispatchRow>> groups;
    std::map<std::string, std::vector<DispatchRow>> across;
    for (const DispatchRow& row : rows_of(all_.dispatches, device_))
      if (!suspect(row)) (across_domains(row) ? across : groups)[law_key(row)].push_back(row);
    for (const auto& [key, rows] : across) {
      if (groups.contains(key)) continue;
      if (auto set = inside_stage(profile_, rows, key)) profile_.set(key, *std::move(set));
    }
    for (const auto& [key, rows] : groups) {
      ParameterSet set = fit_dispatch(profile_, rows, key);
      if (set.rows == 0) continue;
      tell(key);
      set.systematic = 0.1;
      set.source = sources_of_rows(rows);
      profile_.set(key, set);
    }
  }

  void fit_kernel_rows() {
    std::map<std::string, std::vector<Measurements::KernelRow>> groups;
    for (const auto& row : rows_of(all_.kernels, device_)) groups["kernel/" + row.kernel].push_back(row);
    for (const auto& [key, rows] : groups) {
      tell(key);
      profile_.set(key, fit_kernel(profile_, rows));
    }
  }

  const Device& device_;
  const Measurements& all_;
  const FitProfileOptions& options_;
  Profile profile_;
  std::set<std::string> measured_;  // among a GPU's costs outside of kernels
};

}  // namespace

Profile fit_profile(const Device& device, const Measurements& measurements,
                    const FitProfileOptions& options) {
  return Fitter(device, measurements, options).run();
}

}  // namespace moesim::calibration

#include "calibration/check/check.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/statistics.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/machine_numbers.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/expert_ffn.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"
#include "models/hardware/network.h"

namespace moesim::calibration {
namespace {

using models::Estimate;
using models::ParameterSet;
using models::Profile;

std::string size_decade(double bytes) {
  static constexpr const char* kNames[] = {"<1K",    "1K-10K",   "10K-100K", "100K-1M",
                                           "1M-10M", "10M-100M", "100M-1G",  ">=1G"};
  const int decade = bytes < 1024 ? 0 : static_cast<int>(std::log10(bytes / 1024)) + 1;
  return std::string(kNames[std::clamp(decade, 0, 7)]) + "B";
}

// Classes of sizes in which published rows are counted together: latency, the ramp, the plateau.
std::string size_class(double bytes) {
  return bytes < 1 << 20 ? "below 1 MiB" : bytes < 1 << 27 ? "1 to 128 MiB" : "from 128 MiB";
}

std::string cell_of(std::initializer_list<std::string> parts) {
  std::string cell;
  for (const std::string& part : parts) cell += (cell.empty() ? "" : ", ") + (part.empty() ? "-" : part);
  return cell;
}

std::string count_range(const char* what, double value) {
  const char* range = value < 16 ? "<16" : value < 256 ? "16-255" : value < 4096 ? "256-4095" : ">=4096";
  return std::string(what) + " " + range;
}

// Additional error of a law of another element type or another library's kernel.
constexpr double kOtherElements = 0.2;

double law_sigma(const ParameterSet& set) { return std::hypot(set.residual, set.systematic); }

// Additional error of a kernel outside of its law's rows, as in a forecast.
double kernel_sigma(const ParameterSet& set, const models::EpKernelCall& call) {
  return std::hypot(law_sigma(set), models::kernel_doubt(set, call.ranks, call.tokens));
}

// Forecasts of one profile; models are created once per law that rows need.
class Predictor {
 public:
  Predictor(const Profile& profile, const Between& between) : profile_(profile) {
    const bool ports = between.ports > 0 || between.port_bandwidth > 0;
    named_ = between.network.empty() && ports ? models::usual_network(profile) : between.network;
    if (named_.empty()) return;
    machine_ = machine_on(named_, models::NetworkProfile::load(named_));
    if (between.ports > 0) machine_->ports_per_node = between.ports;
    if (between.port_bandwidth > 0) machine_->port_bandwidth = between.port_bandwidth;
  }

  // Each function fills `out` and returns "" or the reason why it cannot.
  std::string collective(const CollectiveRow& row, CheckedRow& out) {
    const bool network = !inside_domain(row, profile_);
    const std::string plain = collective_key(row.op, network), key = first_law(law_keys(row, network), plain);
    const Machine* machine = network ? machine_for(row.origin, out) : nullptr;
    out.op = sim::name(row.op);
    out.scope = network ? "network" : "scaleup";
    out.bytes = row.bytes;
    out.sizes = size_decade(row.bytes);
    out.ranks = network ? std::to_string(row.nodes) + "x" + std::to_string(row.gpus_per_node)
                        : std::to_string(row.ranks());
    out.law = key;
    out.nodes = row.nodes;
    out.bandwidth = row.bytes * wire_share(row.op, row.ranks()) / row.seconds;
    out.cell = cell_of({profile_.name(), out.network, out.op, integer_reduction(row) ? "integer" : "",
                        size_class(row.bytes)});
    auto& model = collectives_[key + "|" + (machine ? std::string(machine->name) : "")];
    if (!model) {
      if (!network && !has_collectives(network))
        return "the profile has no " + out.scope + " collective laws";
      Profile variant = profile_;
      if (const ParameterSet* set = profile_.find(key)) variant.set(plain, *set);
      // Large enough for any group; the row's shape gives the node boundaries.
      model = std::make_unique<models::CollectiveModel>(cluster_of(
          variant, machine, network ? 1 << 12 : 1, machine ? machine->gpus_per_node : row.gpus_per_node));
    }
    out.forecast = model->estimate(row.op, shape_of(row, profile_.device()), call_bytes(row));
    return "";
  }

  std::string gemm(const GemmRow& row, CheckedRow& out) {
    const models::DType dtype = dtype_of(row.dtype);
    out.op = "gemm";
    out.scope = models::name_of(dtype);
    out.sizes = count_range("m", row.m);
    if (profile_.device().peak_flops[static_cast<std::size_t>(dtype)] <= 0)
      return "the GPU has no " + out.scope + " matrix units";
    const std::string key = first_law(law_keys(row), "gemm/" + out.scope);
    out.law = key;
    auto& model = gemms_[key + (row.sustained ? "|sustained" : "")];
    if (!model) {
      Profile variant = profile_;
      if (const ParameterSet* set = profile_.find(key)) variant.set("gemm/" + out.scope, *set);
      model = std::make_unique<models::GemmModel>(
          variant, row.sustained ? models::Clocks::kSustained : models::Clocks::kBurst);
    }
    out.forecast = model->estimate({static_cast<std::int64_t>(row.m), static_cast<std::int64_t>(row.n),
                                    static_cast<std::int64_t>(row.k)},
                                   dtype);
    return "";
  }

  std::string grouped(const GroupedGemmRow& row, CheckedRow& out) {
    const models::DType dtype = dtype_of(row.dtype);
    out.op = "grouped_gemm";
    out.scope = models::name_of(dtype);
    out.sizes = count_range("m", row.m_per_group);
    out.ranks = std::to_string(row.groups) + " groups";
    if (profile_.device().peak_flops[static_cast<std::size_t>(dtype)] <= 0)
      return "the GPU has no " + out.scope + " matrix units";
    out.law = grouped_law_key(row);
    auto& model = gemms_["grouped"];
    if (!model) model = std::make_unique<models::GemmModel>(profile_, models::Clocks::kBurst);
    out.forecast =
        model->grouped_estimate(experts_of(row), static_cast<std::int64_t>(row.n),
                                static_cast<std::int64_t>(row.k), dtype, pass_of(row), backend_of(row));
    return "";
  }

  std::string ffn(const FfnRow& row, CheckedRow& out) {
    const models::DType dtype = dtype_of(row.dtype);
    out.op = "moe_ffn";
    out.scope = row.kernel;
    out.sizes = count_range("tokens", static_cast<double>(row.tokens));
    out.ranks = "tp" + std::to_string(row.tp) + " ep" + std::to_string(row.ep);
    const std::string key = first_law(ffn_keys(row, dtype), "");
    if (key.empty()) return "the profile has no expert FFN law for " + std::string(models::name_of(dtype));
    out.law = key;
    auto& model = ffns_[key];
    if (!model) model = std::make_unique<models::ExpertFfnModel>(profile_, key, dtype);
    const auto draws = expert_rows(row);
    const models::FfnShape shape = ffn_shape(row, draws);
    double mean = 0;
    for (const auto& rows : draws) mean += model->seconds(shape, rows);
    double sigma = law_sigma(profile_.at(key));
    if (key.find(row.kernel) == std::string::npos)
      sigma = std::hypot(sigma, 0.3);  // another library's kernel
    out.forecast = Estimate::log_normal(mean / static_cast<double>(draws.size()), sigma);
    return "";
  }

  std::string dispatch(const DispatchRow& row, CheckedRow& out) {
    out.op = row.kernel;
    out.scope = row.dtype;
    out.sizes = count_range("tokens", row.tokens);
    out.ranks = "ep" + std::to_string(row.ep);
    const auto call = call_of(row);
    if (!call) return "a dispatch row that is a sum, or without tokens, hidden size, top-k or EP size";
    if (seconds_of(row) <= 0) return "a dispatch row without latency or bandwidth";
    out.measured = seconds_of(row);
    if (suspect(row)) return "a dispatch row of a run that its data set suspects";
    out.nodes = row.nodes;
    out.bandwidth = printed_bytes(row, *call) / out.measured;
    const bool across = across_domains(row);
    if (across) machine_for(row.origin, out);
    out.cell = cell_of({profile_.name(), out.network, row.kernel, row.dtype, out.sizes});
    if (across) return dispatch_across(row, *call, out);
    out.law = law_key(row);
    const ParameterSet* set = profile_.find(out.law);
    double sigma = set ? kernel_sigma(*set, *call) : 0;
    if (!set) {
      // Falls back to the kernel with other elements: the law counts bytes.
      const std::string prefix = "ep/" + row.kernel + "@";
      for (const auto& [key, other] : profile_.sets())
        if (!set && key.starts_with(prefix)) {
          out.law = key;
          set = &other;
          sigma = std::hypot(kernel_sigma(other, *call), kOtherElements);
        }
    }
    if (!set) return "no law for the kernel " + row.kernel + " (" + row.dtype + ") on this GPU";
    auto& model = eps_[out.law];
    if (!model)
      model = std::make_unique<models::EpKernelModel>(profile_, out.law, profile_.device().nic_bandwidth);
    out.forecast = Estimate::log_normal(model->seconds(*call), sigma);
    return "";
  }

  // Prices a kernel between nodes by the law of its network.
  std::string dispatch_across(const DispatchRow& row, const models::EpKernelCall& call, CheckedRow& out) {
    const Machine* machine = machine_for(row.origin, out);
    const models::Cluster cluster = cluster_of(
        profile_, machine, row.nodes, machine ? machine->gpus_per_node : profile_.device().gpus_per_node);
    out.law = law_key(row) + std::string(models::kNetworkLaw);
    const ParameterSet* set = cluster.profile.find(out.law);
    if (!set) return "no law for the kernel " + row.kernel + " (" + row.dtype + ") between nodes";
    const models::EpKernelModel model(cluster.profile, out.law, cluster.network_per_gpu());
    out.forecast = Estimate::log_normal(model.seconds(call), kernel_sigma(*set, call));
    return "";
  }

  std::string machine(const Measurements::MachineRow& row, CheckedRow& out) {
    if (row.what == "compute_under_communication") return "a factor, no time";
    out.op = "machine";
    out.scope = row.what;
    out.sizes = "-";
    out.law = "machine/" + row.what;
    const auto value = machine_number(profile_, row.what);
    if (!value || *value <= 0) return "the profile has no " + row.what;
    out.measured = row.value;
    out.forecast = Estimate::log_normal(*value, kHostSigma);
    return "";
  }

  std::string kernel(const Measurements::KernelRow& row, CheckedRow& out) {
    out.op = "kernel";
    out.scope = row.kernel;
    out.sizes = size_decade(row.bytes);
    const auto kind = models::parse_kernel_class(row.kernel);
    if (!kind) return "an unknown kernel class";
    out.law = "kernel/" + row.kernel;
    if (!kernels_) kernels_ = std::make_unique<models::KernelModel>(profile_);
    out.forecast = kernels_->estimate(*kind, row.bytes, 0, row.launches);
    return "";
  }

 private:
  // Returns the first of the keys that the profile has a law of.
  std::string first_law(const std::vector<std::string>& keys, const std::string& otherwise) const {
    const auto known =
        std::ranges::find_if(keys, [&](const auto& key) { return profile_.find(key) != nullptr; });
    return known == keys.end() ? otherwise : *known;
  }

  static bool names_network(const Origin& origin) {
    return std::ranges::count(models::NetworkProfile::names(), origin.network) > 0;
  }

  // Returns the machine of a row between nodes: of the network that the row names, else --network's, else by
  // the row's source; nullptr where it is unknown, which means the usual network of the GPU.
  const Machine* machine_for(const Origin& origin, CheckedRow& out) const {
    const Machine* machine =
        machine_ && !names_network(origin) ? &*machine_ : calibration::machine_of(origin);
    out.assumed = !machine && !models::has_network_laws(profile_);
    out.network = machine ? std::string(machine->network) : models::usual_network(profile_);
    return machine;
  }

  bool has_collectives(bool network) const {
    using sim::CollectiveOp;
    const auto has = [&](CollectiveOp op) { return profile_.find(collective_key(op, network)) != nullptr; };
    return (has(CollectiveOp::all_gather) || has(CollectiveOp::reduce_scatter)) &&
           has(CollectiveOp::all_to_all) && has(CollectiveOp::all_reduce);
  }

  std::vector<std::string> ffn_keys(const FfnRow& row, models::DType dtype) const {
    auto keys = law_keys(row);
    // Falls back to the backend's name in another release, then to any kernel of the element type.
    const std::string prefix = "ffn/" + std::string(models::name_of(dtype)) + "@";
    for (const char* part : {"moe_torch_flow", "triton", "cutlass", "trtllm"})
      for (const auto& [key, set] : profile_.sets())
        if (row.kernel.find(part) != std::string::npos && key.starts_with(prefix) &&
            key.find(part) != std::string::npos)
          keys.push_back(key);
    for (const auto& [key, set] : profile_.sets())
      if (key.starts_with(prefix)) keys.push_back(key);
    return keys;
  }

  const Profile& profile_;
  std::string named_;               // the network of all rows between nodes
  std::optional<Machine> machine_;  // on that network
  std::map<std::string, std::unique_ptr<models::CollectiveModel>> collectives_;
  std::map<std::string, std::unique_ptr<models::GemmModel>> gemms_;
  std::map<std::string, std::unique_ptr<models::ExpertFfnModel>> ffns_;
  std::map<std::string, std::unique_ptr<models::EpKernelModel>> eps_;
  std::unique_ptr<models::KernelModel> kernels_;
};

// Strips the place: "found the routing 'x', ..." of "table.csv:7: found the routing 'x', ...", so that equal
// reasons are counted together.
std::string without_place(const std::string& message) {
  const auto found = message.find("found ");
  return found == std::string::npos ? message : message.substr(found);
}

void summarise(CheckGroup& group, const std::vector<const CheckedRow*>& rows) {
  group.rows = rows.size();
  if (rows.empty()) return;
  std::vector<double> magnitudes;
  std::size_t covered = 0;
  for (const CheckedRow* row : rows) {
    magnitudes.push_back(std::abs(row->error()));
    group.mean_abs_error += magnitudes.back();
    group.bias += row->error();
    covered += row->covered();
  }
  const auto n = static_cast<double>(rows.size());
  group.mean_abs_error /= n;
  group.bias /= n;
  group.coverage = static_cast<double>(covered) / n;
  group.median_abs_error = median(std::move(magnitudes));
}

}  // namespace

std::map<std::string, std::size_t> CheckReport::assumed_networks() const {
  std::map<std::string, std::size_t> rows_of;
  for (const CheckedRow& row : rows)
    if (row.assumed) ++rows_of[row.network];
  return rows_of;
}

CheckGroup CheckReport::total() const { return collectives_from(0); }

CheckGroup CheckReport::collectives_from(double bytes) const {
  CheckGroup group;
  std::vector<const CheckedRow*> large;
  for (const CheckedRow& row : rows)
    if (row.bytes >= bytes) large.push_back(&row);
  summarise(group, large);
  return group;
}

std::vector<CheckGroup> CheckReport::groups() const {
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, std::vector<const CheckedRow*>> members;
  for (const CheckedRow& row : rows)
    members[{row.origin.gpu, row.op, row.scope, row.sizes, row.ranks}].push_back(&row);
  std::vector<CheckGroup> result;
  for (const auto& [key, list] : members) {
    CheckGroup group;
    std::tie(group.gpu, group.op, group.scope, group.sizes, group.ranks) = key;
    summarise(group, list);
    result.push_back(std::move(group));
  }
  return result;
}

CheckReport check_rows(const Measurements& measurements, const ProfileOf& profile_of,
                       const Between& between) {
  CheckReport report;
  std::map<std::string, std::unique_ptr<Predictor>> predictors;  // nullptr: no profile
  const auto each = [&](const auto& rows, auto method) {
    for (const auto& row : rows) {
      auto [entry, added] = predictors.try_emplace(row.origin.gpu);
      if (added)
        if (const Profile* profile = profile_of(row.origin.gpu))
          entry->second = std::make_unique<Predictor>(*profile, between);
      if (!entry->second) {
        ++report.skipped["no profile for " + row.origin.gpu];
        continue;
      }
      CheckedRow checked;
      checked.origin = row.origin;
      if constexpr (requires { row.seconds; }) checked.measured = row.seconds;
      std::string reason;
      try {
        reason = ((*entry->second).*method)(row, checked);
      } catch (const InputError& error) {
        // An unknown element type or routing has no forecast; other rows still do.
        reason = without_place(error.what());
      }
      if (reason.empty())
        report.rows.push_back(std::move(checked));
      else
        ++report.skipped[row.origin.gpu + ": " + reason];
    }
  };
  each(measurements.collectives, &Predictor::collective);
  each(measurements.gemms, &Predictor::gemm);
  each(measurements.grouped, &Predictor::grouped);
  each(measurements.ffns, &Predictor::ffn);
  each(measurements.dispatches, &Predictor::dispatch);
  each(measurements.kernels, &Predictor::kernel);
  each(measurements.machine, &Predictor::machine);
  if (!measurements.exposed_calls.empty())
    report.skipped[Measurements::kExposedAreFitted] += measurements.exposed_calls.size();
  return report;
}

}  // namespace moesim::calibration

#include "calibration/fit/fit_networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "calibration/fit/fit_collectives.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/least_squares.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/ep_kernel.h"

namespace moesim::calibration {
namespace {

using models::NetworkProfile;
using models::ParameterSet;
using models::Profile;

// Additional error of a node count that was not measured where none can be left out (docs/calibration.md,
// `fit --leave-out nodes`), and its minimum.
constexpr double kUnmeasuredNodes = 0.10, kLeastUnmeasured = 0.05;
constexpr int kFewestRows = 3;
// Weight of the scatter within other networks, in rows, against a network's own.
constexpr double kScatterRows = 6;

struct KernelCall {
  const Device* device;
  models::EpKernelCall call;
  double seconds;
  double port;  // bytes/s of a GPU's share of the network
  std::string network, source;
};

class Fitter {
 public:
  Fitter(const Measurements& all, const std::function<const Profile&(const Device&)>& profile_of,
         const FitNetworksOptions& options)
      : profile_of_(profile_of), options_(options) {
    for (const CollectiveRow& row : all.collectives) take(row);
    for (const DispatchRow& row : all.dispatches) take(row);
  }

  std::vector<NetworkProfile> run() {
    std::vector<NetworkProfile> profiles;
    for (const NetworkFacts& facts : networks()) {
      NetworkProfile network;
      network.name = facts.name;
      network.kind = facts.kind;
      network.gpus_per_node = facts.gpus_per_node;
      network.ports_per_node = facts.ports_per_node;
      network.line_rate = facts.port_bandwidth;
      network.rails = facts.rails;
      network.provenance = options_.provenance;
      if (!facts.gap.empty()) network.gaps.emplace_back(facts.gap);
      if (const auto count = suspect_.find(network.name); count != suspect_.end())
        network.gaps.push_back(
            fmt::format("{} rows of runs that the data set suspects stay out of the fits", count->second));
      profiles.push_back(std::move(network));
    }
    NetworkProfile all;
    all.name = models::kLineRate;
    all.kind = "any";
    all.ports_per_node = 8;
    all.line_rate = 50e9;
    all.provenance = options_.provenance;
    all.gaps.emplace_back(
        "no network of its own: the laws of all measured networks at once, their residual is "
        "how far these differ");
    collectives(profiles, all);
    kernels(profiles, all);
    profiles.push_back(std::move(all));
    for (NetworkProfile& network : profiles) keep_in_step(network);
    return profiles;
  }

 private:
  // Estimated from whole training steps: no row here determines it.
  static void keep_in_step(NetworkProfile& network) {
    const auto& names = NetworkProfile::names();
    if (std::ranges::find(names, network.name) == names.end()) return;
    const NetworkProfile shipped = NetworkProfile::load(network.name);
    if (const auto law = shipped.laws.find(models::kExchangeInStep); law != shipped.laws.end())
      network.laws.insert(*law);
  }

  static bool known(const Machine& machine) {
    const auto all = networks();
    return std::any_of(all.begin(), all.end(),
                       [&](const NetworkFacts& facts) { return facts.name == machine.network; });
  }

  void take(const CollectiveRow& row) {
    const Device* device = device_of_gpu(row.origin.gpu);
    const Machine* machine = machine_of(row.origin);
    if (!device || !machine || !known(*machine) || integer_reduction(row) ||
        inside_domain(row, profile_of_(*device)))
      return;
    collectives_[row.op][std::string(machine->network)].push_back(row);
  }

  void take(const DispatchRow& row) {
    const Device* device = device_of_gpu(row.origin.gpu);
    const Machine* machine = machine_of(row.origin);
    if (!device || !machine || !known(*machine) || !across_domains(row)) return;
    if (suspect(row)) {
      ++suspect_[std::string(machine->network)];
      return;
    }
    const auto call = call_of(row);
    const double seconds = seconds_of(row);
    if (!call || seconds <= 0) return;
    kernels_[law_key(row)].push_back({device, *call, seconds, cluster_of(*machine).network_per_gpu(),
                                      std::string(machine->network), row.origin.source});
  }

  static std::string machine_named(const CollectiveRow& row) {
    return std::string(machine_of(row.origin)->name);
  }

  // Returns the weight of a row when every publisher counts the same.
  static double each(const std::map<std::string, double>& rows_of, const std::string& one, std::size_t all) {
    return std::sqrt(static_cast<double>(all) / (static_cast<double>(rows_of.size()) * rows_of.at(one)));
  }

  void tell(const std::string& network, const std::string& key) const {
    if (options_.progress) options_.progress(network + ": " + key);
  }

  static NetworkProfile& named(std::vector<NetworkProfile>& profiles, const std::string& name) {
    return *std::find_if(profiles.begin(), profiles.end(),
                         [&](const NetworkProfile& network) { return network.name == name; });
  }

  std::vector<NetworkRow> rows_of(const std::vector<CollectiveRow>& rows, double weight) {
    std::vector<NetworkRow> result;
    std::map<std::string, double> machines;
    for (const CollectiveRow& row : rows) ++machines[machine_named(row)];
    for (const CollectiveRow& row : rows) {
      const double share = each(machines, machine_named(row), rows.size());
      result.push_back({&cluster_of(*machine_of(row.origin)), &row, weight * share});
    }
    return result;
  }

  // Returns nodes and ports as the network's laws see them.
  const models::Cluster& cluster_of(const Machine& machine) {
    auto& cluster = clusters_[std::string(machine.network)];
    if (!cluster) {
      cluster = std::make_unique<models::Cluster>();
      cluster->name = machine.network;
      cluster->gpus_per_node = cluster->nvlink.domain = machine.gpus_per_node;
      cluster->nic.ports_per_node = machine.ports_per_node;
      cluster->nic.bandwidth = machine.port_bandwidth;
    }
    return *cluster;
  }

  void collectives(std::vector<NetworkProfile>& profiles, NetworkProfile& all) {
    for (auto& [op, by_network] : collectives_) {
      const std::string key = collective_key(op, true);
      for (auto& [name, rows] : by_network) rows = fastest_algorithms(rows);
      tell(all.name, key);
      ParameterSet pooled = typical(op, by_network);
      pooled.residual = between(pooled, op, by_network);
      pooled.systematic = kUnmeasuredNodes;
      pooled.source = fmt::format("{} networks", by_network.size());
      std::map<std::string, ParameterSet> fitted;
      double squares = 0;
      for (const auto& [name, rows] : by_network) {
        if (static_cast<int>(rows.size()) < kFewestRows) continue;
        tell(name, key);
        fitted[name] = fit_networks_law(op, rows_of(rows, 1), &pooled);
        squares += fitted[name].residual * fitted[name].residual;
      }
      std::map<std::string, double> left;
      for (const auto& [name, set] : fitted)
        if (const auto error = left_out(op, by_network.at(name), pooled)) left[name] = *error;
      const double beyond = beyond_the_usual(fitted, left);
      const double usual = fitted.empty() ? 0 : squares / static_cast<double>(fitted.size());
      for (auto& [name, set] : fitted) {
        // A few rows that a law fits exactly do not show its error.
        const auto& rows = by_network.at(name);
        const auto own = static_cast<double>(rows.size());
        set.residual =
            std::sqrt((own * set.residual * set.residual + kScatterRows * usual) / (own + kScatterRows));
        set.systematic =
            left.contains(name)
                ? std::max(kLeastUnmeasured, std::sqrt(std::max(0.0, beyond_scatter(left.at(name), set))))
                : beyond;
        std::set<std::string> sources;
        for (const CollectiveRow& row : rows) sources.insert(row.origin.source);
        set.source = sources_of(sources, 3, false);
        named(profiles, name).laws[key] = std::move(set);
      }
      all.laws[key] = std::move(pooled);
    }
  }

  // Returns the law of a network without rows: of each parameter the mean over the middle half of the
  // networks, weighted by how much a network's rows tell of it. Each is fitted by itself around these, so
  // that slow ports of one network, measured on few nodes, do not pass for times that grow with nodes (a
  // hierarchical model, fitted by turns).
  ParameterSet typical(sim::CollectiveOp op,
                       const std::map<std::string, std::vector<CollectiveRow>>& by_network) {
    constexpr int kTurns = 4;  // the mean no longer moves
    constexpr double kUnknown = kNetworksDiffer * kNetworksDiffer;
    ParameterSet mean;  // at first the common figures
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<ParameterSet> own;
      own.reserve(by_network.size());
      for (const auto& [name, rows] : by_network)
        own.push_back(fit_networks_law(op, rows_of(rows, 1), &mean));
      mean = own.front();
      const std::size_t n = mean.names.size();
      mean.covariance.assign(n * n, 0);
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<std::pair<double, double>> values;  // logarithm, weight
        double weights = 0, squares = 0;  // of what the networks differ by, and of what each leaves open
        for (const ParameterSet& one : own) {
          values.emplace_back(std::log(one.values[i]),
                              1.001 - std::min(1.0, one.covariance[i * n + i] / kUnknown));
          weights += values.back().second;
          squares += values.back().second * one.covariance[i * n + i];
        }
        std::sort(values.begin(), values.end());
        double middle = 0, before = 0;
        for (const auto& [value, weight] : values) {
          const double end = before + weight;
          middle += 2 / weights * value *
                    std::max(0.0, std::min(end, 0.75 * weights) - std::max(before, 0.25 * weights));
          before = end;
        }
        for (const auto& [value, weight] : values) squares += weight * (value - middle) * (value - middle);
        mean.values[i] = std::exp(middle);
        mean.covariance[i * n + i] = std::min(squares / weights, kUnknown);
      }
    }
    mean.rows = 0;
    for (const auto& [name, rows] : by_network)
      for (const CollectiveRow& row : rows) {
        ++mean.rows;
        widen(mean, "bytes", row.bytes);
        widen(mean, "ranks", row.ranks());
        widen(mean, "nodes", row.nodes);
      }
    return mean;
  }

  // Returns the log error on node counts left out of the fit, one after another; nullopt with fewer than
  // three.
  std::optional<double> left_out(sim::CollectiveOp op, const std::vector<CollectiveRow>& rows,
                                 const ParameterSet& pooled) {
    std::map<int, std::vector<CollectiveRow>> by_nodes;
    for (const CollectiveRow& row : rows) by_nodes[row.nodes].push_back(row);
    if (by_nodes.size() < 3) return std::nullopt;
    double squares = 0;
    for (const auto& [nodes, held] : by_nodes) {
      std::vector<CollectiveRow> rest;
      for (const CollectiveRow& row : rows)
        if (row.nodes != nodes) rest.push_back(row);
      const ParameterSet set = fit_networks_law(op, rows_of(rest, 1), &pooled);
      // All rows of this node count have the same weight.
      for (const CollectiveRow& row : held)
        for (const double r : network_residuals(set, op, rows_of({row}, 1))) squares += r * r;
    }
    return std::sqrt(squares / static_cast<double>(rows.size()));
  }

  // Returns the part of the squared error `left` that the scatter of the rows does not explain.
  static double beyond_scatter(double left, const ParameterSet& set) {
    return left * left - set.residual * set.residual;
  }

  // Returns the same as an error, averaged over the networks where it can be computed.
  static double beyond_the_usual(const std::map<std::string, ParameterSet>& fitted,
                                 const std::map<std::string, double>& left) {
    double squares = 0;
    for (const auto& [name, error] : left)
      squares += std::max(kLeastUnmeasured * kLeastUnmeasured, beyond_scatter(error, fitted.at(name)));
    return left.empty() ? kUnmeasuredNodes : std::sqrt(squares / static_cast<double>(left.size()));
  }

  // Returns the error of the pooled law on one network: every network counts the same.
  double between(const ParameterSet& pooled, sim::CollectiveOp op,
                 const std::map<std::string, std::vector<CollectiveRow>>& by_network) {
    double sum = 0;
    for (const auto& [name, rows] : by_network) {
      double squares = 0;
      for (const double r : network_residuals(pooled, op, rows_of(rows, 1))) squares += r * r;
      sum += squares / static_cast<double>(rows.size());
    }
    return std::sqrt(sum / static_cast<double>(by_network.size()));
  }

  void kernels(std::vector<NetworkProfile>& profiles, NetworkProfile& all) {
    double widest = 0;
    std::vector<std::string> alone;
    for (const auto& [key, calls] : kernels_) {
      std::map<std::string, std::vector<KernelCall>> by_network;
      for (const KernelCall& call : calls) by_network[call.network].push_back(call);
      for (const auto& [name, own] : by_network) {
        tell(name, key);
        named(profiles, name).laws[key + std::string(models::kNetworkLaw)] = fit_kernel_law(key, own);
      }
      tell(all.name, key);
      ParameterSet pooled = fit_kernel_law(key, calls);
      pooled.source = fmt::format("{} networks", by_network.size());
      if (by_network.size() > 1)
        widest = std::max(widest, pooled.residual);
      else
        alone.push_back(key + std::string(models::kNetworkLaw));
      all.laws[key + std::string(models::kNetworkLaw)] = std::move(pooled);
    }
    // A kernel measured on one network shows nothing about differences between networks.
    for (const std::string& key : alone) all.laws[key].residual = std::max(all.laws[key].residual, widest);
  }

  ParameterSet fit_kernel_law(const std::string& key, const std::vector<KernelCall>& calls) {
    std::set<int> ranks;
    std::set<double> sms;
    std::set<std::string> sources;
    ParameterSet set;
    set.law = "ep-kernel";
    for (const KernelCall& one : calls) {
      ranks.insert(one.call.ranks);
      if (one.call.sms > 0) sms.insert(one.call.sms);
      sources.insert(one.source);
      widen(set, "tokens", one.call.tokens);
      widen(set, "ranks", one.call.ranks);
    }
    // Calls of 128 tokens take 0.1 to 0.3 ms on the slowest networks. The time of a call beyond its bytes
    // grows with tokens: libraries send a message for every few of them, whatever the row length.
    std::vector<FittedParameter> parameters = {{"latency", 1e-4, 1e-6, 1e-2, 1.0}};
    if (ranks.size() > 1) parameters.push_back({"latency_per_octave", 3e-6, 1e-8, 1e-3, 1.0});
    parameters.push_back({"per_token", 3e-8, 1e-12, 1e-5, 2.5});
    parameters.push_back({"network_share", 0.8, 1e-2, 3.0, 0.4});
    if (sms.size() > 1) parameters.push_back({"sm_share", 0.8, 1e-2, 10, 0.7});
    std::map<const Device*, Profile> profiles;
    std::map<std::string, double> authors;
    for (const KernelCall& one : calls) ++authors[one.source];
    for (const KernelCall& one : calls)
      if (!profiles.contains(one.device)) profiles.emplace(one.device, profile_of_(*one.device));
    fit_with_priors(set, parameters, [&](const ParameterSet& trial) {
      std::map<std::pair<const Device*, double>, models::EpKernelModel> resolved;
      std::vector<double> residuals;
      for (const KernelCall& one : calls) {
        auto at = resolved.find({one.device, one.port});
        if (at == resolved.end()) {
          Profile& profile = profiles.at(one.device);
          const std::string network = key + std::string(models::kNetworkLaw);
          profile.set(network, models::with_links(trial, profile, network));
          at =
              resolved
                  .emplace(std::pair(one.device, one.port), models::EpKernelModel(profile, network, one.port))
                  .first;
        }
        residuals.push_back(each(authors, one.source, calls.size()) *
                            std::log(at->second.seconds(one.call) / one.seconds));
      }
      return residuals;
    });
    set.rows = static_cast<int>(calls.size());
    set.systematic = kUnmeasuredNodes;
    set.source = sources_of(sources, 3, false);
    return set;
  }

  const std::function<const Profile&(const Device&)>& profile_of_;
  const FitNetworksOptions& options_;
  std::map<sim::CollectiveOp, std::map<std::string, std::vector<CollectiveRow>>> collectives_;
  std::map<std::string, std::vector<KernelCall>> kernels_;
  std::map<std::string, int> suspect_;
  std::map<std::string, std::unique_ptr<models::Cluster>> clusters_;
};

}  // namespace

std::vector<NetworkProfile> fit_networks(const Measurements& measurements,
                                         const std::function<const Profile&(const Device&)>& profile_of,
                                         const FitNetworksOptions& options) {
  return Fitter(measurements, profile_of, options).run();
}

}  // namespace moesim::calibration

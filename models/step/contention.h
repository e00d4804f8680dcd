// How much longer the transfers of a job take where all its groups send at once over the links of a fabric
// (timing `flow`).
//
// Each kind of transfer is simulated with all groups of the job: the collectives of the layers, one after the
// other on every dispatch group (groups run in step and route alike, which is the worst case), parameters and
// gradients of all replicas, activations and gradients between all stages, alone and beside an exchange. Its
// longest duration is held against that of the same collective alone by the profile's laws. The ratio, at
// least 1, then multiplies the price of the transfer, so that what hides it, waits for it or overlaps it
// follows as without contention; a library's kernel grows as an all-to-all of the same bytes would.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/costs/cluster_costs.h"
#include "models/costs/program_prices.h"
#include "models/hardware/cluster_fabric.h"
#include "models/step/forecast.h"
#include "models/step/layer_programs.h"
#include "models/workload/placement.h"
#include "models/workload/scenario.h"
#include "sim/graph/task_graph.h"
#include "sim/network/fabric.h"
#include "sim/network/router.h"
#include "sim/run/simulator.h"

namespace moesim::models {

// Ranks of each kind of group that are followed; groups beyond are left out.
inline constexpr std::size_t kMostFlowRanks = 1024;
// Ranks of a group that sums gradients; its ring alone has as many flows, whose memory grows with the square:
// 1.4 GB.
inline constexpr std::int64_t kMostFlowReplicas = 8192;
// GPUs of a fabric on which ways are found in seconds: 3 s on 8,192 GPUs, 11 s on 16,384.
inline constexpr std::int64_t kMostFlowGpus = 32768;

class Contention {
 public:
  // All references are kept.
  Contention(const Scenario& scenario, const LayerPrograms& programs, const ProgramPricer& pricer,
             const sim::Fabric& fabric);

  // Multiplies the prices of a pass's collectives. `program`: one of the LayerPrograms', or the dispatcher's
  // for any routing.
  void slow(const Program& program, bool forward, sim::LockstepProgram& priced) const;
  // Of a collective among replicas; bytes as CollectiveModel::seconds() takes them.
  double of_replicas(sim::CollectiveOp op, const Placement::Members& members, double bytes) const;
  // Of activations of `bytes` from a stage to the next one, with the gradients that come back.
  double of_stages(std::int64_t from, std::int64_t to, double bytes) const;

  FlowReport report(double calibrated_us) const {
    return {calibrated_us, static_cast<int>(groups_.size()), busiest_};
  }

 private:
  using Groups = std::vector<std::vector<std::int32_t>>;
  using Factors = std::map<std::string, double, std::less<>>;  // of a pass, by the name of the operation

  // Programs of the dispatcher count as one, whatever they route.
  std::pair<const Program*, bool> key_of(const Program& program, bool forward) const;
  // For so many messages at once.
  sim::RunOptions on_fabric(std::int64_t messages) const;
  // Of a pass on all dispatch groups.
  void follow(const Program& program, const UnevenLoads& loads, bool forward);
  void follow_stages(double bytes) const;

  // The exchange between domains that takes longest in the dispatcher's forward pass, on all dispatch groups.
  struct Exchange {
    sim::TaskGraph graph;
    std::vector<sim::CollectiveShape> shapes;  // of the graph
    double share = 0;                          // of a forward pass in which exchanges hold the network
  };
  std::optional<Exchange> longest_exchange() const;

  const Scenario& s_;
  const LayerPrograms& programs_;
  const ProgramPricer& pricer_;
  const sim::Fabric& fabric_;
  std::unique_ptr<sim::Router> router_;
  ClusterCosts costs_;
  Groups groups_;
  std::map<std::pair<const Program*, bool>, Factors> factors_;
  LinkLoad busiest_;
  mutable std::map<std::tuple<sim::CollectiveOp, const Placement::Replicas*, std::int64_t, bool, double>,
                   double>
      replicas_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, double> stages_;
};

}  // namespace moesim::models

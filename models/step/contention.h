// Slowdown of a job's transfers when all its groups send at once over the links of a fabric (timing `flow`).
//
// Each kind of transfer is simulated with all groups of the job: the collectives of the layers, one after the
// other on every dispatch group (groups run in step and route alike, which is the worst case), parameters and
// gradients of all replicas, activations and gradients between all stages, alone and beside an exchange. The
// ratio of its longest duration to that of the same collective alone under the profile's laws, at least 1,
// multiplies the price of the transfer; overlap and waiting then follow as without contention. A library's
// kernel grows as an all-to-all of the same bytes would.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/costs/cluster_costs.h"
#include "models/costs/program_prices.h"
#include "models/hardware/cluster_fabric.h"
#include "models/programs/program.h"
#include "models/step/forecast.h"
#include "models/step/layer_programs.h"
#include "models/workload/placement.h"
#include "models/workload/scenario.h"
#include "sim/graph/task_graph.h"
#include "sim/network/fabric.h"
#include "sim/network/router.h"
#include "sim/run/lockstep.h"
#include "sim/run/simulator.h"

namespace moesim::models {

// Returns a graph of a pass on dispatch groups that all do the same at the same time and contend for a shared
// network (timing `flow`): rank r of group c is rank groups[c][r] of the graph, a GPU of the cluster; ranks in
// no group are idle. Computing takes its price; collectives carry their bytes and those that travel inside
// them (Op::fused). A collective whose group lies partly outside of the dispatch group takes its price.
sim::TaskGraph layer_graph(const Program& program, const std::vector<Op>& ops, sim::LockstepProgram priced,
                           std::int64_t launch_ps, std::span<const std::vector<std::int32_t>> groups);

// Most ranks simulated for each kind of group; further groups are left out.
inline constexpr std::size_t kMostFlowRanks = 1024;
// Most ranks of a group that sums gradients; its ring alone has as many flows, whose memory grows with the
// square: 1.4 GB.
inline constexpr std::int64_t kMostFlowReplicas = 8192;
// Most GPUs of a fabric; routing takes 3 s on 8,192 GPUs, 11 s on 16,384.
inline constexpr std::int64_t kMostFlowGpus = 32768;

class Contention {
 public:
  // Keeps all references.
  Contention(const Scenario& scenario, const LayerPrograms& programs, const ProgramPricer& pricer,
             const sim::Fabric& fabric);

  // Multiplies the prices of a pass's collectives. `program`: one of the LayerPrograms', or the dispatcher's
  // for any routing.
  void slow(const Program& program, bool forward, sim::LockstepProgram& priced) const;
  // Factor of a collective among replicas; bytes as in CollectiveModel::seconds().
  double of_replicas(sim::CollectiveOp op, const Placement::Members& members, double bytes) const;
  // Factor of sending activations of `bytes` from a stage to the next one while gradients come back.
  double of_stages(std::int64_t from, std::int64_t to, double bytes) const;

  FlowReport report(double calibrated_us) const {
    return {calibrated_us, static_cast<int>(groups_.size()), busiest_};
  }

 private:
  using Groups = std::vector<std::vector<std::int32_t>>;
  using Factors = std::map<std::string, double, std::less<>>;  // of a pass, by the name of the operation

  // All programs of the dispatcher share one key, whatever their routing.
  std::pair<const Program*, bool> key_of(const Program& program, bool forward) const;
  // Options for so many messages at once.
  sim::RunOptions on_fabric(std::int64_t messages) const;
  // Simulates a pass on all dispatch groups.
  void follow(const Program& program, const UnevenLoads& loads, bool forward);
  void follow_stages(double bytes) const;

  // The longest exchange between domains of the dispatcher's forward pass, on all dispatch groups.
  struct Exchange {
    sim::TaskGraph graph;
    std::vector<sim::CollectiveShape> shapes;  // of the graph's collectives
    double share = 0;  // share of a forward pass in which exchanges occupy the network
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

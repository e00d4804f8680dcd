#include "replay/run/layer_flow.h"

#include <algorithm>

#include "models/costs/cluster_costs.h"
#include "replay/run/layer_graph.h"
#include "sim/run/simulator.h"

namespace moesim::replay {

namespace {

constexpr int kMostRanks = 1024;

}  // namespace

int flow_groups(const models::Cluster& cluster, int ranks) {
  return static_cast<int>(
      std::max<std::int64_t>(1, std::min<std::int64_t>(cluster.ranks(), kMostRanks) / std::max(1, ranks)));
}

FlowTiming flow_layer(std::span<const LayerSegment> segments, std::int64_t launch_ps,
                      const models::Cluster& cluster, const sim::Fabric& fabric, int groups) {
  const models::ClusterCosts costs(cluster);
  const sim::TaskGraph graph = layer_graph(segments, launch_ps, groups);
  const int ranks = segments.front().program->ranks();
  sim::RunOptions options;
  options.timing = sim::Timing::flow;
  options.fabric = &fabric;
  options.flow_window = flow_window(std::int64_t{groups} * ranks * ranks);  // of one all-to-all of all groups
  const sim::Timeline timeline = sim::run(graph, costs, options);

  FlowTiming result;
  result.groups = groups;
  result.timing.total_ps = timeline.iteration().ps();
  result.timing.critical_rank = static_cast<int>(timeline.critical_rank().value());
  for (const sim::RankSummary& rank : timeline.ranks()) result.timing.end_ps.push_back(rank.end.ps());
  for (std::size_t c = 0; c < sim::kCategories; ++c)
    result.timing.breakdown_ps[c] = timeline.breakdown()[c].ps();
  result.busiest = busiest_link(timeline, fabric);
  return result;
}

}  // namespace moesim::replay

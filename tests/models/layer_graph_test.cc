// Programs as a task graph: the same times as the recursion, what waits for what, which bytes travel.
#include "models/step/layer_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "models/costs/cluster_costs.h"
#include "models/costs/program_prices.h"
#include "models/dispatchers/dispatcher.h"
#include "models/hardware/cluster.h"
#include "models/programs/program_builder.h"
#include "sim/run/simulator.h"

namespace moesim::models {
namespace {

std::vector<std::vector<std::int32_t>> consecutive(int groups, int ranks) {
  std::vector<std::vector<std::int32_t>> all(static_cast<std::size_t>(groups));
  std::int32_t next = 0;
  for (auto& gpus : all)
    for (int r = 0; r < ranks; ++r) gpus.push_back(next++);
  return all;
}

// The graph of a layer under calibrated prices against the recursion of time_layer().
TEST(LayerGraph, TakesAsLongAsTheRecursionUnderCalibratedPrices) {
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const ProgramPricer prices(cluster);
  const ClusterCosts costs(cluster);
  int compared = 0;
  for (const DispatcherEntry& entry : dispatcher_registry())
    for (const int ep : {4, 16})
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        RoutingSpec spec;
        spec.kind = RoutingSpec::Kind::kUniform;
        const Routing routing = make_routing(spec, ep, 512, 16, 2, seed);
        MoeLayer layer;
        layer.hidden = 1024;
        layer.expert_ffn = 512;
        layer.ep = ep;
        layer.ranks_per_node = 8;
        layer.routing = &routing;
        const auto dispatcher = make_dispatcher(DispatcherSpec::parse(std::string(entry.name)));
        if (rule_against(*dispatcher, layer)) continue;
        const Program program = dispatcher->build(layer);
        const auto own_kernels = [](const std::vector<Op>& pass) {
          return std::any_of(pass.begin(), pass.end(), [](const Op& op) { return op.one_kernel; });
        };
        if (own_kernels(program.forward())) continue;  // their prices are not those of NCCL's collectives
        const GroupShapes shapes(cluster, program);
        const UnevenLoads loads(program, shapes);
        const auto forward = prices.price(program, program.forward(), shapes, loads);
        const auto backward = prices.price(program, program.backward(), shapes, loads);
        const std::vector<PricedPass> segments{{&program, &program.forward(), &forward},
                                               {&program, &program.backward(), &backward}};
        sim::Lockstep clocks(static_cast<std::size_t>(program.ranks()),
                             {prices.launch_ps(), prices.overlap(program)});
        for (const PricedPass& pass : segments) clocks.run({pass.priced});
        const auto recursion = static_cast<double>(clocks.end());
        const double one = static_cast<double>(
            sim::run(layer_graph(segments, prices.launch_ps(), consecutive(1, ep)), costs).iteration().ps());
        EXPECT_NEAR(one / recursion, 1.0, 1e-6) << entry.name << " ep " << ep;
        if (ep == 4) {
          // Groups on the same node shape do the same.
          const double four = static_cast<double>(
              sim::run(layer_graph(segments, prices.launch_ps(), consecutive(4, ep)), costs)
                  .iteration()
                  .ps());
          EXPECT_EQ(four, one) << entry.name;
        }
        ++compared;
      }
  EXPECT_GT(compared, 20);
}

// Two kernels and a wait of the host between them, every one launched: launch, first kernel, copy, second
// launch, second kernel. Prices by hand.
TEST(LayerGraph, AHostThatWaitsLaunchesLater) {
  ProgramBuilder b(1, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.kernel("first", sim::Category::other, KernelClass::kElementwise, b.uniform(0), b.uniform(0));
  b.host_sync("wait", sim::Category::host_sync, b.uniform(8));
  b.kernel("second", sim::Category::other, KernelClass::kElementwise, b.uniform(0), b.uniform(0));
  const Program program = b.finish();
  ASSERT_EQ(program.forward().size(), 4u);  // kernel, copy, wait, kernel
  using Kind = sim::LockstepOp::Kind;
  sim::LockstepProgram priced;
  const auto add = [&](Kind kind, std::int64_t ps, std::int32_t launches, const Op& op) {
    sim::LockstepOp priced_op;
    priced_op.kind = kind;
    priced_op.launches = launches;
    priced_op.after = op.after;
    priced_op.first = static_cast<std::uint32_t>(priced.ps.size());
    priced.ps.push_back(ps);
    priced.ops.push_back(priced_op);
  };
  const std::vector<Op>& ops = program.forward();
  add(Kind::compute, 1000, 1, ops[0]);
  add(Kind::delay, 300, 0, ops[1]);
  add(Kind::host, 50, 0, ops[2]);
  add(Kind::compute, 2000, 1, ops[3]);
  const std::vector<PricedPass> pass{{&program, &program.forward(), &priced}};
  const sim::TaskGraph graph = layer_graph(pass, 100, consecutive(1, 1));
  const ClusterCosts costs(Cluster::load("dgx-h100x1"));
  EXPECT_EQ(sim::run(graph, costs).iteration().ps(), 100 + 1000 + 300 + 50 + 100 + 2000);
}

// Data inside another collective is added to its bytes, without a collective of its own.
TEST(LayerGraph, FusedExchangesAreOne) {
  const auto collectives = [](bool fused) {
    ProgramBuilder b(2, 1);
    b.begin(ProgramBuilder::Pass::kForward);
    const int matrix = b.matrix(GroupKind::kEp, {0, 3, 3, 0});
    b.all_to_all_v("rows", sim::Category::dispatch, DType::kBf16, matrix, false, 100);
    b.all_to_all_v("weights", sim::Category::dispatch, DType::kFp32, matrix, false, 4);
    if (fused) b.mark_kernel(false, true);
    const Program program = b.finish();
    sim::LockstepProgram priced;
    priced.ps = {1};
    for (const Op& op : program.forward()) {
      sim::LockstepOp one;
      one.kind = op.fused ? sim::LockstepOp::Kind::nothing : sim::LockstepOp::Kind::transfer;
      one.after = op.after;
      priced.ops.push_back(one);
    }
    const std::vector<PricedPass> pass{{&program, &program.forward(), &priced}};
    return layer_graph(pass, 0, consecutive(1, 2)).collective_count();
  };
  EXPECT_EQ(collectives(false), 2u);
  EXPECT_EQ(collectives(true), 1u);
}

}  // namespace
}  // namespace moesim::models

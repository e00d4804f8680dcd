// Programs are priced by the models of their operations; dispatch and combine kernels of DeepEP against its
// published bandwidths.
#include "models/costs/program_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/statistics.h"
#include "models/answers/answer.h"
#include "models/costs/recipe.h"
#include "models/hardware/cluster.h"
#include "sim/run/lockstep_graph.h"
#include "sim/run/simulator.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

struct Layer {
  Routing routing;
  MoeLayer layer;
};

// DeepSeek-V3's layer on `ep` ranks, top-8 of 256.
Layer deepseek(int ep, std::int64_t tokens = 4096) {
  Layer made{make_routing(RoutingSpec(), ep, tokens, 256, 8, 1), {}};
  made.routing.set_group_limit(8, 4);
  made.layer.hidden = 7168;
  made.layer.expert_ffn = 2048;
  made.layer.ep = ep;
  return made;
}

double milliseconds(const Program& program, const Cluster& cluster, bool combine) {
  const ProgramPricer costs(cluster);
  const GroupShapes shapes(cluster, program);
  const UnevenLoads loads(program, shapes);
  const sim::LockstepProgram priced = costs.price(program, program.forward(), shapes, loads);
  for (std::size_t i = 0; i < program.forward().size(); ++i) {
    const Op& op = program.forward()[i];
    if (op.library != ExchangeLibrary::kNone && !op.fused && op.transposed == combine)
      return static_cast<double>(priced.at(priced.ops[i], 0)) * 1e-9;
  }
  return 0;
}

std::vector<std::string> warnings_of(const Program& program, const Cluster& cluster) {
  const ProgramPricer costs(cluster);
  const GroupShapes shapes(cluster, program);
  const UnevenLoads loads(program, shapes);
  DomainReport report;
  for (const std::vector<Op>* pass : {&program.forward(), &program.backward()})
    costs.report(program, *pass, costs.price(program, *pass, shapes, loads), shapes, report);
  return report.lines();
}

// DeepSeek-V3's layer over AlltoAll on a node: all operations of both passes, each against its own model.
TEST(ProgramPricer, EveryOperationHasThePriceOfItsModel) {
  Layer made = deepseek(8);
  made.layer.routing = &made.routing;
  const Program p = build("alltoall", made.layer);
  const Cluster cluster = Cluster::load("dgx-h100x1");
  const ProgramPricer costs(cluster);
  const GroupShapes shapes(cluster, p);
  const UnevenLoads loads(p, shapes);
  const KernelModel kernels(cluster.profile);
  const GemmModel gemms(cluster.profile);
  int checked[3] = {0, 0, 0};
  for (const std::vector<Op>* pass : {&p.forward(), &p.backward()}) {
    const sim::LockstepProgram priced = costs.price(p, *pass, shapes, loads);
    ASSERT_EQ(priced.ops.size(), pass->size());
    for (std::size_t i = 0; i < pass->size(); ++i)
      for (int r = 0; r < 8; ++r) {
        const Op& op = (*pass)[i];
        SCOPED_TRACE(::testing::Message() << op.name << ", rank " << r);
        if (op.kind == OpKind::kKernel) {
          EXPECT_EQ(priced.at(priced.ops[i], r),
                    to_ps(kernels.seconds(op.kernel, static_cast<double>(p.value(op.read, r)),
                                          static_cast<double>(p.value(op.written, r)), op.launches)));
          ++checked[0];
        } else if (op.kind == OpKind::kGemm) {
          EXPECT_EQ(priced.at(priced.ops[i], r),
                    to_ps(op.repeat * gemms.grouped_seconds(p.expert_rows(op.table, r), op.n, op.k, op.dtype,
                                                            op.pass, op.backend)));
          ++checked[1];
        } else if (op.kind == OpKind::kCopyToHost) {
          EXPECT_EQ(priced.at(priced.ops[i], r), to_ps(cluster.profile.launch().d2h_copy));
        } else if (op.kind == OpKind::kHostWait) {
          // Time of a blocking copy besides the copy, which is a separate operation.
          EXPECT_EQ(priced.at(priced.ops[i], r) + to_ps(cluster.profile.launch().d2h_copy),
                    to_ps(cluster.profile.launch().host_sync));
          ++checked[2];
        } else if (op.kind == OpKind::kCollective && !op.fused) {
          // Never faster than its links.
          const auto bytes = static_cast<double>(std::max(p.value(op.tx, r), p.value(op.rx, r)));
          EXPECT_GE(static_cast<double>(priced.at(priced.ops[i], r)) * 1e-12,
                    bytes / cluster.nvlink.bandwidth);
        } else if (op.kind == OpKind::kAllocate || op.kind == OpKind::kFree) {
          EXPECT_EQ(priced.at(priced.ops[i], r), 0);
        }
      }
  }
  for (const int count : checked) EXPECT_GT(count, 0);
}

// A group is priced by its placement: inside a node, or with every member on its own node.
// Kernels that the host launches for the experts' products of forward, under Megatron's recipe.
int expert_launches(const std::string& dispatcher, int experts) {
  Layer made{make_routing(RoutingSpec(), 1, 4096, experts, 2, 1), {}};
  made.layer.hidden = 1024;
  made.layer.expert_ffn = 512;
  made.layer.ep = 1;
  made.layer.routing = &made.routing;
  const Program p = build(dispatcher, made.layer);
  const Cluster cluster = Cluster::load("dgx-h100x1");
  const ProgramPricer costs(cluster, Recipe::of(TrainingSettings(), 1));
  const GroupShapes shapes(cluster, p);
  const sim::LockstepProgram priced = costs.price(p, p.forward(), shapes, UnevenLoads(p, shapes));
  int launches = 0;
  for (std::size_t i = 0; i < p.forward().size(); ++i)
    if (p.forward()[i].kind == OpKind::kGemm && p.forward()[i].category == sim::Category::expert)
      launches += static_cast<int>(priced.ops[i].launches);
  return launches;
}

// One batched or grouped product is one launch (and Megatron's few calls around it); Transformer Engine's grouped
// linear layers and loops launch one for each expert: fc1 and fc2 of 120 more experts are 240 more.
TEST(ProgramPricer, BatchedProductsAreLaunchedOnceForAllExperts) {
  for (const char* batched : {"tutel", "megablocks-moe", "torchtitan-local"})
    EXPECT_EQ(expert_launches(batched, 8), expert_launches(batched, 128)) << batched;
  EXPECT_EQ(expert_launches("alltoall", 128) - expert_launches("alltoall", 8), 240);
  EXPECT_EQ(expert_launches("deepspeed", 128) - expert_launches("deepspeed", 8), 240);
}

TEST(ProgramPricer, AGroupAcrossNodesTakesLongerAndNeedsTheNetwork) {
  Layer made = deepseek(8);
  made.layer.routing = &made.routing;
  const Program p = build("alltoall", made.layer);
  const Cluster cluster = Cluster::load("dgx-h100x8");
  const ProgramPricer costs(cluster);
  const auto tokens_ps = [&](const GroupShapes& shapes) {
    const UnevenLoads loads(p, shapes);
    const sim::LockstepProgram priced = costs.price(p, p.forward(), shapes, loads);
    for (std::size_t i = 0; i < p.forward().size(); ++i)
      if (p.forward()[i].kind == OpKind::kCollective && p.forward()[i].name == "tokens")
        return priced.at(priced.ops[i], 0);
    return std::int64_t{0};
  };
  const std::int64_t inside = tokens_ps(GroupShapes(cluster, p)),
                     across = tokens_ps(GroupShapes(cluster, p, 0, 8));
  EXPECT_GT(inside, 0);
  EXPECT_GT(across, 3 * inside);  // 50 GB/s a port against 450 of NVLink
  EXPECT_EQ(tokens_ps(GroupShapes(cluster, p, 8)), inside);
}

// DeepEP V1, H800 (legacy README): EP 8 153 and 158 GB/s over NVLink, counted as tokens x distinct ranks, own
// included; fp8 dispatch (4 more bytes per 128 elements), bf16 combine.
TEST(ExchangeKernel, DeepEpInsideANode) {
  Layer made = deepseek(8);
  made.layer.routing = &made.routing;
  const Program p = build("flex-deepep:fp8_dispatch", made.layer);
  const Cluster cluster = Cluster::load("dgx-h800x1");
  std::int64_t copies = 0;
  for (const std::int64_t d : made.routing.dedup_matrix(8)) copies += d;
  const double per_rank = static_cast<double>(copies) / 8;
  EXPECT_NEAR(milliseconds(p, cluster, false) / (per_rank * (7168 + 224) / 153e9 * 1e3), 1, 0.15);
  EXPECT_NEAR(milliseconds(p, cluster, true) / (per_rank * 7168 * 2 / 158e9 * 1e3), 1, 0.15);
  EXPECT_THAT(warnings_of(p, cluster), ::testing::Not(::testing::Contains(::testing::HasSubstr("DeepEP"))));
}

// Without measurements of the kernel, the rows are an all-to-all, and a warning says so.
TEST(ExchangeKernel, FallsBackWithAWarning) {
  Layer made = deepseek(8);
  made.layer.routing = &made.routing;
  const Program p = build("flex-deepep", made.layer);
  const Cluster cluster = Cluster::load("dgx-a100x1");
  EXPECT_GT(milliseconds(p, cluster, false), 0);
  EXPECT_THAT(
      warnings_of(p, cluster),
      ::testing::Contains(::testing::HasSubstr("DeepEP dispatch kernel was not measured inside a node")));
  // More bytes take longer, never faster than the ports.
  const double seconds =
      milliseconds(build("flex-deepep:sms=256", made.layer), Cluster::load("dgx-h200x1"), true) * 1e-3;
  std::int64_t sent = 0;
  for (const Op& op : messages(p.forward()))
    if (op.name == "tokens" && op.transposed) sent = p.value(op.tx, 0);
  EXPECT_GE(seconds, static_cast<double>(sent) / 450e9);
}

// MoRI-EP on MI355X (8 ranks, 4,096 tokens): 345 GB/s of fp8 and 420 of bf16, own rank counted (ROCm/mori
// README). It runs on AMD's GPUs only: elsewhere its rows are an unmeasured all-to-all.
TEST(ExchangeKernel, MoriIsAmds) {
  using ::testing::Contains, ::testing::HasSubstr, ::testing::Not;
  Layer made = deepseek(8);
  made.layer.routing = &made.routing;
  const Program p = build("flex-deepep:transport=mori:fp8_dispatch", made.layer);
  const Cluster amd = Cluster::load("mi355x-x1"), nvidia = Cluster::load("dgx-h100x1");
  std::int64_t copies = 0;
  for (const std::int64_t d : made.routing.dedup_matrix(8)) copies += d;
  const double per_rank = static_cast<double>(copies) / 8;
  EXPECT_NEAR(milliseconds(p, amd, false) / (per_rank * (7168 + 224) / 345e9 * 1e3), 1, 0.25);
  EXPECT_NEAR(milliseconds(p, amd, true) / (per_rank * 7168 * 2 / 420e9 * 1e3), 1, 0.25);
  EXPECT_THAT(warnings_of(p, amd), Not(Contains(HasSubstr("MoRI-EP"))));
  EXPECT_THAT(warnings_of(p, nvidia),
              Contains(HasSubstr("MoRI-EP dispatch kernel was not measured inside a node, priced as an "
                                 "all-to-all of its rows")));
  EXPECT_FALSE(kernel_is_measured(nvidia.profile, ExchangeLibrary::kMori, false));
  EXPECT_TRUE(kernel_is_measured(amd.profile, ExchangeLibrary::kMori, false));
}

// Data inside an exchange (probabilities, the stage after the network) does not let operations start before
// the exchange has ended.
TEST(ExchangeKernel, WhatFollowsWaitsForIt) {
  Layer made = deepseek(16);
  made.layer.routing = &made.routing;
  const Cluster cluster = Cluster::load("dgx-h100x2");
  const ProgramPricer costs(cluster);
  for (const int per_node : {8, 16})
    for (const char* dispatcher : {"flex-deepep", "flex-hybridep"}) {
      SCOPED_TRACE(::testing::Message() << dispatcher << ", nodes of " << per_node);
      made.layer.ranks_per_node = per_node;
      const Program p = build(dispatcher, made.layer);
      const GroupShapes shapes(cluster, p);
      const UnevenLoads loads(p, shapes);
      int exchanges = 0;
      for (const std::vector<Op>* pass : {&p.forward(), &p.backward()}) {
        const sim::LockstepProgram priced = costs.price(p, *pass, shapes, loads);
        const auto R = static_cast<std::size_t>(p.ranks());
        sim::LockstepGraph written(R, {});
        const sim::LockstepChain chain{&priced};
        const auto tasks = written.run({&chain, 1}, sim::one_by_one(chain),
                                       [](std::size_t, std::size_t, std::size_t) { return ""; })[0][0];
        const sim::TaskGraph graph = written.finalize();
        const sim::Timeline timeline = sim::run(graph, written);
        for (std::size_t i = 0; i < pass->size(); ++i) {
          if ((*pass)[i].library == ExchangeLibrary::kNone || (*pass)[i].fused) continue;
          std::size_t next = i + 1;
          while (next < pass->size() && !sim::LockstepProgram::on_device(priced.ops[next].kind)) ++next;
          if (next == pass->size()) continue;
          ++exchanges;
          for (std::size_t r = 0; r < R; ++r)
            EXPECT_GE(timeline.start(tasks[next * R + r]), timeline.end(tasks[i * R + r])) << (*pass)[i].name;
        }
      }
      EXPECT_EQ(exchanges, 2);  // dispatch and the output gradient; combine and its backward end their passes
    }
}

// Inside an H800 node DeepEP's kernels were measured with 4,096 tokens, on InfiniBand on 16 to 64 ranks.
TEST(ExchangeKernel, IsHeldAgainstRanksAndTokens) {
  using ::testing::AllOf, ::testing::Contains, ::testing::HasSubstr, ::testing::Not;
  const auto warnings = [](int ep, std::int64_t tokens, const char* cluster) {
    Layer made = deepseek(ep, tokens);
    made.layer.routing = &made.routing;
    return warnings_of(build("flex-deepep", made.layer), Cluster::load(std::string(cluster)));
  };
  EXPECT_THAT(warnings(16, 4096, "dgx-h800x2"), Not(Contains(HasSubstr("DeepEP"))));
  EXPECT_THAT(
      warnings(8, 16384, "dgx-h800x1"),
      AllOf(
          Contains("h800-sxm: DeepEP dispatch kernel extrapolates to 16384 tokens (measured 4096 to 4096)"),
          Contains("h800-sxm: DeepEP combine kernel extrapolates to 16384 tokens (measured 4096 to 4096)")));
  EXPECT_THAT(warnings(128, 4096, "dgx-h800x16"),
              Contains("h800-sxm: DeepEP dispatch kernel extrapolates to 128 ranks (measured 16 to 64)"));
}

// A framework's additions to the bare kernels: host time, isolated calls, SMs held by transfers.

Recipe of(Framework framework) {
  TrainingSettings plan;
  plan.framework = framework;
  return Recipe::of(plan, 8);
}

// The 5 %, 50 % and 95 % quantiles of the drawn host time of a launch, against the recipe's own.
std::vector<double> drawn_launches(Framework framework) {
  const Recipe recipe = of(framework);
  std::vector<double> ratios;
  for (int d = 0; d < 2000; ++d) {
    Random random = Random::for_item(7, static_cast<std::uint64_t>(d));
    ratios.push_back(recipe.drawn(random).launch / recipe.launch);
  }
  std::sort(ratios.begin(), ratios.end());
  return {quantile(ratios, 0.05), quantile(ratios, 0.5), quantile(ratios, 0.95)};
}

TEST(Recipe, AStockSetUpLaunchesSlowerThanATunedOne) {
  EXPECT_DOUBLE_EQ(of(Framework::kMegatronRecipe).launch, of(Framework::kMegatron).launch);
  EXPECT_NEAR(of(Framework::kMegatronStock).launch / of(Framework::kMegatronRecipe).launch, 2.1, 1e-12);
}

TEST(Recipe, LeftOpenIsAsWideAsBothTogether) {
  const auto tuned = drawn_launches(Framework::kMegatronRecipe),
             stock = drawn_launches(Framework::kMegatronStock), open = drawn_launches(Framework::kMegatron);
  EXPECT_NEAR(tuned[1], 1, 0.02);
  EXPECT_NEAR(stock[1], 1, 0.02);
  EXPECT_NEAR(open[0], tuned[0], 0.08);
  EXPECT_NEAR(open[2], 2.1 * stock[2], 0.25);
}

TEST(Recipe, BareKernelsAreDrawnAsTheyAre) {
  Random random(1);
  EXPECT_EQ(Recipe::bare().drawn(random), Recipe::bare());
}

sim::Overlap overlap_of(const std::string& dispatcher) {
  const Routing routing = make_routing(RoutingSpec(), 8, 4096, 64, 8, 1);
  MoeLayer layer;
  layer.hidden = 2048;
  layer.expert_ffn = 1024;
  layer.ep = 8;
  layer.routing = &routing;
  const Cluster cluster = Cluster::load("dgx-h100x1");
  return ProgramPricer(cluster, of(Framework::kMegatron)).overlap(build(dispatcher, layer));
}

TEST(Recipe, ComputingLosesTheSmsThatTheKernelsOfTheDispatcherHold) {
  EXPECT_NEAR(overlap_of("flex-deepep").compute, 132.0 / 112, 1e-12);
  EXPECT_NEAR(overlap_of("flex-deepep:sms=24").compute, 132.0 / 108, 1e-12);
  EXPECT_NEAR(overlap_of("alltoall").compute, 132.0 / 116, 1e-12);
  EXPECT_NEAR(overlap_of("flex-deepep:sms=132").compute, 132, 1e-12);
}

// Returns the time of a step whose transfers run beside computing.
double step_us(const std::string& dispatcher) {
  Scenario s;
  s.set_model("qwen3-30b-a3b");
  s.set_cluster("dgx-h100x1");
  s.set_dispatchers(dispatcher);
  s.scope = Scenario::Scope::kStep;
  s.parallel.ep = 8;
  s.parallel.microbatches = 4;
  s.training.overlap.expert_communication = true;
  s.training.launch = LaunchMode::kGraphs;  // otherwise the host decides
  AnswerOptions options;
  options.draws = 0;
  return answer(s, options).answers.front().time_us.value;
}

TEST(Recipe, AllSmsForTheTransferAreNoGainBesideComputing) {
  EXPECT_GT(step_us("flex-deepep:sms=132"), step_us("flex-deepep:sms=20"));
}

}  // namespace
}  // namespace moesim::models::testing

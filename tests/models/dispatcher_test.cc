// Options, rules and the memory formulas of docs/spec.md 2.
#include "models/dispatchers/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/programs/check.h"
#include "models/step/parameter_collectives.h"
#include "models/step/shampoo.h"
#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  try {
    parse_dispatchers(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string rule(const std::string& text, const MoeLayer& layer) {
  return rule_against(*make_dispatcher(DispatcherSpec::parse(text)), layer).value_or("");
}

TEST(DispatcherOptions, BadOnesNameTheNearest) {
  EXPECT_THAT(error_of("alltoal"), HasSubstr("did you mean 'alltoall'"));
  EXPECT_THAT(error_of("alltoall:capacityfactor=1"), HasSubstr("did you mean 'capacity_factor'"));
  EXPECT_THAT(error_of("alltoall:capacity_factor=-1"), HasSubstr("0 to 1"));
  EXPECT_THAT(error_of("alltoall:pad=perhaps"), HasSubstr("true or false"));
  EXPECT_THAT(error_of("alltoall:pad"), HasSubstr("pad without capacity_factor"));
  EXPECT_THAT(error_of("torchtitan-equal-split:policy=adaptve"), HasSubstr("did you mean 'adaptive'"));
  EXPECT_THAT(error_of("flex-hybridep:capacity_factor=2"), HasSubstr("mode=pad"));
  EXPECT_THAT(error_of("alltoall:pad=1:pad=1"), HasSubstr("twice"));
  EXPECT_EQ(parse_dispatchers("all").size(), dispatcher_registry().size());
  EXPECT_EQ(parse_dispatchers("allgather, alltoall:pad_rows=16").size(), 2u);
}

TEST(DispatcherOptions, FromJson) {
  const DispatcherSpec spec = DispatcherSpec::parse(
      JsonNode::parse(R"({"name": "alltoall", "capacity_factor": 1.5, "pad": true})", "s.json"));
  EXPECT_EQ(spec.text(), "alltoall:capacity_factor=1.5:pad=true");
  EXPECT_NO_THROW(make_dispatcher(spec));
  const DispatcherSpec bad =
      DispatcherSpec::parse(JsonNode::parse("{\"name\": \"alltoall\",\n \"pud\": true}", "s.json"));
  EXPECT_THROW(make_dispatcher(bad), InputError);
}

TEST(DispatcherRules, AreNamed) {
  const Routing routing = example_1();
  const Routing top1 = make_routing(RoutingSpec(), 4, 8, 8, 1, 1);
  MoeLayer layer = example_layer(routing);
  EXPECT_THAT(rule("torchtitan-local", layer), HasSubstr("ep 1"));
  EXPECT_THAT(rule("megablocks-dmoe-sparse", layer), HasSubstr("multiple of the block of 128"));
  EXPECT_THAT(rule("torchtitan-equal-split:direct=true", example_layer(top1)),
              HasSubstr("K = local experts"));
  EXPECT_THAT(rule("torchtitan-force-balance:direct=true", example_layer(top1)),
              HasSubstr("K = local experts"));
  EXPECT_THAT(rule("torchtitan-force-balance:direct=true:score_before_experts=true", layer),
              HasSubstr("score_before"));
  EXPECT_THAT(rule("alltoall:shared_overlap=true", layer), HasSubstr("shared expert"));
  EXPECT_THAT(rule("torchtitan-alltoall:experts=batched", layer), HasSubstr("without gradients"));
  EXPECT_THAT(rule("megablocks-moe:memory_optimized=true", layer), HasSubstr("gate"));
  EXPECT_EQ(rule("torchtitan-force-balance:direct=true", layer), "");

  const Routing uneven = Routing::from_choices(8, 2, {{0, 1}, {0, 1, 2, 3}, {0, 1}, {0, 1}});
  EXPECT_THAT(rule("allgather", example_layer(uneven)), HasSubstr("same number of tokens"));
  EXPECT_EQ(rule("alltoall", example_layer(uneven)), "");
  MoeLayer half = example_layer(routing, 2, 2);
  EXPECT_THAT(rule("kempnerforge", half), HasSubstr("etp"));
  MoeLayer nodes = example_layer(routing);
  nodes.ranks_per_node = 3;
  EXPECT_THAT(rule("flex-deepep", nodes), HasSubstr("whole nodes"));
}

TEST(Flex, NodesGetOneCopyAndHandItOn) {
  const Routing routing = example_1();
  MoeLayer layer = example_layer(routing);
  layer.ranks_per_node = 2;
  const Program p = build("flex-deepep", layer);
  const Numbers node = routing.dedup_matrix(2), rank = routing.dedup_matrix(4);
  Numbers network(4), fan_out(4);
  for (int r = 0; r < 4; ++r) network[r] = node[r * 2 + (1 - r / 2)] * 32;
  for (int f = 0; f < 4; ++f)
    for (const int source : {f % 2, f % 2 + 2})
      for (int d = f / 2 * 2; d < f / 2 * 2 + 2; ++d)
        if (d != f) fan_out[f] += rank[source * 4 + d] * 32;
  std::vector<Op> tokens;
  for (const Op& op : messages(p.forward()))
    if (op.name == "tokens" && !op.transposed) tokens.push_back(op);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_TRUE(tokens[0].across_nodes);
  EXPECT_FALSE(tokens[0].fused);
  EXPECT_TRUE(tokens[1].fused);
  EXPECT_EQ(numbers(p, tokens[0].tx), network);
  EXPECT_EQ(numbers(p, tokens[1].tx), fan_out);
  EXPECT_TRUE(check_bytes(p).empty());
}

// What a larger domain's exchange would move over smaller ones is what the smaller domains' exchange moves.
TEST(Flex, LargerDomainsKnowWhatSmallerOnesMove) {
  const Routing routing = make_routing(RoutingSpec::parse("zipf:1"), 8, 64, 16, 3, 7);
  MoeLayer layer = example_layer(routing, 8);
  layer.ranks_per_node = 4;
  EXPECT_TRUE(build("flex-hybridep", layer).smaller_domains().empty());
  layer.ranks_per_node = 8;
  layer.ranks_per_host = 2;
  const Program whole = build("flex-hybridep", layer);
  ASSERT_EQ(whole.smaller_domains().size(), 2u);  // of 2 and of 4
  for (const int size : {2, 4}) {
    SCOPED_TRACE(size);
    layer.ranks_per_node = size;
    layer.ranks_per_host = 0;
    const Program cut = build("flex-hybridep", layer);
    const StagedRows& rows = whole.smaller_domains()[size == 2 ? 0 : 1];
    int stages = 0;
    for (const Op& op : messages(cut.forward())) {
      if (op.name != "tokens") continue;
      ++stages;
      for (int r = 0; r < 8; ++r)
        EXPECT_EQ((op.across_nodes ? rows.network : rows.nvlink)[static_cast<std::size_t>(r)] * op.row_bytes,
                  std::max(cut.value(op.tx, r), cut.value(op.rx, r)));
    }
    EXPECT_EQ(stages, 4);  // of dispatch and of combine
  }
}

TEST(Flex, StaticBudgetDropsWhatIsAbove) {
  const Routing routing = example_2();
  const Program p = build("flex-hybridep:mode=static:rank_capacity_factor=2", example_layer(routing));
  EXPECT_EQ(p.computed_rows, (Numbers{32, 0, 0, 0}));  // T*K*2 of the 64 that arrive
  EXPECT_EQ(p.dropped_rows, 32);
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  const Program hybrid = build("flex-hybridep", example_layer(routing));
  EXPECT_EQ(hybrid.host_syncs(hybrid.forward()), 1);
}

TEST(Memory, FormulasOfTheSpecification) {
  const Routing routing = example_1();
  MoeLayer layer = example_layer(routing);
  const std::int64_t T = 8, K = 2, w = 32, H = 16, F = 32, b = 2, bp = 4, E = 8;
  const Numbers R_d{30, 14, 11, 9};
  const Program titan = build("torchtitan-alltoall", layer),
                forge = build("kempnerforge:replicated=false", layer),
                mega = build("megablocks-dmoe-grouped", layer);
  const Program fused = build("torchtitan-alltoall:fused_activation=true:score_fp32=false", layer);
  const Program unpacked = build("kempnerforge:replicated=false:packed=false", layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(titan.saved_bytes[r],
              T * w + T * K * (16 + bp) + R_d[r] * (8 + w) + R_d[r] * F * b * 4 + T * K * H * 4);
    EXPECT_EQ(fused.saved_bytes[r],
              T * w + T * K * (16 + bp) + R_d[r] * (8 + w) + R_d[r] * F * b * 3 + T * K * H * b);
    EXPECT_EQ(forge.saved_bytes[r], T * w + T * K * (24 + bp) + R_d[r] * w + 4 * R_d[r] * F * b + T * K * w);
    EXPECT_EQ(unpacked.saved_bytes[r], forge.saved_bytes[r] + 3 * 2 * H * F * 2);
    EXPECT_EQ(mega.saved_bytes[r], T * w + T * E * 4 + T * K * 12 + R_d[r] * (w + 4 * F * b) + T * K * w);
  }
  layer.recompute = Recompute::kActivation;
  const Program less = build("alltoall", layer);
  layer.recompute = Recompute::kFull;
  const Program least = build("alltoall", layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(less.saved_bytes[r], build("alltoall", example_layer(routing)).saved_bytes[r] - R_d[r] * F * b);
    EXPECT_EQ(least.saved_bytes[r], T * w);
  }
  // The forward program, with its collectives and its host sync, runs again.
  EXPECT_EQ(messages(least.backward()).size(), messages(least.forward()).size() + 3);
  EXPECT_EQ(least.host_syncs(least.backward()), 1);
}

TEST(Memory, DispatchPeakOfAlltoAll) {
  const Routing routing = example_1();
  const Program p = build("alltoall", example_layer(routing));
  const Numbers R_d{30, 14, 11, 9};
  for (int r = 0; r < 4; ++r) {
    // Saved before the exchange, then T*K*w + R'*w + the sorted rows (saved).
    const std::int64_t at_dispatch = 256 + 320 + 128 + 16 * 32 + R_d[r] * 32 + R_d[r] * 32;
    EXPECT_GE(p.peak_forward_bytes[r], at_dispatch);
    // Combine: R_d*w*(1+[E_l>1]) + T*K*w + T*w on top of what is saved.
    EXPECT_EQ(p.peak_forward_bytes[r], p.saved_bytes[r] + 2 * R_d[r] * 32 + 512 + 256);
  }
}

TEST(KempnerForge, TokensAreReplicatedUnlessRoutingIsGiven) {
  const Routing routing = example_1();
  MoeLayer layer = example_layer(routing);
  const Program drawn = build("kempnerforge", layer);
  EXPECT_TRUE(drawn.tokens_replicated);
  EXPECT_EQ(drawn.computed_rows, (Numbers{4 * 8, 4 * 4, 4 * 2, 4 * 2}));  // EP * S[0][d]
  layer.routing_given = true;
  const Program given = build("kempnerforge", layer);
  EXPECT_FALSE(given.tokens_replicated);
  EXPECT_EQ(given.computed_rows, (Numbers{30, 14, 11, 9}));
}

TEST(Counters, CarryTheNamesOfTheOriginals) {
  const Routing routing = example_3();
  MoeLayer layer = example_layer(routing);
  layer.train = false;
  const Program p =
      build("torchtitan-force-balance:experts=batched:weights_cached=false:scatter_add_in_place=true", layer);
  std::vector<std::string> names;
  for (const auto& [name, count] : p.counters) names.push_back(name);
  for (const char* name : {"score_after_experts", "batched_no_grad_experts", "cached_w13_miss",
                           "cached_w2_t_miss", "scatter_add_inplace_no_grad"})
    EXPECT_THAT(names, ::testing::Contains(name));
}

TEST(Validator, FindsAnInterleavingDeadlock) {
  // Rule F: rank 0 reduces parameters (communicator 1) between the two exchanges (communicator 0), rank 1
  // after them.
  const std::vector<std::vector<IssuedPosition>> order{{{0, 0}, {1, 0}, {0, 1}}, {{0, 0}, {0, 1}, {1, 0}}};
  const auto cycle = find_order_cycle(order);
  ASSERT_TRUE(cycle);
  EXPECT_EQ(cycle->size(), 2u);
  const std::vector<std::vector<IssuedPosition>> fine{{{0, 0}, {0, 1}, {1, 0}}, {{0, 0}, {0, 1}, {1, 0}}};
  EXPECT_FALSE(find_order_cycle(fine));
}

TEST(ParameterCollectives, BytesOfEveryScheme) {
  ParameterTraffic t;
  t.dense_parameters = 1000;
  t.expert_parameters = 600;
  t.dense_group = 4;
  t.expert_group = 2;
  const auto ddp = parameter_collectives(ShardingScheme::kDdp, t);
  ASSERT_EQ(ddp.size(), 2u);
  EXPECT_EQ(ddp[0].tx, 2 * 3 * 1000);  // 2(D-1)/D * P * 4 B
  EXPECT_EQ(ddp[1].tx, 2 * 600 * 4 / 2);
  const auto zero = parameter_collectives(ShardingScheme::kZero1, t);
  ASSERT_EQ(zero.size(), 4u);
  EXPECT_EQ(zero[0].tx, 3000);
  EXPECT_EQ(zero[1].tx, 1500);
  t.microbatches = 2;
  const auto fsdp = parameter_collectives(ShardingScheme::kFsdp, t);
  EXPECT_EQ(fsdp[0].tx, 4 * 1500);  // forward and backward, twice
  EXPECT_EQ(fsdp[1].tx, 2 * 3000);
  t.shard_group = 2;
  const auto hsdp = parameter_collectives(ShardingScheme::kHsdp, t);
  ASSERT_EQ(hsdp.size(), 4u);  // two ranks replicate: of the experts' group of two none is left to shard
  EXPECT_EQ(hsdp[2].kind, CommKind::kAllReduce);
  EXPECT_EQ(hsdp[2].bytes, 500 * 4);
  EXPECT_EQ(hsdp[3].kind, CommKind::kAllReduce);
  EXPECT_EQ(hsdp[3].bytes, 600 * 4);
  t.expert_group = 1;
  EXPECT_EQ(parameter_collectives(ShardingScheme::kDdp, t).size(),
            1u);  // no collective for experts at EDP = 1
  EXPECT_EQ(ddp_bucket_parameters(8), 40'000'000);
  EXPECT_EQ(ddp_bucket_parameters(64), 64'000'000);
}

TEST(ParameterCollectives, Shampoo) {
  using enum ShardingScheme;
  EXPECT_EQ(shampoo_gather(kDdp, "updates", 1000, 2, 4, 0).tx, 1500);
  // Two replicas of two ranks each: a rank's shard is half of the parameters.
  EXPECT_EQ(shampoo_gather(kHsdp, "updates", 1000, 2, 4, 2).bytes, 1000);
  EXPECT_EQ(shampoo_gather(kHsdp, "updates", 1000, 2, 4, 2).tx, 500);
  EXPECT_EQ(shampoo_gather(kFsdp, "updates", 1000, 2, 4, 0).tx, 0);
  EXPECT_EQ(shampoo_work({5, 5, 10}).roots, 1);
  EXPECT_EQ(shampoo_work({5, 5, 11}).roots, 0);
  EXPECT_EQ(shampoo_work({5, 5, 4}).roots, 0);
  EXPECT_LT(shampoo_work({5, 5, 4}).products, shampoo_work({5, 5, 6}).products);
  EXPECT_DOUBLE_EQ(shampoo_work({5, 0, 0}).roots, 0.2);
}

}  // namespace
}  // namespace moesim::models::testing

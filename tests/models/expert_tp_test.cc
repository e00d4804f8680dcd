// Expert tensor parallelism as a dispatcher (docs/spec.md 2.1.3): AllGather's program over slices of every
// expert, alike on all ranks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "models/answers/answer.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {
namespace {

TEST(ExpertTp, Example1) {
  const Example example;
  const Program p = build("expert-tp", example.layer);
  // Messages as AllGather's: over all R ranks, whatever the routing.
  expect_messages(p, p.forward(),
                  {{"routing map", {64}, {256}, {192}, {192}},
                   {"probabilities", {256}, {1024}, {768}, {768}},
                   {"hidden states", {256}, {1024}, {768}, {768}},
                   {"output", {2048}, {512}, {1536}, {1536}}});
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 3264));
  EXPECT_EQ(total_tx(p, p.backward()), Numbers(4, 3072));
  // Every rank computes all R*T*K = 64 rows of a slice F' = 32/4: fc1 has N = 2*8 columns, fc2 K = 8.
  EXPECT_EQ(p.computed_rows, Numbers(4, 64));
  const Op fc1 = the(p.forward(), "fc1"), fc2 = the(p.forward(), "fc2"),
           wgrad = the(p.backward(), "fc2 wgrad");
  EXPECT_EQ(fc1.n, 16);
  EXPECT_EQ(fc1.k, 16);
  EXPECT_EQ(fc2.n, 16);
  EXPECT_EQ(fc2.k, 8);
  EXPECT_EQ(wgrad.k, 8);
  for (int r = 0; r < 4; ++r) {
    const auto rows = p.expert_rows(fc1.table, r);
    EXPECT_EQ(Numbers(rows.begin(), rows.end()), (Numbers{19, 11, 9, 5, 6, 5, 5, 4}));
  }
  // T*w + R*T*E*(1 + b_p) + R_d*(8 + b_p) + R_d*w + R_d*(F_up + F')*b with R_d = 64.
  EXPECT_EQ(p.saved_bytes, Numbers(4, 256 + 32 * 8 * 5 + 64 * 12 + 64 * 32 + 64 * (16 + 8) * 2));
  EXPECT_EQ(p.host_syncs(p.forward()), 2);
}

TEST(ExpertTp, ComputesAlikeWhateverTheRouting) {
  const Example one_rank(example_2());
  const Program p = build("expert-tp", one_rank.layer);
  EXPECT_EQ(p.computed_rows, Numbers(4, 64));  // AllGather: 64 0 0 0
  EXPECT_TRUE(check_bytes(p).empty());
}

// Operations, bytes and memory equal those of Megatron's AllGather in a plan with EP 1 and ETP R.
RC_GTEST_PROP(ExpertTp, IsAllGatherWithEpOne, ()) {
  const RandomLayer random = random_layer(true);
  MoeLayer layer = random.layer;
  RC_PRE(layer.ep > 1);
  layer.expert_ffn = 8 * layer.ranks();
  MoeLayer plan = layer;
  plan.ep = 1;
  plan.etp = layer.ranks();
  const Program a = build("expert-tp", layer), b = build("allgather", plan);
  RC_ASSERT(total_tx(a, a.forward()) == total_tx(b, b.forward()));
  RC_ASSERT(total_tx(a, a.backward()) == total_tx(b, b.backward()));
  RC_ASSERT(a.saved_bytes == b.saved_bytes);
  RC_ASSERT(a.peak_backward_bytes == b.peak_backward_bytes);
  RC_ASSERT(a.computed_rows == b.computed_rows);
  RC_ASSERT(a.forward().size() == b.forward().size());
}

TEST(ExpertTp, RefusesWhatItCannotSplit) {
  Example example;
  example.layer.expert_ffn = 30;
  EXPECT_EQ(rule("expert-tp", example.layer),
            "etp x ep = 4 must divide the experts' inner size 30: a rank holds a slice of each");
  const Example split(example_1(), 1, 4);
  EXPECT_NE(rule("expert-tp", split.layer).find("that is allgather with etp"), std::string::npos);
  Example placed;
  placed.layer.placed = true;
  EXPECT_EQ(rule("expert-tp", placed.layer),
            "every rank holds a slice of every expert: there is no placement");
}

Comparison skewed(Scenario::Scope scope) {
  Scenario s = small_job();
  s.scope = scope;
  s.routing = RoutingSpec::parse("zipf:1");
  s.set_dispatchers("expert-tp,allgather,alltoall");
  AnswerOptions options;
  options.draws = 0;
  return answer(s, options);
}

// Weights, gradients and states of the optimizer take what whole experts take; no rank is busier than
// another.
TEST(ExpertTp, HoldsAsManyWeightsAsWholeExperts) {
  for (const Scenario::Scope scope : {Scenario::Scope::kLayer, Scenario::Scope::kStep}) {
    const Comparison c = skewed(scope);
    const Answer &slices = c.answers[0], &whole = c.answers[1];
    EXPECT_NEAR(slices.overload.printed().max, 1, 1e-9);
    EXPECT_GT(whole.overload.printed().max, 1.2);
    EXPECT_DOUBLE_EQ(slices.memory.worst.parameters, whole.memory.worst.parameters);
    EXPECT_DOUBLE_EQ(slices.memory.worst.gradients, whole.memory.worst.gradients);
    EXPECT_DOUBLE_EQ(slices.memory.worst.optimizer, whole.memory.worst.optimizer);
    EXPECT_TRUE(slices.ranked());
  }
}

// Outputs that some arms sum in the router's type, of more bytes than the rows'.
TEST(Defaults, TheRoutersTypeIsSaidWhereItDecides) {
  const auto said = [](const char* dispatchers, const char* router) {
    Scenario s = small_job();
    s.scope = Scenario::Scope::kLayer;
    s.set_dispatchers(dispatchers);
    if (*router) s.router_dtype = dtype_named(router);
    AnswerOptions options;
    options.draws = 0;
    return answer(s, options).defaults;
  };
  const std::vector<std::string> defaults = said("allgather,alltoall,expert-tp", "");
  ASSERT_EQ(defaults.size(), 1u);
  EXPECT_NE(defaults[0].find("allgather, expert-tp sum outputs in it, 2 x"), std::string::npos)
      << defaults[0];
  EXPECT_TRUE(said("alltoall,flex-deepep", "").empty());
  EXPECT_TRUE(said("allgather", "").empty());
  EXPECT_TRUE(said("allgather,alltoall", "bf16").empty());
  EXPECT_EQ(said("allgather,alltoall", "fp32").size(),
            1u);  // an answer is its scenario's, however that was written
}

}  // namespace
}  // namespace moesim::models::testing

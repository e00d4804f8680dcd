// Shared parts of MegaBlocks' dispatchers (docs/spec.md 2.12): hidden sharding and the layer's options.
#include "models/dispatchers/parts/megablocks.h"

#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

MegablocksOptions options_of(std::map<std::string, std::string, std::less<>> values = {}) {
  DispatcherOptions options("megablocks", std::move(values), "test");
  return MegablocksOptions(options);
}

// Two experts on four ranks: esd = 2, hsd = 2. Rank j hosts expert j mod 2, hidden slice j div 2. Every rank
// sends 3 rows to expert 0 and 1 to expert 1, twice.
TEST(MegablocksFigures, HiddenSlicesGetTheSameRows) {
  const std::vector<std::int32_t> own{0, 0, 0, 1};
  const Example example(Routing::from_choices(2, 1, {own, own, own, own}));
  const MegablocksFigures f(example.layer, options_of());
  EXPECT_EQ(f.esd, 2);
  EXPECT_EQ(f.hsd, 2);
  EXPECT_EQ(f.E_pr, 1);
  EXPECT_EQ(f.F_pr, 16);
  EXPECT_EQ(f.sent, Numbers(4, 4));
  EXPECT_EQ(f.computed, (Numbers{12, 4, 12, 4}));
  EXPECT_EQ(Numbers(f.splits.begin(), f.splits.begin() + 4), (Numbers{3, 1, 3, 1}));
  const Program p = build("megablocks-dmoe-grouped", example.layer);
  expect_messages(p, p.forward(),
                  {{"counts", {2 * 2 * 4}, {2 * 2 * 4}, {12}, {12}},
                   {"tokens",
                    {8 * 32},
                    {12 * 32, 4 * 32, 12 * 32, 4 * 32},
                    {5 * 32, 7 * 32, 5 * 32, 7 * 32},
                    {9 * 32, 3 * 32, 9 * 32, 3 * 32}},
                   {"tokens",
                    {12 * 32, 4 * 32, 12 * 32, 4 * 32},
                    {8 * 32},
                    {9 * 32, 3 * 32, 9 * 32, 3 * 32},
                    {5 * 32, 7 * 32, 5 * 32, 7 * 32}}});
  EXPECT_EQ(numbers(p, the(p.forward(), "repeat rows").written), Numbers(4, 8 * 32));
  EXPECT_EQ(numbers(p, the(p.forward(), "sum of hidden slices").written), Numbers(4, 4 * 32));
  EXPECT_EQ(the(p.forward(), "fc2").k, 16);
}

TEST(MegablocksFigures, RoundRobinTakesThePlaceOfTheRouter) {
  const Example example(example_2());
  EXPECT_EQ(MegablocksFigures(example.layer, options_of()).computed, (Numbers{64, 0, 0, 0}));
  EXPECT_EQ(MegablocksFigures(example.layer, options_of({{"uniform_expert_assignment", "true"}})).computed,
            Numbers(4, 16));
  EXPECT_TRUE(build("megablocks-dmoe-grouped:uniform_expert_assignment=true", example.layer).forces_routing);
}

// Without a gate: R_d*(w + F*b) in the middle term, for the activation is computed again.
TEST(MegablocksProgram, TheMemoryOptimizedMlpKeepsInputAndFirstProduct) {
  Example example;
  example.layer.gated = false;
  const Program plain = build("megablocks-dmoe-grouped", example.layer),
                less = build("megablocks-dmoe-grouped:memory_optimized=true", example.layer),
                kept =
                    build("megablocks-dmoe-grouped:memory_optimized=true:remat_act_fn=false", example.layer);
  const Numbers R_d{30, 14, 11, 9};
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(less.saved_bytes[r], 8 * 32 + 8 * 8 * 4 + 16 * 12 + R_d[r] * (32 + 32 * 2) + 16 * 32);
  EXPECT_EQ(kept.saved_bytes, plain.saved_bytes);
  EXPECT_TRUE(has(less.backward(), "activation again"));
}

// T*E bf16 logits are kept for the z-loss, T rows of noise for the jitter.
TEST(MegablocksProgram, RouterExtrasAreKeptAndUndone) {
  const Example example;
  const Numbers plain = build("megablocks-dmoe-grouped", example.layer).saved_bytes;
  const Program z = build("megablocks-dmoe-grouped:z_loss=true", example.layer),
                jitter = build("megablocks-dmoe-grouped:jitter_eps=0.1", example.layer);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(z.saved_bytes[r], plain[r] + 8 * 8 * 2);
    EXPECT_EQ(jitter.saved_bytes[r], plain[r] + 8 * 32);
  }
  EXPECT_TRUE(has(z.backward(), "z-loss backward"));
  EXPECT_TRUE(has(jitter.backward(), "jitter backward"));
}

TEST(MegablocksOptions, RefuseWhatDoesNotGoTogether) {
  Example example;
  EXPECT_EQ(refusal("megablocks-moe:remat_act_fn=true"),
            "--dispatcher: dispatcher megablocks-moe: found remat_act_fn without memory_optimized, expected "
            "both: it is of that MLP");
  EXPECT_EQ(rule("megablocks-moe:memory_optimized=true", example.layer),
            "memory_optimized needs experts without a gate");
  const Example split(example_1(), 2, 2);
  EXPECT_EQ(rule("megablocks-moe", split.layer),
            "MegaBlocks splits experts over the ep group itself (hidden sharding), not over etp");
  const Example shared(make_routing(RoutingSpec(), 4, 8, 2, 1, 1));
  MoeLayer odd = shared.layer;
  odd.expert_ffn = 33;
  EXPECT_EQ(rule("megablocks-moe", odd),
            "the experts' inner size must be a multiple of the hidden sharding degree ep / experts");
  example.layer.train = false;
  EXPECT_EQ(rule("megablocks-moe:z_loss=true", example.layer),
            "z_loss, jitter_eps and lbl_in_fp32 are of training: the router leaves them out without it");
}

}  // namespace
}  // namespace moesim::models::testing

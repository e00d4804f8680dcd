// torchtitan fork: chunks padded to the largest, equal all-to-all (docs/spec.md 2.7).
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(TorchtitanEqualSplit, Example1) {
  const Example example;
  const Program p = build("torchtitan-equal-split", example.layer);
  // m = 8: EP*m*w = 1024 bytes there and back, (EP-1)*m*w = 768 of them over the wire.
  expect_messages(p, p.forward(),
                  {{"counts", {64}, {64}, {48}, {48}},
                   {"largest chunk", {8}, {8}, {12}, {12}},
                   {"tokens", {1024}, {1024}, {768}, {768}},
                   {"tokens", {1024}, {1024}, {768}, {768}}});
  expect_messages(
      p, p.backward(),
      {{"output gradient", {1024}, {1024}, {768}, {768}}, {"hidden gradient", {1024}, {1024}, {768}, {768}}});
  // docs/spec.md 6.3: counts and both exchanges, 1584, beside the largest chunk.
  EXPECT_EQ(total_tx(p, p.forward()), Numbers(4, 1584 + 12));
  EXPECT_EQ(p.host_syncs(p.forward()), 2);
  EXPECT_EQ(p.computed_rows, (Numbers{30, 14, 11, 9}));  // pad rows are dropped behind the exchange
}

TEST(TorchtitanEqualSplit, Examples2And3) {
  const Example one_rank(example_2()), balanced(example_3());
  const Program skewed = build("torchtitan-equal-split", one_rank.layer),
                equal = build("torchtitan-equal-split", balanced.layer);
  EXPECT_EQ(numbers(skewed, named(skewed.forward(), "tokens")[0].tx), Numbers(4, 1536));
  EXPECT_EQ(numbers(equal, named(equal.forward(), "tokens")[0].tx), Numbers(4, 384));
}

// Overheads 0.391, 1.133, 1.370, 1.560: the worst exceeds 0.10, so that the adaptive policy does not pad.
TEST(TorchtitanEqualSplit, PoliciesDecideForTheWholeGroup) {
  const Example example;
  const Program adaptive = build("torchtitan-equal-split:policy=adaptive", example.layer);
  EXPECT_EQ(named(adaptive.forward(), "tokens")[0].comm, CommKind::kAllToAllV);
  EXPECT_EQ(adaptive.warnings,
            std::vector<std::string>{"the worst padding overhead 1.56 exceeds 0.10: not padded"});
  const Program lenient = build("torchtitan-equal-split:policy=adaptive:threshold=1.57", example.layer);
  EXPECT_EQ(named(lenient.forward(), "tokens")[0].comm, CommKind::kAllToAll);
  EXPECT_TRUE(lenient.warnings.empty());
  // Off, the largest chunk is not reduced: one collective and one read less.
  const Program off = build("torchtitan-equal-split:policy=off", example.layer);
  EXPECT_FALSE(has(off.forward(), "largest chunk"));
  EXPECT_EQ(off.host_syncs(off.forward()), 1);
  EXPECT_EQ(total_tx(off, off.forward()), total_tx(build("torchtitan-alltoall", example.layer),
                                                   build("torchtitan-alltoall", example.layer).forward()));
}

TEST(TorchtitanEqualSplit, CountersAreRowsOfBothExchanges) {
  const Example example;
  const Program p = build("torchtitan-equal-split", example.layer);
  const auto counter = [&](std::string_view name) {
    for (const auto& [key, value] : p.counters)
      if (key == name) return value;
    return std::int64_t{-1};
  };
  EXPECT_EQ(counter("equal_a2a_padding_dispatch"), 1);
  EXPECT_EQ(counter("equal_a2a_padding_combine"), 1);
  EXPECT_EQ(counter("normal_equal_a2a_count"), 2);
  EXPECT_EQ(counter("normal_equal_a2a_sum"), 2 * 4 * 8);
  EXPECT_EQ(counter("normal_equal_a2a_min"), 4 * 8);
  EXPECT_EQ(counter("normal_equal_a2a_max"), 4 * 8);
}

// Zeros are a kernel of their own for each of 4 chunks, there and back; 4 x 8 rows of 32 bytes less the 16
// that a rank has are written, and the copy reads them again.
TEST(TorchtitanEqualSplit, RowsOfZerosAreLaunchesAndBytesOfTheirOwn) {
  const Example example;
  const Program pad = build("torchtitan-equal-split", example.layer),
                cat = build("torchtitan-equal-split:pad_with=cat", example.layer);
  const auto launches = [](const Program& p) {
    int sum = 0;
    for (const Op& op : p.forward())
      if (op.kind == OpKind::kKernel) sum += op.launches;
    return sum;
  };
  EXPECT_EQ(launches(cat) - launches(pad), 2 * 4);
  EXPECT_EQ(cat.value(named(cat.forward(), "rows of zeros")[0].written, 0), (4 * 8 - 16) * 32);
  EXPECT_EQ(cat.value(named(cat.forward(), "chunks with their zeros")[0].read, 0), 4 * 8 * 32);
  EXPECT_EQ(pad.value(named(pad.forward(), "pad chunks")[0].read, 0), 16 * 32);
}

TEST(TorchtitanEqualSplit, RefusesWhatItIsNotFor) {
  const Example example, alone(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1),
      top1(make_routing(RoutingSpec(), 4, 8, 8, 1, 1));
  EXPECT_EQ(rule("torchtitan-equal-split", alone.layer),
            "it needs ep > 1: there is nothing to pad without an exchange");
  EXPECT_EQ(rule("torchtitan-equal-split:direct=true", top1.layer),
            "direct needs K = local experts (E = K*EP), here K = 1 and 2 local experts");
  EXPECT_EQ(rule("torchtitan-equal-split:direct=true", example.layer),
            "direct needs forced balance, use torchtitan-force-balance:direct=true");
  EXPECT_EQ(refusal("torchtitan-equal-split:policy=off:pad_with=cat"),
            "--dispatcher: dispatcher torchtitan-equal-split: found pad_with with policy=off, expected "
            "policy=force or adaptive: nothing is padded");
}

// Identities 9 and 10 in bytes: padding moves at least what the busiest rank sends or receives without it,
// the same on every rank.
RC_GTEST_PROP(TorchtitanEqualSplit, PaddingNeverMovesLess, ()) {
  const RandomLayer random = random_layer(false, false);
  if (random.layer.ep == 1) return;
  const Program padded = build("torchtitan-equal-split", random.layer),
                plain = build("torchtitan-alltoall", random.layer);
  const Op there = named(padded.forward(), "tokens")[0], uneven = named(plain.forward(), "tokens")[0];
  for (int r = 0; r < padded.ranks(); ++r) {
    RC_ASSERT(padded.value(there.tx, r) == padded.value(there.tx, 0));
    RC_ASSERT(padded.value(there.tx, r) >= plain.value(uneven.tx, r));
    RC_ASSERT(padded.value(there.rx, r) >= plain.value(uneven.rx, r));
  }
}

}  // namespace
}  // namespace moesim::models::testing

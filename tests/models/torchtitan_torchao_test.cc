// torchtitan with TorchAO padding (docs/spec.md 2.9): rows of an expert padded behind the exchange.
#include <gtest/gtest.h>

#include "tests/models/layers.h"

namespace moesim::models::testing {
namespace {

TEST(TorchtitanTorchAo, Example1PadsBehindTheExchange) {
  const Example example;
  const Program ao = build("torchtitan-torchao", example.layer),
                plain = build("torchtitan-alltoall", example.layer);
  EXPECT_EQ(ao.computed_rows, (Numbers{48, 32, 32, 32}));
  EXPECT_EQ(ao.dispatched_rows, (Numbers{30, 14, 11, 9}));  // rows of zeros are no tokens
  EXPECT_EQ(total_tx(ao, ao.forward()), total_tx(plain, plain.forward()));
  EXPECT_EQ(total_tx(ao, ao.backward()), total_tx(plain, plain.backward()));
  EXPECT_EQ(build("torchtitan-torchao:multiple=32", example.layer).computed_rows, Numbers(4, 64));
  EXPECT_EQ(build("torchtitan-torchao:multiple=1", example.layer).computed_rows, plain.computed_rows);
}

TEST(TorchtitanTorchAo, EmptyGroupsMayOccupyAMultiple) {
  const Example example(example_2());  // experts 0 and 1 get 32 rows each, the others none
  EXPECT_EQ(build("torchtitan-torchao", example.layer).computed_rows, (Numbers{64, 0, 0, 0}));
  EXPECT_EQ(build("torchtitan-torchao:pad_empty=true", example.layer).computed_rows,
            (Numbers{64, 32, 32, 32}));
}

TEST(TorchtitanTorchAo, ASentinelRowIsAppendedAndStripped) {
  const Example example;
  const Program p = build("torchtitan-torchao", example.layer);
  EXPECT_EQ(numbers(p, the(p.forward(), "append sentinel row").written),
            (Numbers{31 * 32, 15 * 32, 12 * 32, 10 * 32}));
  EXPECT_EQ(numbers(p, the(p.forward(), "strip sentinel row").written),
            (Numbers{30 * 32, 14 * 32, 11 * 32, 9 * 32}));
}

TEST(TorchtitanTorchAo, PadsAlsoWithoutExpertParallelism) {
  const Example example(make_routing(RoutingSpec(), 1, 8, 8, 2, 1), 1);  // 2 rows for each of 8 experts
  const Program p = build("torchtitan-torchao", example.layer);
  EXPECT_TRUE(messages(p.forward()).empty());
  EXPECT_EQ(p.host_syncs(p.forward()), 0);
  EXPECT_EQ(p.computed_rows, Numbers{8 * 16});
}

TEST(TorchtitanTorchAo, TakesNoViewOfRows) {
  const Example example;
  EXPECT_EQ(rule("torchtitan-torchao:experts=fork:contiguous=true", example.layer),
            "contiguous has no effect here: the permutation writes its rows anew");
  EXPECT_EQ(refusal("torchtitan-torchao:multiple=0"),
            "--dispatcher: dispatcher torchtitan-torchao: found multiple='0', expected an integer from 1 to "
            "1048576");
}

}  // namespace
}  // namespace moesim::models::testing

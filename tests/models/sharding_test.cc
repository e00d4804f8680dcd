// Sharding of parameters, as users write it.
#include <gtest/gtest.h>

#include "models/workload/training_settings.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

std::string refusal(const std::string& text) {
  return moesim::testing::message_of([&] { ShardingSpec::parse(text); });
}

TEST(ShardingSpec, NamesAndOptions) {
  for (const ShardingScheme scheme :
       {ShardingScheme::kDdp, ShardingScheme::kZero1, ShardingScheme::kFsdp, ShardingScheme::kHsdp})
    EXPECT_EQ(ShardingSpec::parse(std::string(name_of(scheme))).scheme, scheme);
  EXPECT_EQ(ShardingSpec::parse("distributed-optimizer").scheme, ShardingScheme::kZero1);
  const ShardingSpec spec = ShardingSpec::parse("hsdp:shard=8:reshard=false:shampoo");
  EXPECT_EQ(spec.scheme, ShardingScheme::kHsdp);
  EXPECT_EQ(spec.shard, 8);
  EXPECT_FALSE(spec.reshard);
  EXPECT_TRUE(spec.shampoo);
  EXPECT_EQ(ShardingSpec::parse("hsdp").shard, 0);
  EXPECT_TRUE(ShardingSpec::parse("fsdp").reshard);
}

TEST(ShardingSpec, MistakesAreOneLine) {
  EXPECT_EQ(refusal("fsdp2"),
            "sharding: found 'fsdp2', expected ddp, zero1, fsdp or hsdp; did you mean 'fsdp'?");
  EXPECT_EQ(refusal("hsdp:shard=0"), "sharding: shard: found '0', expected a number of ranks of at least 1");
  EXPECT_EQ(refusal("hsdp:shard=8x"),
            "sharding: shard: found '8x', expected a number of ranks of at least 1");
  EXPECT_EQ(refusal("fsdp:reshard=maybe"), "sharding: reshard: found 'maybe', expected true or false");
  EXPECT_EQ(refusal("fsdp:shard=8"), "sharding: found shard with fsdp, expected it with hsdp");
  EXPECT_EQ(refusal("fsdp:reshards=false"),
            "sharding: found option 'reshards', expected shard, reshard, shampoo or muon; did you mean "
            "'reshard'?");
}

}  // namespace
}  // namespace moesim::models

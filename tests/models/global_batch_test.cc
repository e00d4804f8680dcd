// A batch that stays when the plan changes: how it is written, what it makes of a plan, what it contradicts.
#include "models/workload/global_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/hardware/cluster.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

TEST(GlobalBatch, IsSequencesOrTokens) {
  EXPECT_EQ(GlobalBatch::parse("1024").sequences, 1024);
  EXPECT_DOUBLE_EQ(GlobalBatch::parse("4Mtokens").tokens, 4e6);
  EXPECT_DOUBLE_EQ(GlobalBatch::parse("4194304 tokens").tokens, 4194304);
  for (const char* text : {"1024", "4Mtokens", "62914560tokens", "0.5ktokens"})
    EXPECT_EQ(GlobalBatch::parse(GlobalBatch::parse(text).text()), GlobalBatch::parse(text)) << text;
  for (const char* text : {"", "0", "-4", "4M", "many", "tokens", "-1tokens", "1e30tokens", "3.5"})
    EXPECT_THAT(message_of([&] { GlobalBatch::parse(text); }), HasSubstr("global batch: found ")) << text;
}

TEST(GlobalBatch, SequencesDivideAndTokensComeNear) {
  EXPECT_EQ(GlobalBatch::parse("1024").microbatches(64, 2, 4096), 8);
  EXPECT_EQ(GlobalBatch::parse("1024").microbatches(48, 1, 4096), 0);
  const GlobalBatch tokens = GlobalBatch::parse("4Mtokens");  // 976.6 sequences of 4,096
  EXPECT_EQ(tokens.microbatches(61, 1, 4096), 16);
  EXPECT_EQ(tokens.microbatches(64, 1, 4096), 15);   // 960: 1.7 % fewer
  EXPECT_EQ(tokens.microbatches(1024, 1, 4096), 1);  // 4.9 % more
  EXPECT_EQ(tokens.microbatches(2048, 1, 4096), 0);
  EXPECT_EQ(tokens.microbatches(640, 1, 4096), 0);
}

TEST(GlobalBatch, SaysTheMicrobatchesOfAPlan) {
  Scenario s = testing::small_job();
  s.parallel.microbatches = 1;
  s.batch = GlobalBatch::parse("64");
  Scenario one = s;
  one.resolve();
  EXPECT_EQ(one.parallel.dp, 8);
  EXPECT_EQ(one.parallel.microbatches, 8);
  Scenario piped = s;
  piped.parallel.pp = 2;
  piped.resolve();
  EXPECT_EQ(piped.parallel.microbatches, 16);
  s.give("parallel.microbatches");
  EXPECT_EQ(
      message_of([&] { s.resolve(); }),
      "parallel.microbatches: found 1 beside a global batch of 64, which makes it 8; expected one of them");
  s.parallel.microbatches = 8;
  s.resolve();
  Scenario odd = testing::small_job();
  odd.batch = GlobalBatch::parse("63");
  EXPECT_EQ(
      message_of([&] { odd.resolve(); }),
      "parallel.global_batch: found 63 with dp 8 and 1 sequences in a microbatch, expected a multiple of 8 "
      "sequences of 64 tokens");
}

TEST(GlobalBatch, OfAModelIsItsPublishedOne) {
  const UsualBatch v3 = usual_batch("deepseek-v3", 4096), other = usual_batch("mixtral-8x7b", 8192);
  EXPECT_EQ(v3.batch.sequences, 15360);
  EXPECT_THAT(v3.source, HasSubstr("arXiv 2412.19437"));
  EXPECT_EQ(other.batch.sequences, 512);
  EXPECT_THAT(other.source, HasSubstr("no published one is known"));
}

TEST(Counts, AreReadAsPeopleWriteThem) {
  EXPECT_DOUBLE_EQ(parse_count("--tokens", "15T"), 15e12);
  EXPECT_DOUBLE_EQ(parse_count("--tokens", "300k"), 3e5);
  EXPECT_DOUBLE_EQ(parse_count("--tokens", " 2.5e9 "), 2.5e9);
  for (const char* text : {"", "T", "0", "-1T", "15X", "nan", "inf", "1e19"})
    EXPECT_THAT(message_of([&] { parse_count("--tokens", text); }), HasSubstr("--tokens: found ")) << text;
  EXPECT_EQ(format_count(15e12), "15 T");
  EXPECT_EQ(format_count(4194304), "4.19 M");
}

// The job's GPUs: so many nodes as hold them, and nothing that contradicts the cluster.
TEST(JobGpus, TakeAsManyNodesAsHoldThem) {
  const auto resolved = [](const std::string& cluster, std::int64_t gpus) {
    Scenario s = testing::small_job();
    s.cluster = cluster.empty() ? nullptr : testing::cluster_named(cluster);
    s.gpus = gpus;
    s.resolve();
    return s;
  };
  for (const char* name : {"h100", "dgx-h100", "h100-sxm", ""}) {
    const Scenario s = resolved(name, 32);
    EXPECT_EQ(s.cluster->name, "dgx-h100x4") << name;
    EXPECT_EQ(s.parallel.world(), 32);
  }
  EXPECT_EQ(resolved("gb200", 100).cluster->name, "gb200-nvl72x2");
  EXPECT_EQ(resolved("gb200", 100).parallel.world(), 100);
  EXPECT_EQ(resolved("p5en", 16).cluster->name, "aws-p5enx2");
  EXPECT_EQ(resolved("mi300x", 9).cluster->name, "mi300x-x2");
  EXPECT_EQ(resolved("dgx-h100x2", 12).parallel.world(), 12);
  // Without them: what holds the plan.
  EXPECT_EQ(resolved("b200", 0).cluster->name, "dgx-b200x1");
  EXPECT_EQ(
      message_of([&] { resolved("dgx-h100x2", 64); }),
      "gpus: found 64 with cluster dgx-h100x2 of 16 GPUs, expected 9 to 16, or a cluster without its number "
      "of nodes");
  EXPECT_THAT(message_of([&] { resolved("dgx-h100x2", 8); }),
              HasSubstr("gpus: found 8 with cluster dgx-h100x2"));
}

}  // namespace
}  // namespace moesim::models

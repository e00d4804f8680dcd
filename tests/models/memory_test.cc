// Memory of a rank over the time of one layer, after each allocation and release.
#include "models/programs/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/programs/program_builder.h"

namespace moesim::models {
namespace {

// Keeps 100 bytes, holds 50 more in forward and 30 in backward.
Program small_program() {
  ProgramBuilder b(1, 1);
  b.begin(ProgramBuilder::Pass::kForward);
  b.save("kept", b.uniform(100));
  b.allocate("buffer", b.uniform(50));
  b.free("buffer", b.uniform(50));
  b.begin(ProgramBuilder::Pass::kBackward);
  b.allocate("gradient", b.uniform(30));
  b.free("gradient", b.uniform(30));
  return b.finish();
}

TEST(MemoryOfLayer, FollowsEveryAllocation) {
  RankMemory whole;
  whole.parameters = 600;
  whole.activations = 350;
  whole.transient = 50;
  std::vector<double> levels;
  std::vector<std::string> names;
  for (const MemoryPoint& point : memory_of_layer(small_program(), 0, whole, true)) {
    levels.push_back(point.bytes);
    names.emplace_back(point.what);
  }
  // The whole plan without its transients and this layer: 1000 - 50 - 100.
  EXPECT_THAT(levels, ::testing::ElementsAre(850, 950, 1000, 950, 980, 950, 850));
  EXPECT_THAT(names, ::testing::ElementsAre("everything but this layer", "kept", "buffer", "buffer",
                                            "gradient", "gradient", "saved by forward"));
}

TEST(MemoryOfLayer, ServingEndsWithForward) {
  RankMemory whole;
  whole.parameters = 600;
  const auto points = memory_of_layer(small_program(), 0, whole, false);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points.front().bytes, 600);
  EXPECT_EQ(points.back().bytes, 700);
  for (const MemoryPoint& point : points) EXPECT_TRUE(point.forward);
}

TEST(RankMemory, IsTheSumOfItsCauses) { EXPECT_EQ((RankMemory{1, 2, 4, 8, 16, 32}.total()), 63); }

}  // namespace
}  // namespace moesim::models

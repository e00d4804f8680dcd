#include "models/routing/overload.h"

#include <gtest/gtest.h>

#include "base/input_error.h"

namespace moesim::models {
namespace {

using Rows = std::vector<std::int64_t>;

// The worked example of docs/spec.md 4.2. Entries: L0,m0; L1,m0; L0,m1; L1,m1.
OverloadStage worked_example(std::vector<OverloadEvent> order) {
  const Rows u(4, 16);
  return {{{{{28, 14, 12, 10}, u}, {{16, 16, 16, 16}, u}, {{20, 20, 12, 12}, u}, {{40, 8, 8, 8}, u}},
           {{{16, 16, 16, 16}, u}, {{24, 16, 12, 12}, u}, {{32, 16, 8, 8}, u}, {{18, 18, 14, 14}, u}}},
          std::move(order)};
}

const std::vector<OverloadEvent> kBothInFlight{{0, true},  {1, true},  {2, true},  {3, true},
                                               {1, false}, {0, false}, {3, false}, {2, false}};
const std::vector<OverloadEvent> kOneByOne{{0, true}, {1, true}, {1, false}, {0, false},
                                           {2, true}, {3, true}, {3, false}, {2, false}};

TEST(Overload, WorkedExample) {
  const OverloadStage stage = worked_example(kBothInFlight);
  const std::vector<double> f0{1.75, 1.00, 1.25, 2.50}, f1{1.00, 1.50, 2.00, 1.125};
  for (std::size_t x = 0; x < 4; ++x) {
    EXPECT_NEAR(overload_factor(stage.replicas[0][x]), f0[x], 1e-8);
    EXPECT_NEAR(overload_factor(stage.replicas[1][x]), f1[x], 1e-8);
  }
  const std::vector<Overload> result = overload_of({&stage, 1});
  EXPECT_NEAR(result[0].avg, 1.515625, 1e-8);
  EXPECT_NEAR(result[0].max, 2.5, 1e-8);
  EXPECT_NEAR(result[0].max_cum, 1.625, 1e-8);
  const OverloadStage sequential = worked_example(kOneByOne);
  EXPECT_NEAR(overload_of({&sequential, 1})[0].max_cum, 1.875, 1e-8);
}

TEST(Overload, StageWithoutExpertsLogsZeroAverageAndTheSameMaxima) {
  const std::vector<OverloadStage> stages{worked_example(kBothInFlight), {}};
  const std::vector<Overload> result = overload_of(stages);
  EXPECT_EQ(result[1].avg, 0);
  EXPECT_EQ(result[1].max, result[0].max);
  EXPECT_EQ(result[1].max_cum, result[0].max_cum);
}

TEST(Overload, QuirkMakesAllGatherFactorsRTimesLarger) {
  const OverloadEntry entry{{28, 14, 12, 10}, Rows(4, 16)};
  EXPECT_NEAR(overload_factor(entry, {.allgather_quirk = true}), 4 * 1.75, 1e-6);
  const OverloadEntry alone{{28}, {28}};
  EXPECT_NEAR(overload_factor(alone, {.allgather_quirk = true}), 1, 1e-8);
  // The balanced counts of the cumulative factor are the same ones.
  const OverloadStage stage = worked_example(kOneByOne);
  const Overload quirk = overload_of({&stage, 1}, {.allgather_quirk = true}).front();
  EXPECT_NEAR(quirk.avg, 4 * 1.515625, 1e-6);
  EXPECT_NEAR(quirk.max, 4 * 2.5, 1e-6);
  EXPECT_NEAR(quirk.max_cum, 4 * 1.875, 1e-6);
}

TEST(Overload, RejectsReplicasThatDiffer) {
  OverloadStage stage = worked_example(kOneByOne);
  stage.replicas[1].pop_back();
  EXPECT_THROW(overload_of({&stage, 1}), InputError);
  OverloadStage other = worked_example({{9, true}});
  EXPECT_THROW(overload_of({&other, 1}), InputError);
}

TEST(Overload, BuffersFollow) {
  const OverloadBuffers buffers = buffers_from({1.5, 2.5, 1.625}, 16, 64);
  EXPECT_DOUBLE_EQ(buffers.forward_rows, 40);
  EXPECT_DOUBLE_EQ(buffers.retained_rows, 104);
}

}  // namespace
}  // namespace moesim::models

// Two breakdowns side by side: what another rank that ends last moves between computing and waiting.
#include "models/answers/breakdown_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/answers/sentences.h"
#include "models/workload/scenario.h"

namespace moesim::models {
namespace {

using sim::Category;
using ::testing::HasSubstr;
using ::testing::Not;

Breakdown breakdown(double expert, double wait, double dispatch) {
  Breakdown b{};
  b[static_cast<std::size_t>(Category::expert)] = expert;
  b[static_cast<std::size_t>(Category::straggler_wait)] = wait;
  b[static_cast<std::size_t>(Category::dispatch)] = dispatch;
  return b;
}

std::vector<std::string> names(const std::vector<BreakdownPart>& parts) {
  std::vector<std::string> all;
  for (const BreakdownPart& part : parts) all.push_back(part.name);
  return all;
}

const std::vector<BreakdownPart> kParts{{"dispatch", {Category::dispatch}},
                                        {"experts", {Category::expert}},
                                        {"waiting", {Category::straggler_wait}}};

TEST(Portions, ComputingAndWaitingThatTradePlacesAreOne) {
  const Breakdown waits = breakdown(10, 50, 8), computes = breakdown(58, 0, 6);
  const std::vector<BreakdownPart> one = comparable_parts(kParts, waits, computes);
  ASSERT_EQ(names(one), (std::vector<std::string>{"dispatch", "computing and waiting for it"}));
  EXPECT_DOUBLE_EQ(one[1].us(waits), 60);
  EXPECT_DOUBLE_EQ(one[1].us(computes), 58);
  EXPECT_EQ(names(comparable_parts(kParts, computes, waits)), names(one));
  // More of both is no trade, and neither is more of one.
  EXPECT_EQ(names(comparable_parts(kParts, waits, breakdown(12, 60, 6))), names(kParts));
  EXPECT_EQ(names(comparable_parts(kParts, waits, breakdown(10, 60, 6))), names(kParts));
}

// The last of the flex-deepep ranks is the busiest with this seed, and the last of alltoall's waits for it.
TEST(Portions, AComparisonDoesNotNameWhatOnlyTheRankMoved) {
  Scenario scenario = Scenario::parse(JsonNode::parse(R"({
    "model": {"base": "mixtral-8x7b", "layers": 8}, "cluster": "echo-h800x2", "seed": 4, "routing": "zipf:1.2",
    "parallel": {"pp": 2, "ep": 4, "dp": 8, "seq": 1024, "microbatches": 8}, "dispatcher": "alltoall,flex-deepep"
  })",
                                                      "test"));
  const Comparison c = answer(std::move(scenario), {.draws = 0});
  ASSERT_NE(c.answers[0].critical_rank, c.answers[1].critical_rank);
  EXPECT_THAT(because(c), HasSubstr("flex-deepep saves"));
  EXPECT_THAT(because(c), Not(HasSubstr("in the experts")));
  EXPECT_THAT(because(c), Not(HasSubstr("waiting for slower ranks")));
}

}  // namespace
}  // namespace moesim::models

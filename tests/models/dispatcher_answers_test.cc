// What answers say of dispatchers that split or move experts (docs/spec.md 2.1.3, 2.15): what balancing costs and
// saves, whose memory it takes, and which defaults decide.
#include <gtest/gtest.h>

#include "models/answers/answer.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {
namespace {

Comparison compared(const std::string& dispatchers, Scenario::Scope scope, const std::string& routing) {
  Scenario s = small_job();
  s.model.hidden = 4096;
  s.model.expert_ffn = 4096;
  s.parallel.seq = 8192;
  s.scope = scope;
  s.routing = RoutingSpec::parse(routing);
  s.set_dispatchers(dispatchers);
  AnswerOptions options;
  options.draws = 0;
  return answer(s, options);
}

TEST(Balanced, TheBreakEvenIsWhereBothTakeTheSame) {
  const std::string arm = "alltoall:balance=least-loaded:min_rows=1";
  const Comparison c = compared("alltoall," + arm, Scenario::Scope::kLayer, "zipf:1.5");
  ASSERT_TRUE(c.answers[1].balance);
  EXPECT_FALSE(c.answers[0].balance);
  const Answer::Balance& b = *c.answers[1].balance;
  EXPECT_GT(b.busiest_before, 1.4);
  EXPECT_LT(b.busiest, 1.15);
  EXPECT_GT(b.paid_us, 0);
  EXPECT_NEAR(c.answers[0].time_us.value - c.answers[1].time_us.value, b.saved_us - b.paid_us, 1e-3);
  EXPECT_GT(b.saved_us, b.paid_us);
  EXPECT_NEAR(b.break_even_tokens, 8192 * b.paid_us / b.saved_us, 1e-6);
}

TEST(Balanced, CopiesTakeMemoryAndBalanceAStep) {
  const Comparison c =
      compared("alltoall,alltoall:balance=eplb:slots=16,alltoall:balance=least-loaded:min_rows=1",
               Scenario::Scope::kStep, "zipf:1.5");
  const Answer &plain = c.answers[0], &copies = c.answers[1], &moved = c.answers[2];
  EXPECT_GT(copies.memory.worst.parameters, plain.memory.worst.parameters);
  EXPECT_EQ(moved.memory.worst.parameters, plain.memory.worst.parameters);
  EXPECT_LT(copies.overload.printed().max, plain.overload.printed().max);
  EXPECT_LT(moved.overload.printed().max, 1.15);
  EXPECT_TRUE(copies.balance && moved.balance);
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
    if (*router) s.set_router_dtype(router);
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

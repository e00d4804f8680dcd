// Dispatchers that balance (docs/spec.md 2.15): redirected rows with their weights, copies with their
// gradients, and what both cost and save.
#include "models/dispatchers/parts/balanced.h"

#include <gtest/gtest.h>

#include "models/answers/answer.h"
#include "tests/models/check_bytes.h"
#include "tests/models/layers.h"
#include "tests/models/small_job.h"

namespace moesim::models::testing {
namespace {

constexpr std::int64_t kExpert = 16 * 3 * 32 * 2;  // bytes of an expert's bf16 weights in the examples

TEST(Balanced, LeastLoadedMovesRowsAndWeights) {
  const Example example;
  const Program plain = build("alltoall", example.layer),
                p = build("alltoall:balance=least-loaded:limit=1:min_rows=1", example.layer);
  EXPECT_EQ(plain.computed_rows, (Numbers{30, 14, 11, 9}));
  EXPECT_EQ(p.computed_rows, Numbers(4, 16));
  EXPECT_EQ(numbers(p, named(p.forward(), "tokens").front().in),
            Numbers(4, 512));  // every rank sends what it sent
  const Op weights = the(p.forward(), "weights of moved experts"),
           gradients = the(p.backward(), "gradients of copies");
  EXPECT_EQ(weights.row_bytes, kExpert);
  EXPECT_EQ(weights.group, GroupKind::kEp);
  // Expert 0 alone has more rows than its rank may compute: three others take 14 of its 19.
  EXPECT_EQ(numbers(p, weights.tx), (Numbers{3 * kExpert, 0, 0, 0}));
  EXPECT_EQ(numbers(p, weights.rx), (Numbers{0, kExpert, kExpert, kExpert}));
  EXPECT_EQ(numbers(p, gradients.tx), numbers(p, weights.rx));
  EXPECT_TRUE(check_bytes(p).empty());
  // Weights of others stay until backward, besides two rows more and a map over three slots a rank.
  EXPECT_EQ(
      p.saved_bytes[1] -
          build("alltoall:balance=least-loaded:limit=1:min_rows=1:threshold=9", example.layer).saved_bytes[1],
      kExpert + 2 * (3 * 32 * 2 + 32 + 4) + 8 * 4 * (1 + 4));
}

TEST(Balanced, EplbSumsGradientsOfCopiesOnceAStep) {
  Example example;
  example.layer.microbatches = 4;
  const Program p = build("alltoall:balance=eplb:slots=12", example.layer);
  // N = 19 11 9 5 6 5 5 4: the copies go to experts 0, 1, 0 and 2.
  EXPECT_FALSE(has(p.forward(), "weights of moved experts"));
  const Op there = the(p.backward(), "gradients of copies"), back = the(p.backward(), "summed gradients");
  EXPECT_EQ(there.row_bytes, 16 * 3 * 32 * 4 / 4);  // fp32, a fourth of it in every microbatch
  std::int64_t sent = 0;
  for (const std::int64_t bytes : numbers(p, there.tx)) sent += bytes;
  EXPECT_EQ(sent % there.row_bytes, 0);
  EXPECT_LE(sent, 4 * there.row_bytes);
  EXPECT_EQ(numbers(p, there.tx), numbers(p, back.rx));
  EXPECT_LT(*std::max_element(p.computed_rows.begin(), p.computed_rows.end()), 30);
  EXPECT_TRUE(check_bytes(p).empty());
}

// Experts are dealt out by what was known before, not by the rows that they then get.
TEST(Balanced, EplbSeesTheLoadOfBefore) {
  Example example;
  const Numbers flat(8, 1);
  example.layer.load = &flat;
  EXPECT_EQ(build("alltoall:balance=eplb:slots=8", example.layer).computed_rows, (Numbers{25, 16, 14, 9}));
}

TEST(Balanced, RefusesWhatCannotMove) {
  const Example example, split(example_1(), 2, 2);
  EXPECT_NE(refusal("allgather:balance=eplb:slots=8").find("rows go to whole experts"), std::string::npos);
  EXPECT_NE(refusal("alltoall:capacity_factor=1:balance=least-loaded").find("without a capacity"),
            std::string::npos);
  EXPECT_NE(refusal("alltoall:balance=eplb").find("expected slots=N"), std::string::npos);
  EXPECT_NE(refusal("alltoall:balance=best").find("eplb"), std::string::npos);
  EXPECT_NE(refusal("alltoall:slots=8").find("slots"), std::string::npos);
  EXPECT_NE(refusal("alltoall:balance=least-loaded:slots=8").find("slots"), std::string::npos);
  EXPECT_EQ(rule("alltoall:balance=eplb:slots=10", example.layer),
            "slots must be a multiple of ep 4 and at least the 8 experts, 10 are not");
  EXPECT_EQ(rule("alltoall:balance=least-loaded", split.layer), "balance moves whole experts: etp must be 1");
  Example placed;
  placed.layer.placed = true;
  EXPECT_NE(rule("flex-deepep:balance=least-loaded", placed.layer).find("--placement"), std::string::npos);
}

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

}  // namespace
}  // namespace moesim::models::testing

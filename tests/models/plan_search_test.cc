// The search for the best plan: what it tries and counts, that it finds what trying finds, and its refusal.
#include "models/answers/plan_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using ::testing::HasSubstr;

PlanSearchOptions options(bool parallel, bool dispatcher, bool recompute) {
  PlanSearchOptions o;
  o.parallel = parallel;
  o.dispatcher = dispatcher;
  o.recompute = recompute;
  o.draws = 0;
  o.threads = 1;
  o.top = 1000;
  return o;
}

std::int64_t counted(const PlanSearchResult& r) {
  return r.forecast + r.illegal + r.does_not_fit + r.slower + r.skipped;
}

// Four dispatchers and four recomputations of one plan, each answered as a comparison answers it.
TEST(PlanSearch, FindsTheBestOfASmallSpace) {
  const PlanSearchResult r = search_plans(testing::small_job(), options(false, true, true));
  EXPECT_EQ(r.candidates, 16);
  EXPECT_EQ(counted(r), 16);
  EXPECT_EQ(r.method, "exhaustive: every combination was tried");
  EXPECT_EQ(r.best.size(), static_cast<std::size_t>(r.forecast));
  double before = 0;
  for (const RankedPlan& plan : r.best) {
    EXPECT_GE(plan.answer.time_us.value, before);
    before = plan.answer.time_us.value;
    EXPECT_TRUE(plan.answer.memory.fits);
    EXPECT_DOUBLE_EQ(answer(*plan.scenario, {.draws = 0}).answers.front().time_us.value,
                     plan.answer.time_us.value);
  }
  EXPECT_EQ(
      r.space,
      "dispatchers alltoall, allgather, flex-deepep, flex-hybridep; recomputation none, "
      "layernorm+moe_act, core_attn+layernorm+moe, full; precision, schedule, overlap, launch, sharding "
      "as given");
}

// Eight GPUs, a batch of 8 x 2 sequences: every plan uses all and keeps it, none is shown twice.
TEST(PlanSearch, ParallelPlansUseAllGpusAndKeepTheBatch) {
  const PlanSearchResult r = search_plans(testing::small_job(), options(true, false, false));
  EXPECT_EQ(counted(r), r.candidates);
  EXPECT_EQ(r.skipped, 0);
  EXPECT_GT(r.forecast, 20);
  std::set<std::string> different;
  bool the_given_one = false;
  for (const RankedPlan& plan : r.best) {
    const Parallel& p = plan.scenario->parallel;
    EXPECT_EQ(p.world(), 8);
    EXPECT_EQ(p.dp * p.microbatches * p.micro_batch, 8 * 2);
    EXPECT_EQ(8 % p.ep, 0);
    different.insert(std::to_string(p.tp) + "," + std::to_string(p.cp) + "," + std::to_string(p.pp) + "," +
                     std::to_string(p.vpp) + "," + std::to_string(p.ep) + "," + std::to_string(p.etp) + "," +
                     std::to_string(p.micro_batch));
    the_given_one = the_given_one || (p.tp == 1 && p.pp == 1 && p.ep == 4 && p.micro_batch == 1);
  }
  EXPECT_EQ(different.size(), r.best.size());
  EXPECT_TRUE(the_given_one);
}

PlanSearchOptions all_axes() {
  PlanSearchOptions o = options(true, true, true);
  o.most = 40'000;  // to the end
  o.schedule = o.overlap = o.launch = true;
  o.top = 1;
  return o;
}

double per_token(const RankedPlan& plan) { return plan.answer.time_us.value / plan.answer.tokens; }

// Branch and bound against trying everything, for a job that the host bounds and one that the GPUs bound: it
// may miss what it says at most.
TEST(PlanSearch, BranchAndBoundFindsWhatTryingEverythingFinds) {
  for (const char* routing : {"balanced", "zipf:1.2"})
    for (const bool large : {false, true}) {
      Scenario s = testing::small_job(large ? "dgx-h100x2" : "dgx-h100x1");
      s.routing = RoutingSpec::parse(routing);
      if (large) {
        s.model.hidden = 4096, s.model.expert_ffn = 2048, s.model.dense_ffn = 8192,
        s.model.vocabulary = 32768;
        s.parallel.seq = 2048;
      }
      s.set_dispatchers("alltoall,flex-hybridep");
      s.give("dispatcher");
      PlanSearchOptions o = all_axes();
      const PlanSearchResult found = search_plans(s, o);
      EXPECT_LE(found.gap, 0.0051);
      EXPECT_EQ(counted(found), found.candidates);
      o.exhaustive = true;
      const PlanSearchResult all = search_plans(s, o);
      EXPECT_EQ(all.forecast + all.illegal + all.does_not_fit, all.candidates);
      EXPECT_LE(per_token(found.best.front()) * (1 - found.gap), per_token(all.best.front()) * (1 + 1e-9))
          << routing << (large ? " large" : "");
      // A skewed routing is drawn anew for the fastest few alone, which may change their order.
      const double drawn = routing == std::string_view("balanced") ? 1e-9 : 0.01;
      EXPECT_GE(per_token(found.best.front()), per_token(all.best.front()) * (1 - drawn));
    }
}

// A capacity drops rows of a skewed routing, which makes it faster than a balanced one.
TEST(PlanSearch, BranchAndBoundHoldsWhereRowsAreDropped) {
  Scenario s = testing::small_job();
  s.routing = RoutingSpec::parse("zipf:1.5");
  s.model.hidden = 4096, s.model.expert_ffn = 2048, s.parallel.seq = 2048;
  s.set_dispatchers("alltoall:capacity_factor=0.5");
  s.give("dispatcher");
  PlanSearchOptions o = all_axes();
  o.keep_given = true;
  const PlanSearchResult found = search_plans(s, o);
  o.exhaustive = true;
  const PlanSearchResult all = search_plans(s, o);
  EXPECT_LE(per_token(found.best.front()) * (1 - found.gap), per_token(all.best.front()) * (1 + 1e-9));
}

// A small budget of forecasts leaves out some plans and says so; the result is no better than the complete
// one.
TEST(PlanSearch, SaysWhereItEnded) {
  PlanSearchOptions o = all_axes();
  const PlanSearchResult all = search_plans(testing::small_job(), o);
  o.most = 1;
  const PlanSearchResult some = search_plans(testing::small_job(), o);
  EXPECT_EQ(counted(some), some.candidates);
  EXPECT_EQ(some.candidates, all.candidates);
  EXPECT_GE(per_token(some.best.front()), per_token(all.best.front()));
  EXPECT_GE(some.skipped, all.skipped);
  EXPECT_THAT(some.method, HasSubstr("it ended after"));
}

// The order in which dispatchers are named changes nothing, and another one to choose from is never worse.
TEST(PlanSearch, MoreToChooseFromIsNeverWorse) {
  const auto best = [](const char* dispatchers) {
    Scenario s = testing::small_job();
    s.set_dispatchers(dispatchers);
    s.give("dispatcher");
    PlanSearchOptions o = all_axes();
    o.keep_given = true;
    return per_token(search_plans(s, o).best.front());
  };
  EXPECT_EQ(best("alltoall,flex-hybridep"), best("flex-hybridep,alltoall"));
  EXPECT_LE(best("alltoall,flex-hybridep"), std::min(best("alltoall"), best("flex-hybridep")) * 1.0051);
}

TEST(PlanSearch, SaysTheSameOnAnyNumberOfThreads) {
  PlanSearchOptions o = options(true, true, false);
  o.top = 5;
  const PlanSearchResult one = search_plans(testing::small_job(), o);
  o.threads = 3;
  std::int64_t told = 0;
  o.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_LE(done, total);
    EXPECT_GE(done, told);
    told = done;
  };
  const PlanSearchResult three = search_plans(testing::small_job(), o);
  EXPECT_GT(told, 0);
  ASSERT_EQ(one.best.size(), three.best.size());
  EXPECT_EQ(one.rules, three.rules);
  for (std::size_t i = 0; i < one.best.size(); ++i)
    EXPECT_EQ(one.best[i].answer.time_us.value, three.best[i].answer.time_us.value);
}

TEST(PlanSearch, NamesARuleWhereNothingIsLegal) {
  Scenario s = testing::small_job();
  s.set_dispatchers("torchtitan-local");
  const PlanSearchResult none = search_plans(s, options(false, false, false));
  EXPECT_FALSE(none.too_large());
  EXPECT_EQ(moesim::testing::message_of([&] { none.fastest(); }),
            "plan search: found no legal plan among 1, expected at least one; --dispatcher: dispatcher "
            "torchtitan-local: it is for ep 1: every rank holds all experts");
}

// A plan whose dispatch kernels nobody measured is left out by itself, not with all plans of its dispatcher.
TEST(PlanSearch, LeavesOutUnmeasuredKernelsPlanByPlan) {
  PlanSearchOptions o = options(true, true, false);
  const auto best = [&](bool exhaustive) {
    o.exhaustive = exhaustive;
    return search_plans(testing::small_job(), o);
  };
  const auto unmeasured = [](const RankedPlan& plan) { return plan.answer.unmeasured_exchange(); };
  std::vector<double> measured;
  for (const RankedPlan& plan : best(true).best)
    if (!unmeasured(plan)) measured.push_back(per_token(plan));
  o.measured = true;
  const PlanSearchResult all = best(true);
  ASSERT_EQ(all.best.size(), measured.size());
  for (std::size_t i = 0; i < measured.size(); ++i) EXPECT_EQ(per_token(all.best[i]), measured[i]);
  EXPECT_TRUE(std::ranges::none_of(all.best, unmeasured));
  EXPECT_FALSE(all.unmeasured.empty());
  EXPECT_EQ(counted(all), all.candidates);
  o.top = 1;
  EXPECT_LE(per_token(best(false).best.front()), measured.front() * 1.0051);
}

}  // namespace
}  // namespace moesim::models

// The programs of a job's layers: which routing every layer has, which kinds there are, who is refused.
#include "models/step/layer_programs.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using testing::small_job;

// A resolved scenario and what is made of it, which keeps references to it.
struct Job {
  explicit Job(Scenario given) : scenario(testing::resolved(std::move(given))) {}
  Scenario scenario;
  JobRouting routing{scenario};
  Placement placement{scenario};

  LayerPrograms programs() const {
    return {scenario, scenario.dispatchers.front(), routing, placement, placement.dispatch_classes().front()};
  }
};

Scenario routed(const std::string& routing) {
  Scenario s = small_job();
  s.routing = RoutingSpec::parse(routing);
  return s;
}

std::vector<std::int64_t> counts_of(const Routing& routing) {
  std::vector<std::int64_t> all;
  for (int r = 0; r < routing.ranks(); ++r)
    all.insert(all.end(), routing.counts(r).begin(), routing.counts(r).end());
  return all;
}

TEST(JobRouting, IsDrawnForEveryLayerAndMicrobatchUnlessShared) {
  Scenario s = routed("zipf:1.2"), shared = routed("zipf:1.2:shared"), even = routed("balanced");
  s.resolve(), shared.resolve(), even.resolve();
  const JobRouting apart(s), alike(shared), balanced(even);
  EXPECT_FALSE(apart.shared());
  EXPECT_TRUE(alike.shared());
  EXPECT_TRUE(balanced.shared());
  EXPECT_NE(counts_of(apart.of(0, 0)), counts_of(apart.of(1, 0)));
  EXPECT_NE(counts_of(apart.of(0, 0)), counts_of(apart.of(0, 1)));
  EXPECT_EQ(counts_of(apart.of(2, 1)), counts_of(apart.of(2, 1)));
  EXPECT_EQ(counts_of(alike.of(2, 1)), counts_of(alike.of(0, 0)));
  // Each routes T*K rows of every rank.
  for (const Routing& routing : {apart.of(0, 0), apart.of(1, 1)})
    for (int r = 0; r < 4; ++r) EXPECT_EQ(routing.rows(r), 64 * 2);
}

TEST(JobRouting, TheCacheChangesNothing) {
  Scenario s = routed("gini:0.3");
  s.resolve();
  RoutingCache cache;
  const JobRouting fresh(s), cached(s, &cache), again(s, &cache);
  for (const int microbatch : {0, 1}) {
    EXPECT_EQ(counts_of(fresh.of(0, microbatch)), counts_of(cached.of(0, microbatch)));
    EXPECT_EQ(counts_of(fresh.of(1, microbatch)), counts_of(again.of(1, microbatch)));
  }
}

// Copies of experts are slots of their own; every row still goes somewhere.
TEST(JobRouting, PlacedExpertsHaveAsManySlotsAsAsked) {
  Scenario s = routed("zipf:1.2");
  s.placement = PlacementSpec::parse("balanced:slots=12");
  const Job job(s);
  const Routing placed = job.routing.of(0, 0);
  EXPECT_EQ(placed.experts(), 12);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(placed.rows(r), 64 * 2);
  EXPECT_EQ(job.programs().experts(), 12);
}

TEST(LayerPrograms, KnowTheKindsOfLayersAndTheirPlacesAmongMoeLayers) {
  const Job job(small_job());
  const LayerPrograms programs = job.programs();
  ASSERT_EQ(programs.kinds().size(), 2u);  // attention with a dense FFN, with experts
  EXPECT_EQ(std::vector<std::size_t>(programs.kind_of_layer().begin(), programs.kind_of_layer().end()),
            (std::vector<std::size_t>{0, 1, 1, 1}));
  EXPECT_EQ(programs.ordinal(1), 0);
  EXPECT_EQ(programs.ordinal(3), 2);
  EXPECT_EQ(programs.ranks(), 4);
  EXPECT_EQ(programs.experts(), 8);
  EXPECT_EQ(programs.first()->program.computed_rows, std::vector<std::int64_t>(4, 64 * 2));
  // Made once.
  EXPECT_EQ(&programs.before(1), &programs.before(1));
  EXPECT_NE(&programs.before(0), &programs.before(1));
}

TEST(LayerPrograms, FollowTheRoutingOfTheirLayer) {
  const Job job(routed("zipf:1.5"));
  const LayerPrograms programs = job.programs();
  for (const int layer : {0, 1, 2}) {
    const Routing routing = job.routing.of(layer, 1);
    const MoeProgram moe = programs.moe(layer, 1);
    const auto rows = routing.split_matrix(4);
    for (std::size_t d = 0; d < 4; ++d)
      EXPECT_EQ(moe.program.computed_rows[d], rows[d] + rows[4 + d] + rows[8 + d] + rows[12 + d]);
  }
}

// The shared expert is in the part that no dispatcher changes, unless the dispatcher overlaps it.
TEST(LayerPrograms, TheSharedExpertIsInOneOfTheTwo) {
  const auto has_shared = [](const char* dispatcher) {
    Scenario s = small_job();
    s.model.shared_ffn = 32;
    s.set_dispatchers(dispatcher);
    const Job job(s);
    const LayerPrograms programs = job.programs();
    int dense = 0, own = 0;
    for (const Op& op : programs.before(1).forward()) dense += op.name == "FFN up" ? 1 : 0;
    for (const Op& op : programs.first()->program.forward()) own += op.name == "shared fc1" ? 1 : 0;
    return std::pair(dense, own);
  };
  EXPECT_EQ(has_shared("alltoall"), std::pair(1, 0));
  EXPECT_EQ(has_shared("alltoall:shared_overlap=true"), std::pair(0, 1));
}

TEST(LayerPrograms, OfADenseModelTheDispatcherHasNothingToDo) {
  Scenario s = small_job();
  s.model.experts = s.model.topk = 0;
  s.model.dense_layers = 0;
  s.parallel.ep = 1;
  const Job job(s);
  const LayerPrograms programs = job.programs();
  EXPECT_TRUE(programs.first()->program.forward().empty());
  EXPECT_EQ(programs.kinds().size(), 1u);
  EXPECT_TRUE(job.routing.shared());
}

TEST(LayerPrograms, NameTheRuleThatForbidsADispatcher) {
  Scenario s = small_job();
  s.set_dispatchers("torchtitan-local");
  const Job job(s);
  EXPECT_EQ(message_of([&] { job.programs(); }),
            "--dispatcher: dispatcher torchtitan-local: it is for ep 1: every rank holds all experts");
  EXPECT_EQ(
      rule_against(job.scenario, job.scenario.dispatchers.front(), job.routing, job.placement).value_or(""),
      "it is for ep 1: every rank holds all experts");
  EXPECT_FALSE(rule_against(job.scenario, DispatcherSpec::parse("alltoall"), job.routing, job.placement));
}

// Programs of several classes of groups share what no dispatcher changes.
TEST(ProgramsOfClasses, OneForEveryClass) {
  const Job job(small_job());
  const auto programs =
      programs_of_classes(job.scenario, job.scenario.dispatchers.front(), job.routing, job.placement);
  ASSERT_EQ(programs.size(), job.placement.dispatch_classes().size());
  for (const auto& each : programs) EXPECT_EQ(each->dense(), programs.front()->dense());
}

}  // namespace
}  // namespace moesim::models

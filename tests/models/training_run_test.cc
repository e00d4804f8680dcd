// A whole training: its days and money by hand, the plan that trying everything finds, and what more budget,
// more time and a faster machine can do.
#include "models/answers/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/input_error.h"
#include "models/hardware/hardware.h"
#include "models/hardware/rental_list.h"
#include "models/step/faults.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

// 64 sequences of 64 tokens; only parallel sizes are open.
RunQuestion small_question(const std::vector<std::string>& machines = {"dgx-h100x1"}) {
  RunQuestion q;
  Scenario& s = q.scenario;
  s.model = testing::small_model();
  s.scope = Scenario::Scope::kStep;
  s.parallel.seq = 64;
  s.batch = GlobalBatch::parse("64");
  s.set_dispatchers("alltoall");
  for (const char* path : {"dispatcher", "training.recompute", "training.schedule",
                           "training.overlap.gradients", "training.launch", "training.precision"})
    s.give(path);
  q.tokens = 1e9;
  for (const std::string& name : machines) q.machines.push_back({testing::cluster_named(name), {}});
  q.prices.price = 2;
  q.draws = 0;
  q.threads = 1;
  q.most = 1'000'000;
  q.upgrades = false;
  return q;
}

// Everything that could be done on a machine, one after the other.
double cheapest_by_trying(const RunQuestion& q, const std::string& machine) {
  double cheapest = INFINITY;
  const std::shared_ptr<const Cluster> cluster = testing::cluster_named(machine);
  const std::int64_t gpus = cluster->ranks();
  for (std::int64_t tp = 1; tp <= gpus; ++tp)
    for (std::int64_t pp = 1; pp <= gpus; ++pp)
      for (std::int64_t vpp = 1; vpp <= 8; vpp *= 2)
        for (std::int64_t ep = 1; ep <= 8; ++ep)
          for (std::int64_t etp = 1; etp <= gpus; ++etp)
            for (std::int64_t micro = 1; micro <= 64; micro *= 2) {
              if (gpus % (tp * pp) != 0 || (etp != 1 && etp != tp) || (vpp > 1 && pp == 1)) continue;
              // Restrictions of Megatron and of the search: powers of two inside a node.
              if (tp > 8 || (tp & (tp - 1)) != 0 || 4 % tp != 0 || pp * vpp > 4) continue;
              const std::int64_t dp = gpus / (tp * pp);
              if (64 % (dp * micro) != 0 || (vpp > 1 && 64 / (dp * micro) % pp != 0)) continue;
              try {
                Scenario s = q.scenario;
                s.cluster = cluster;
                s.parallel.tp = tp, s.parallel.pp = pp, s.parallel.vpp = vpp, s.parallel.dp = dp;
                s.parallel.ep = ep, s.parallel.etp = etp, s.parallel.micro_batch = micro;
                s.give("parallel.dp");
                const Comparison c = answer(s, {.draws = 0});
                const Answer& a = c.answers.front();
                if (a.memory.fits_probability < Decision::kSure) continue;
                const double hours = q.tokens / (64.0 * 64.0) * a.seconds() / 3600;
                cheapest = std::min(cheapest, hours * static_cast<double>(gpus) * q.prices.price);
              } catch (const InputError&) {
              }
            }
  return cheapest;
}

TEST(TrainingRun, FindsWhatTryingEverythingFinds) {
  const std::vector<std::string> machines{"dgx-h100x1", "dgx-h200x1", "dgx-h100x2"};
  const RunQuestion q = small_question(machines);
  const RunAnswer a = plan_run(q);
  EXPECT_TRUE(a.exhaustive);
  EXPECT_EQ(a.tried, a.candidates);
  EXPECT_EQ(a.method, "exhaustive: every combination was tried");
  ASSERT_EQ(a.plans.size(), 3u);
  double best = INFINITY;
  for (const std::string& machine : machines) {
    const double cheapest = cheapest_by_trying(q, machine);
    best = std::min(best, cheapest);
    for (const PricedTraining& p : a.plans)
      if (p.scenario->cluster->name == machine) {
        EXPECT_NEAR(p.cost.value, cheapest, cheapest * 1e-9) << machine;
      }
  }
  EXPECT_NEAR(a.plans.front().cost.value, best, best * 1e-9);
}

// A search ends where no plan that is left can be faster by more than half a percent.
TEST(TrainingRun, SaysHowFarFromTheBestItCanBe) {
  RunQuestion q = small_question({"dgx-h100x2"});
  const RunAnswer a = plan_run(q);
  EXPECT_TRUE(a.exhaustive);
  EXPECT_GE(a.gap, 0);
  EXPECT_LE(a.gap, 0.0051);
}

// 1e9 tokens in steps of 4,096 are 244,140.625 steps of 10 ms: 2,441.4 s of work; of 12 GPUs on two nodes of
// eight, four are idle and paid.
TEST(TrainingRun, DaysAndMoneyByHand) {
  RunQuestion q = small_question();
  auto scenario = std::make_shared<Scenario>(q.scenario);
  scenario->cluster = testing::cluster_named("dgx-h100x2");
  Answer step;
  step.time_us = {1e4, 0.9e4, 1.2e4};
  step.draws_us = {0.9e4, 1.0e4, 1.2e4};
  step.tokens = 4096;
  step.gpus = 12;
  step.breakdown_us[static_cast<std::size_t>(sim::Category::expert)] = 1e4;
  const PricedTraining ideal = judge_run(q, scenario, step);
  const double seconds = 1e9 / 4096 * 0.01;
  EXPECT_NEAR(ideal.days.value, seconds / 86400, 1e-12);
  EXPECT_NEAR(ideal.days.high, 1.2 * seconds / 86400, 1e-12);
  EXPECT_EQ(ideal.gpus, 16);
  EXPECT_EQ(ideal.idle_gpus, 4);
  EXPECT_NEAR(ideal.cost.value, seconds / 3600 * 16 * 2, 1e-9);
  // 8 GPUs that compute at 0.97 of 700 W and 1,600 W beside them, through supplies of 96 %: 7,325 W a node.
  ASSERT_TRUE(ideal.energy);
  EXPECT_NEAR(ideal.energy->node_watts.value, 7325, 1e-6);
  EXPECT_NEAR(ideal.mwh(), seconds / 3600 * 1.5 * 7325e-6, 1e-9);
  EXPECT_NEAR(ideal.energy->joules_per_token.value, 1.5 * 7325 * 0.01 / 4096, 1e-9);
  q.power_watts = 10e3;  // 1.5 nodes draw 11.3 kW at their peak
  EXPECT_FALSE(judge_run(q, scenario, step).meets);
  q.power_watts = 12e3;
  EXPECT_TRUE(judge_run(q, scenario, step).meets);
  q.power_watts = 0;
  // Half the time is lost to failures; a kWh costs 0.1 beside the rent.
  step.goodput.share = 0.5;
  q.ownership.kwh = 0.1, q.ownership.pue = 1.25;
  const PricedTraining real = judge_run(q, scenario, step);
  EXPECT_NEAR(real.days.value, 2 * seconds / 86400, 1e-12);
  EXPECT_NEAR(real.cost.value, 2 * seconds / 3600 * (16 * 2 + 20.4 * 1.25 * 0.1), 1e-9);
  // A deadline at the forecast is kept about as often as not, one far beyond it nearly always.
  q.deadline_days = real.days.value;
  EXPECT_NEAR(judge_run(q, scenario, step).deadline_probability, 0.5, 0.1);
  q.deadline_days *= 3;
  const PricedTraining late = judge_run(q, scenario, step);
  EXPECT_GT(late.deadline_probability, 0.8);
  q.budget = real.cost.value / 3;
  EXPECT_LT(judge_run(q, scenario, step).budget_probability, 0.2);
  EXPECT_FALSE(judge_run(q, scenario, step).meets);
  step.goodput.share = 0;
  EXPECT_THAT(message_of([&] { judge_run(q, scenario, step); }),
              HasSubstr("fail before a checkpoint is done"));
}

// A bought machine costs its years, and the plan is chosen by what is paid: of a cheap and a dear one.
TEST(TrainingRun, BoughtMachinesStandBesideRentedOnes) {
  RunQuestion q = small_question({"dgx-h100x1", "dgx-h200x1"});
  q.ownership.buy.by_profile["h200-sxm"] = 30'000;
  q.ownership.idle_share = 0.25;
  const RunAnswer a = plan_run(q);
  ASSERT_EQ(a.plans.size(), 2u);
  const PricedTraining& bought = a.plans[a.plans[0].hour.bought ? 0 : 1];
  EXPECT_EQ(bought.scenario->cluster->profile.name(), "h200-sxm");
  EXPECT_NEAR(bought.cost.value, bought.days.value * 24 * 8 * 30'000 / (5 * 8766 * 0.75),
              1e-9 * bought.cost.value);
  EXPECT_DOUBLE_EQ(bought.hour.rent, 16);
  EXPECT_TRUE(a.plans[0].hour.bought);  // 0.91 an hour where the rent is 2
  q.ownership.buy.by_profile["h200-sxm"] = 300'000;
  EXPECT_FALSE(plan_run(q).plans[0].hour.bought);
}

RunQuestion of_sizes() {
  RunQuestion q = small_question();
  q.machines = {{testing::cluster_named("h100"), {8, 16, 32}}, {testing::cluster_named("b200"), {8, 16}}};
  q.prices.price = 0;
  q.prices.by_profile = {{"h100-sxm", 2}, {"b200-sxm", 5}};
  q.most = 60;
  q.draws = 8;
  return q;
}

TEST(TrainingRun, MoreBudgetIsNeverLater) {
  RunQuestion q = of_sizes();
  const double cheapest = plan_run(q).plans.front().cost.value;
  q.by = RunQuestion::By::kTime;
  double before = INFINITY;
  for (const double factor : {1.0, 1.5, 2.0, 3.0, 10.0}) {
    q.budget = cheapest * factor;
    const PricedTraining best = plan_run(q).plans.front();
    if (!best.meets) continue;
    EXPECT_LE(best.days.value, before);
    EXPECT_GE(best.budget_probability, Decision::kSure);
    before = best.days.value;
  }
  EXPECT_LT(before, INFINITY);
}

TEST(TrainingRun, MoreTimeNeverCostsMore) {
  RunQuestion q = of_sizes();
  q.by = RunQuestion::By::kTime;
  const double fastest = plan_run(q).plans.front().days.value;
  q.by = RunQuestion::By::kCost;
  double before = INFINITY;
  for (const double factor : {1.0, 1.5, 2.0, 3.0, 10.0}) {
    q.deadline_days = fastest * factor;
    const PricedTraining best = plan_run(q).plans.front();
    if (!best.meets) continue;
    EXPECT_LE(best.cost.value, before);
    before = best.cost.value;
  }
  EXPECT_LT(before, INFINITY);
}

TEST(TrainingRun, TheFrontierIsWhatNothingBeats) {
  const RunAnswer a = plan_run(of_sizes());
  int on = 0;
  for (const PricedTraining& p : a.plans) {
    const bool beaten = std::any_of(a.plans.begin(), a.plans.end(), [&](const PricedTraining& o) {
      return o.days.value <= p.days.value && o.cost.value <= p.cost.value &&
             (o.days.value < p.days.value || o.cost.value < p.cost.value);
    });
    EXPECT_EQ(p.on_frontier, !beaten);
    on += p.on_frontier ? 1 : 0;
  }
  EXPECT_GE(on, 1);
  EXPECT_TRUE(a.plans.front().on_frontier);
  for (std::size_t i = 1; i < a.plans.size(); ++i) EXPECT_GE(a.plans[i].tie_group, a.plans[i - 1].tie_group);
}

// A network twice as fast saves time or nothing, and is worth what the saved days cost.
TEST(TrainingRun, AFasterMachineIsNeverSlower) {
  RunQuestion q = small_question({"dgx-h100x2"});
  q.upgrades = true;
  const RunAnswer a = plan_run(q);
  const PricedTraining& best = a.plans.front();
  ASSERT_GE(a.upgrades.size(), 2u);
  EXPECT_THAT(a.upgrades[0].change, HasSubstr("network port 50.0 GB/s -> 100.0 GB/s"));
  EXPECT_THAT(a.upgrades.back().change, HasSubstr("GPU h100-sxm -> dgx-h200"));
  for (const Upgrade& u : a.upgrades) {
    EXPECT_LE(u.days.value, best.days.value * (1 + 1e-9)) << u.change;
    if (u.saved_days.value <= 0) continue;
    EXPECT_NEAR(u.worth, best.cost.value * u.saved_days.value / best.days.value, 1e-9 * best.cost.value);
    EXPECT_NEAR(u.most_gpu_hour * u.days.value * 24 * 16, best.cost.value, 1e-6 * best.cost.value)
        << u.change;
  }
}

TEST(TrainingRun, OtherPrecisionsStandApart) {
  RunQuestion q = small_question();
  q.scenario.given.reset(index_of(*find_field("training.precision")));
  const RunAnswer a = plan_run(q);
  ASSERT_EQ(a.plans.size(), 2u);
  EXPECT_FALSE(a.plans[0].other);
  EXPECT_EQ(a.plans[0].scenario->training.precision, "bf16");
  EXPECT_TRUE(a.plans[1].other);
  EXPECT_NE(a.plans[1].scenario->training.precision, "bf16");
  EXPECT_NE(a.plans[1].tie_group, a.plans[0].tie_group);
  EXPECT_FALSE(a.plans[1].on_frontier);
}

TEST(TrainingRun, RefusesWhatHasNoPriceOrNoPlan) {
  RunQuestion q = small_question({"dgx-h800x1"});
  q.prices = RentalList::shipped().prices();
  EXPECT_THAT(message_of([&] { plan_run(q); }),
              HasSubstr("no price of it is known; --prices h800-sxm=2.50 says one"));
  RunQuestion big = small_question({"dgx-h100x1"});
  big.scenario.model = Architecture::load("deepseek-v3");
  EXPECT_THAT(
      message_of([&] { plan_run(big); }),
      HasSubstr("plan: found no plan of deepseek-v3 on dgx-h100x1, expected one: plan search: none of "));
  EXPECT_THAT(message_of([&] { plan_run(big); }), HasSubstr("expected at least 112 GPUs"));
  RunQuestion odd = small_question();
  odd.scenario.parallel.cp = 3;
  odd.scenario.give("parallel.cp");
  EXPECT_THAT(
      message_of([&] { plan_run(odd); }),
      HasSubstr("found no parallel sizes for 8 GPUs and a global batch of 64 with --cp 3, expected one "
                "such as --cp 1"));
}

// Every price that ships says where and when it was read.
TEST(RentalList, PricesHaveASourceAndADate) {
  const RentalList& list = RentalList::shipped();
  EXPECT_GE(list.gpu_hour.size(), 5u);
  const auto profiles = Profile::names();
  for (const auto& [profile, entry] : list.gpu_hour) {
    EXPECT_NE(std::find(profiles.begin(), profiles.end(), profile), profiles.end()) << profile;
    EXPECT_GT(entry.value, 0.5);
    EXPECT_THAT(entry.source, HasSubstr("https://")) << profile;
    EXPECT_EQ(entry.read.size(), 10u) << profile;
  }
  for (const auto& [profile, entry] : list.watts)
    EXPECT_THAT(entry.source, HasSubstr("data sheet")) << profile;
  for (const auto& [profile, entry] : list.node_watts) EXPECT_FALSE(entry.source.empty()) << profile;
  EXPECT_DOUBLE_EQ(list.prices().per_hour("h100-sxm", 8, 8), 49.24);
}

TEST(UsualFailures, AreThoseOfALargePublishedTraining) {
  const Goodput g = goodput(usual_failures(), 16384, 5);
  EXPECT_NEAR(g.failures_per_day * 54, 419, 1);
  EXPECT_GT(g.share, 0.9);  // "over 90 % effective training time"
  EXPECT_LT(g.share, 1);
}

// The window of GPU counts knows what was asked for (issue 41, point 1).
TEST(UsualGpus, ReachADeadlineAndABudget) {
  const Architecture model = Architecture::load("qwen3-30b-a3b");
  const Cluster b200 = Cluster::load("b200");
  const auto most = [&](double deadline, bool limited) {
    return usual_gpus(model, b200, 1e12, deadline, limited).back();
  };
  EXPECT_LT(most(0, false), most(8, false));
  EXPECT_EQ(most(60, false), most(0, false));  // a deadline that is held anyway changes nothing
  EXPECT_GE(most(0, true), most(8, false));
}

// Without a framework the plan is Megatron-LM's, which has neither DualPipe nor zero-bubble schedules, and a
// graph of the whole iteration cannot hold a dispatcher that waits for the host (issue 41, point 4).
TEST(TrainingRun, ProposesWhatTheFrameworkRuns) {
  RunQuestion q;
  q.scenario.set_model("olmoe");
  q.scenario.scope = Scenario::Scope::kStep;
  q.scenario.batch.sequences = 256;
  q.scenario.give("parallel.global_batch");
  q.tokens = 1e11;
  q.draws = 4;
  q.most = 60;
  q.upgrades = q.lower_precision = false;
  q.prices.price = 1;
  q.machines = {{std::make_shared<const Cluster>(Cluster::load("dgx-h100x4")), {}}};
  for (const PricedTraining& plan : plan_run(q).plans) {
    EXPECT_EQ(plan.scenario->training.pipeline, PipelineKind::k1F1B);
    const std::string& dispatcher = plan.scenario->dispatchers.front().name;
    if (plan.scenario->training.launch == LaunchMode::kGraphs) {
      EXPECT_TRUE(dispatcher == "flex-hybridep" || dispatcher == "nccl-ep") << dispatcher;
    }
  }
}

}  // namespace
}  // namespace moesim::models

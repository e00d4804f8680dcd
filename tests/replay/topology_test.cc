// Rank order and groups, against the worked tables of the rank grids.
#include "replay/recording/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/hardware/cluster_fabric.h"
#include "recording_builder.h"
#include "replay/job/synthesize.h"
#include "replay/run/attribution.h"
#include "replay/run/forecast.h"
#include "replay/run/model_pricing.h"
#include "tests/message_of.h"

namespace moesim::replay {
namespace {

using ::testing::HasSubstr;
using Groups = std::vector<std::vector<int>>;
using models::Cluster;
using moesim::testing::message_of;

Topology topology(int tp, int expert, int expert_dp, int pp) {
  return {.tp = tp, .expert = expert, .expert_dp = expert_dp, .pp = pp};
}

struct Row {
  int rank, pp, expert, expert_dp;
  std::vector<int> expert_group = {}, expert_dp_group = {}, pipeline = {};
};

TEST(Topology, SixteenRanksPp2Ep4) {
  const Topology t = topology(1, 4, 2, 2);
  EXPECT_EQ(t.world(), 16);
  EXPECT_EQ(t.dp(), 8);
  const std::vector<Row> rows{
      {0, 0, 0, 0, {0, 1, 2, 3}, {0, 4}, {0, 8}},         {1, 0, 1, 0, {0, 1, 2, 3}, {1, 5}, {1, 9}},
      {2, 0, 2, 0, {0, 1, 2, 3}, {2, 6}, {2, 10}},        {3, 0, 3, 0, {0, 1, 2, 3}, {3, 7}, {3, 11}},
      {4, 0, 0, 1, {4, 5, 6, 7}, {0, 4}, {4, 12}},        {5, 0, 1, 1, {4, 5, 6, 7}, {1, 5}, {5, 13}},
      {6, 0, 2, 1, {4, 5, 6, 7}, {2, 6}, {6, 14}},        {7, 0, 3, 1, {4, 5, 6, 7}, {3, 7}, {7, 15}},
      {8, 1, 0, 0, {8, 9, 10, 11}, {8, 12}, {0, 8}},      {9, 1, 1, 0, {8, 9, 10, 11}, {9, 13}, {1, 9}},
      {10, 1, 2, 0, {8, 9, 10, 11}, {10, 14}, {2, 10}},   {11, 1, 3, 0, {8, 9, 10, 11}, {11, 15}, {3, 11}},
      {12, 1, 0, 1, {12, 13, 14, 15}, {8, 12}, {4, 12}},  {13, 1, 1, 1, {12, 13, 14, 15}, {9, 13}, {5, 13}},
      {14, 1, 2, 1, {12, 13, 14, 15}, {10, 14}, {6, 14}}, {15, 1, 3, 1, {12, 13, 14, 15}, {11, 15}, {7, 15}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.rank);
    const Coordinates at = t.of(row.rank);
    EXPECT_EQ(at, (Coordinates{0, row.expert, row.expert_dp, row.pp}));
    EXPECT_EQ(t.rank(at), row.rank);
    EXPECT_EQ(t.group(GroupKind::tp, row.rank), std::vector<int>{row.rank});
    EXPECT_EQ(t.group(GroupKind::expert, row.rank), row.expert_group);
    EXPECT_EQ(t.group(GroupKind::expert_dp, row.rank), row.expert_dp_group);
    const auto dp =
        row.pp == 0 ? std::vector{0, 1, 2, 3, 4, 5, 6, 7} : std::vector{8, 9, 10, 11, 12, 13, 14, 15};
    EXPECT_EQ(t.group(GroupKind::dp, row.rank), dp);
    EXPECT_EQ(t.group(GroupKind::pp, row.rank), row.pipeline);
    EXPECT_EQ(t.group(GroupKind::embedding, row.rank), row.pipeline);
  }
}

TEST(Topology, TensorParallelCheck) {
  const Topology t = topology(2, 2, 2, 2);
  EXPECT_EQ(t.group(GroupKind::tp, 0), (std::vector{0, 1}));
  EXPECT_EQ(t.group(GroupKind::expert, 0), (std::vector{0, 2}));
  EXPECT_EQ(t.group(GroupKind::expert, 4), (std::vector{4, 6}));
  EXPECT_EQ(t.group(GroupKind::expert_dp, 0), (std::vector{0, 4}));
  EXPECT_EQ(t.group(GroupKind::expert_dp, 2), (std::vector{2, 6}));
  EXPECT_EQ(t.group(GroupKind::dp, 0), (std::vector{0, 2, 4, 6}));
  EXPECT_EQ(t.group(GroupKind::tp_expert, 0), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(t.group(GroupKind::pp, 0), (std::vector{0, 8}));
}

TEST(Topology, ExpertTensorGrid) {
  const Topology t = topology(2, 2, 2, 2);
  EXPECT_EQ(t.groups(GroupKind::expert),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(t.groups(GroupKind::tp_expert),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(t.groups(GroupKind::expert_dp),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
}

TEST(Topology, EmbeddingGroupIsTheEndsOfAPipeline) {
  const Topology t = topology(1, 2, 1, 4);
  EXPECT_EQ(t.group(GroupKind::pp, 3), (std::vector{1, 3, 5, 7}));
  EXPECT_EQ(t.group(GroupKind::embedding, 3), (std::vector{1, 7}));
  EXPECT_EQ(t.group(GroupKind::position, 3), (std::vector{1}));
  EXPECT_EQ(topology(1, 2, 1, 1).group(GroupKind::embedding, 1), (std::vector{1}));
}

RC_GTEST_PROP(Topology, GroupsOfAKindPartitionTheWorld, ()) {
  const Topology t = topology(*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 5), *rc::gen::inRange(1, 4),
                              *rc::gen::inRange(1, 5));
  t.check_sizes("generated");
  for (int rank = 0; rank < t.world(); ++rank) RC_ASSERT(t.rank(t.of(rank)) == rank);
  for (const GroupKind kind : {GroupKind::tp, GroupKind::dp, GroupKind::expert, GroupKind::expert_dp,
                               GroupKind::tp_expert, GroupKind::pp, GroupKind::model}) {
    std::set<int> seen;
    for (const auto& members : t.groups(kind))
      for (const int rank : members) {
        RC_ASSERT(seen.insert(rank).second);
        RC_ASSERT(t.group(kind, rank) == members);
      }
    RC_ASSERT(static_cast<int>(seen.size()) == t.world());
  }
}

TEST(Topology, RefusesSizesThatNoRecorderWrites) {
  EXPECT_THROW(topology(0, 1, 1, 1).check_sizes("x"), InputError);
  EXPECT_THROW(topology(1 << 12, 1 << 12, 1, 1).check_sizes("x"), InputError);
  EXPECT_NO_THROW(topology(8, 8, 16, 16).check_sizes("x"));
}

// --- What a recording says about its ranks.

traces::Recording two_stages() {
  testing::RecordingBuilder builder(topology(1, 2, 1, 2));
  for (int rank = 0; rank < 4; ++rank) builder.add(rank, {.name = "forward_step", .after_ms = 1});
  return builder.take();
}

std::string refusal_of_topology(const traces::Recording& recording) {
  return message_of([&] { topology_of(recording); });
}

TEST(TopologyOfRecording, TakesNamesAndLines) {
  EXPECT_EQ(topology_of(two_stages()).str(), topology(1, 2, 1, 2).str());
  traces::Recording unnamed = two_stages();
  unnamed.named = {};
  EXPECT_EQ(topology_of(unnamed).str(), topology(1, 1, 2, 2).str()) << "complete: the lines show all ranks";
}

TEST(TopologyOfRecording, RefusesContradictions) {
  traces::Recording bad = two_stages();
  bad.named.pp = 1;
  EXPECT_THAT(refusal_of_topology(bad), HasSubstr("found stage_id 1 in the lines, expected less than pp 1"));
  bad = two_stages();
  bad.named.ep = 4;
  bad.named.dp = std::nullopt;
  EXPECT_THAT(refusal_of_topology(bad), HasSubstr("found ep 4 with dp 2, expected an ep that divides dp"));
  bad = two_stages();
  bad.named.dp = 7;
  EXPECT_THAT(refusal_of_topology(bad), HasSubstr("found dp 7 in the name, expected 2"));
  bad = two_stages();
  bad.ranks[1].operations[0].stage_id = 1;
  EXPECT_THAT(refusal_of_topology(bad), HasSubstr("rank01.txt:1: found stage_id 1 on rank 1, expected 0"));
  bad = two_stages();
  bad.named = {};
  bad.ranks.erase(bad.ranks.begin());
  EXPECT_THAT(refusal_of_topology(bad),
              HasSubstr("3 of at least 4 ranks and no name that says how many there were"));
  bad = two_stages();
  bad.named.world = std::int64_t{1} << 40;
  bad.named.dp = std::nullopt;
  EXPECT_THAT(refusal_of_topology(bad), HasSubstr("1099511627776 ranks"));
}

// Balanced ranks look alike, whatever EP is: nothing else would notice a wrong one.
TEST(TopologyOfRecording, AGroupThatIsUsedMustBeNamed) {
  testing::ScalingSpec spec{.topology = topology(1, 2, 2, 1), .received = {128, 128}};
  traces::Recording unnamed = testing::scaling_recording(spec);
  EXPECT_EQ(topology_of(unnamed).expert, 2);
  unnamed.named.ep = std::nullopt;
  EXPECT_THAT(refusal_of_topology(unnamed),
              HasSubstr("rank00.txt:1: found exchanges of the group exp and no name that says how many ranks "
                        "share the experts, expected a folder or file name with ep, such as pp2_tp1_ep4"));

  testing::RecordingBuilder builder(topology(2, 1, 1, 1));
  const testing::CallSpec reduce{.source = "_reduce", .comm = "allreduce", .group = "tp", .shape = {64, 32}};
  for (int rank = 0; rank < 2; ++rank) builder.add(rank, {.name = "forward_step", .calls = {reduce}});
  traces::Recording tensors = builder.take();
  EXPECT_EQ(topology_of(tensors).tp, 2);
  tensors.named = {};
  EXPECT_THAT(refusal_of_topology(tensors),
              HasSubstr("found exchanges of the group tp and no name that says how many ranks share a layer, "
                        "expected a folder or file name with tp, such as pp2_tp1"));

  // One rank shares nothing with another.
  testing::RecordingBuilder alone(topology(1, 1, 1, 1));
  alone.add(0, {.name = "forward_step", .calls = {reduce}});
  traces::Recording one = alone.take();
  one.named = {};
  EXPECT_EQ(topology_of(one).world(), 1);
}

// A job under timing `flow`: the calibrated forecast while nothing contends, longer where links are shared.

struct Job {
  SynthesisSpec spec;
  traces::NamedTopology named;
  CleanJob clean;
  Effects effects;
  ForecastOptions options;

  Job(const std::string& cluster, Topology topology) {
    spec.model = models::Architecture::load("mixtral-8x7b");
    spec.cluster = Cluster::load(JsonNode::parse(cluster, "cluster"));
    spec.topology = topology;
    spec.layers = 4;
    spec.routing = models::RoutingSpec::parse("zipf:1.2");
    spec.noise = 0;
    const SyntheticRecordings made = synthesize(spec);
    named = made.scaling.named;
    const RecordedJob job = interpret(made.scaling);
    clean = denoise(std::span(&job, 1));
    options.microbatches = 4;
    options.architecture = &spec.model;
  }

  Iteration run(const sim::Fabric* fabric) const {
    ForecastOptions with = options;
    with.fabric = fabric;
    return forecast(clean, named, spec.cluster, effects, with).iteration;
  }

  // Under flow over calibrated timing.
  double contention() const {
    const sim::Fabric fabric = cluster_fabric(spec.cluster);
    return run(&fabric).us() / run(nullptr).us();
  }
};

TEST(ReplayFlow, IsTheCalibratedForecastWhereNothingContends) {
  // One expert group, and four that lie on GPUs of their own, behind one switch each.
  EXPECT_NEAR(Job(R"({"base": "echo-h800x1"})", {.expert = 4}).contention(), 1.0, 0.01);
  EXPECT_NEAR(Job(R"({"base": "echo-h800x1"})", {.expert = 2, .expert_dp = 2}).contention(), 1.0, 0.01);
}

TEST(ReplayFlow, SharedLinksCostTime) {
  const auto contention = [](const char* ports) {
    return Job(std::string(R"({"base": "dgx-h100x2", "nic": {"ports_per_node": )") + ports + "}}",
               {.expert = 4, .expert_dp = 2, .pp = 2})
        .contention();
  };
  const double eight = contention("8"), one = contention("1");
  EXPECT_GE(eight, 0.999);
  EXPECT_GT(one, eight * 1.005);
}

TEST(ReplayFlow, ContentionIsAShareOfTheIteration) {
  const Job job(R"({"base": "dgx-h100x2", "nic": {"ports_per_node": 1}})",
                {.expert = 4, .expert_dp = 2, .pp = 2});
  const sim::Fabric fabric = cluster_fabric(job.spec.cluster);
  ForecastOptions with = job.options;
  with.fabric = &fabric;
  const ScalingForecast made = forecast(job.clean, job.named, job.spec.cluster, job.effects, with);
  const Attribution told = attribute(made.iteration, made.plans, 2, [&] {
    return std::make_unique<ModelPricing>(job.spec.cluster, job.clean, job.effects);
  });
  ASSERT_EQ(told.shares.size(), kCausesOfTime);
  EXPECT_EQ(told.shares.front().cause, CauseOfTime::contention);
  EXPECT_NEAR(told.shares.front().us, made.iteration.us() - job.run(nullptr).us(), 1e-3);
  double sum = 0;
  for (const TimeShare& share : told.shares) sum += share.us;
  EXPECT_NEAR(sum, made.iteration.us(), 1e-3);
  const models::LinkLoad busiest = models::busiest_link(made.iteration.timeline, fabric);
  EXPECT_FALSE(busiest.from.empty());
  EXPECT_GT(busiest.utilisation, 0);
  EXPECT_LE(busiest.utilisation, 1 + 1e-9);
}

}  // namespace
}  // namespace moesim::replay

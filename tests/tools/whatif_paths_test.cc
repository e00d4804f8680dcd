// Paths of a scenario: how they are found, which values and units they take, and that the two ways of making
// a changed question (value by value, or cached parts of it) agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "models/study/study.h"
#include "process.h"
#include "tests/message_of.h"
#include "tools/moesim/questions/ask.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using nlohmann::json;
using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

Question question() {
  Question q;
  q.said = models::Scenario::parse(JsonNode::from_json(json::parse(R"({"model": "mixtral-8x7b",
      "parallel": {"ep": 8}, "dispatcher": "allgather,alltoall", "routing": "zipf:1.2",
      "cluster": "dgx-h100x4"})"),
                                                       "test.json"));
  return q;
}

void set(Question& q, const char* path, const json& value) {
  models::set(q.said, find_path(path), value, Origin::said("--set"));
}

Texts texts(const models::StudyAxis& range) {
  Texts all;
  for (const PathValue& value : range.values) all.push_back(value.text);
  return all;
}

models::StudyAxis range_of(const std::string& text) {
  return models::StudyAxis::parse_assignment(text, "--grid");
}

TEST(ScenarioPaths, AnEndIsEnoughWhereItIsTheOnlyOne) {
  EXPECT_EQ(find_path("ep").path, "parallel.ep");
  EXPECT_EQ(find_path("nic.bandwidth").path, "cluster.nic.bandwidth");
  EXPECT_EQ(find_path("topk").path, "topk");
  EXPECT_EQ(find_path("gini").path, "routing.gini");
  EXPECT_THAT(message_of([] { find_path("bandwidth"); }), HasSubstr("cluster.nvlink.bandwidth"));
}

TEST(ScenarioPaths, AWrongPathNamesTheClosest) {
  EXPECT_THAT(message_of([] { find_path("cluster.nic.bandwith"); }),
              HasSubstr("did you mean 'cluster.nic.bandwidth'?"));
  EXPECT_THAT(message_of([] { find_path("paralel.ep"); }), HasSubstr("did you mean 'parallel.ep'?"));
}

TEST(ScenarioPaths, UnitsAreTakenAndChecked) {
  const ScenarioPath nic = find_path("nic.bandwidth");
  EXPECT_EQ(parse_value(nic, "100GBps").number, 100e9);
  EXPECT_EQ(parse_value(nic, "400Gbps").number, 50e9);
  EXPECT_THAT(message_of([&] { parse_value(nic, "100us"); }), HasSubstr("expected a bandwidth"));
  EXPECT_THAT(message_of([] { parse_value(find_path("ep"), "8GBps"); }),
              HasSubstr("expected a whole number"));
  EXPECT_THAT(message_of([] { parse_value(find_path("ep"), "2.5"); }), HasSubstr("expected a whole number"));
  EXPECT_EQ(parse_value(find_path("gpu.flops"), "2.25PFLOPS").number, 2.25e15);
}

TEST(ScenarioPaths, MultiplesAreOfTheBaseline) {
  models::Scenario s = question().said;
  s.resolve();
  EXPECT_EQ(parse_value(find_path("nic.bandwidth"), "x2", &s).number, 100e9);
  EXPECT_EQ(parse_value(find_path("ep"), "x0.5", &s).number, 4);
  EXPECT_THAT(message_of([&] { parse_value(find_path("ep"), "x0.3", &s); }), HasSubstr("whole number"));
}

TEST(ScenarioPaths, APartLeavesTheRestOfItsObject) {
  Question q = question();
  set(q, "cluster.nic.bandwidth", 100e9);
  set(q, "cluster.nvlink.domain", 32);
  set(q, "model.shared_ffn", 2048);
  set(q, "routing.gini", 0.3);
  const models::Scenario& s = q.said;
  EXPECT_EQ(s.cluster->nodes, 4);
  EXPECT_EQ(s.cluster->nic.bandwidth, 100e9);
  EXPECT_EQ(s.cluster->nvlink.domain, 32);
  EXPECT_EQ(s.model.shared_ffn, 2048);
  EXPECT_EQ(s.model.hidden, 4096);
  EXPECT_EQ(s.model.attention.kv_heads, 8);
  EXPECT_EQ(s.routing.kind, models::RoutingSpec::Kind::kGini);
}

TEST(Hardware, AFileSaysTheSameAsTheFunction) {
  const models::Scenario scenario = question().said;
  const auto us = [](const models::Scenario& one) {
    return ask(one, models::AnswerOptions{.draws = 0, .breakdown = false, .each = true})
        .answers[1]
        .time_us.value;
  };
  for (const models::HardwareNumber& number : models::hardware_numbers()) {
    const bool time =
        number.unit == models::HardwareUnit::kSeconds || number.unit == models::HardwareUnit::kFactor;
    models::Scenario changed = scenario;
    auto cluster = std::make_shared<models::Cluster>(*scenario.cluster);
    number.scale(*cluster, time ? 0.5 : 2);
    changed.cluster = cluster;
    // A latency has no absolute value to write.
    Question q = question();
    set(q, ("cluster." + std::string(number.path)).c_str(),
        number.value(*scenario.cluster) * (time ? 0.5 : 2));
    EXPECT_NEAR(us(q.said), us(changed), 1e-6) << number.path;
  }
}

TEST(StudyAxis, ListsRangesAndSteps) {
  EXPECT_EQ(texts(range_of("ep=8,16,32")), (Texts{"8", "16", "32"}));
  EXPECT_EQ(texts(range_of("topk=1..4")), (Texts{"1", "2", "3", "4"}));
  EXPECT_EQ(texts(range_of("ep=2..64:x2")), (Texts{"2", "4", "8", "16", "32", "64"}));
  EXPECT_EQ(texts(range_of("routing.gini=0..0.6:0.1")),
            (Texts{"0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"}));
  EXPECT_EQ(range_of("nic.bandwidth=25..100GBps:25").values.size(), 4u);
  EXPECT_EQ(range_of("nic.bandwidth=25..100GBps:25").values[3].number, 100e9);
  EXPECT_EQ(texts(range_of("dispatcher=allgather,alltoall")), (Texts{"allgather", "alltoall"}));
}

TEST(StudyAxis, NonsenseIsRefused) {
  EXPECT_THAT(message_of([] { range_of("ep=16..8"); }), HasSubstr("empty range"));
  EXPECT_THAT(message_of([] { range_of("ep=8,,16"); }), HasSubstr("empty value"));
  EXPECT_THAT(message_of([] { range_of("ep="); }), HasSubstr("path=value"));
  EXPECT_THAT(message_of([] { range_of("seq=1..1000000000000"); }), HasSubstr("1e+12 values"));
  EXPECT_THAT(message_of([] { range_of("gini=0..1:0"); }), HasSubstr("above 0"));
  EXPECT_THAT(message_of([] { range_of("gini=0..1:x2"); }), HasSubstr("above 0"));
}

TEST(Points, TheProductIsCheckedBeforeItIsMade) {
  models::PointOptions o;
  o.grids = {"topk=1..1000", "seq=1..1000", "seed=1..1000", "microbatches=1..1000"};
  EXPECT_THAT(message_of([&] { models::Points points(o); }), HasSubstr("1e+12 scenarios"));
  o.grids = {"topk=1..4", "topk=1..2"};
  EXPECT_THAT(message_of([&] { models::Points points(o); }), HasSubstr("twice"));
  EXPECT_THAT(message_of([] { models::Points points(models::PointOptions{}); }),
              HasSubstr("nothing to sweep over"));
}

TEST(Points, TheLastAxisChangesFastest) {
  models::PointOptions o;
  o.grids = {"ep=2,4", "topk=1..3"};
  o.lists = {"seq=1024,2048", "micro_batch=2,1"};
  const models::Points points(o);
  ASSERT_EQ(points.size(), 12u);
  std::vector<PathValue> point;
  points.point(7, point);  // 7 = ((1 * 3) + 0) * 2 + 1
  EXPECT_EQ(point[0].text, "4");
  EXPECT_EQ(point[1].text, "1");
  EXPECT_EQ(point[2].text, "2048");
  EXPECT_EQ(point[3].text, "1");
}

TEST(Points, ALatinHypercubeHasOneSampleInEveryStratum) {
  models::PointOptions o;
  o.samples = 50;
  o.ranges = {"gini=0..0.5", "nic.bandwidth=25..400GBps:log"};
  o.seed = 7;
  const models::Points points(o), again(o);
  std::vector<int> linear(50), logarithmic(50);
  std::vector<PathValue> point, same;
  for (std::uint64_t i = 0; i < points.size(); ++i) {
    points.point(i, point);
    again.point(i, same);
    EXPECT_EQ(point[0].text, same[0].text);
    ++linear[std::min<std::size_t>(49, static_cast<std::size_t>(point[0].number / 0.01))];
    ++logarithmic[std::min<std::size_t>(
        49, static_cast<std::size_t>(std::log(point[1].number / 25e9) / std::log(16) * 50))];
  }
  EXPECT_THAT(linear, ::testing::Each(1));
  EXPECT_THAT(logarithmic, ::testing::Each(1));
}

// A question made of cached parts is the one that setting all values gives.
RC_GTEST_PROP(Changes, AgreeWithSettingAllValues, ()) {
  const Texts all{"parallel.ep=2,4,8",
                  "topk=1,2",
                  "routing.gini=0,0.25,0.5",
                  "cluster.nic.bandwidth=25GBps,100GBps",
                  "cluster=dgx-h100x2,dgx-h200x4",
                  "model=mixtral-8x7b,qwen3-30b-a3b",
                  "model.expert_ffn=1024,4096",
                  "parallel.seq=1024,4096",
                  "train=true,false",
                  "cluster.gpu.flops=500TFLOPS,2PFLOPS",
                  "dispatcher=alltoall,allgather",
                  "recompute=none,full",
                  "faults.jitter=0,0.05"};
  models::PointOptions o;
  for (const std::string& one : all)
    if (*rc::gen::inRange(0, 3) == 0) o.grids.push_back(one);
  RC_PRE(!o.grids.empty());
  const models::Points points(o);
  models::Changes changes(question(), points.paths(), Origin::said("--grid"));
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<PathValue> point;
    points.point(*rc::gen::inRange<std::uint64_t>(0, points.size()), point);
    Question whole = question();
    models::set_all(whole, points.paths(), point, Origin::said("--grid"));
    const auto answer = [](models::Scenario s) -> std::string {
      try {
        const Comparison e = ask(std::move(s), models::AnswerOptions{.draws = 0, .each = true});
        std::string text;
        for (const Answer& a : e.answers)
          text += a.dispatcher + " " + std::to_string(a.time_us.value) + " " +
                  std::to_string(a.memory.max_bytes) + a.error;
        return text;
      } catch (const InputError& error) {
        return error.what();
      }
    };
    const Question made = changes.make(point);
    RC_ASSERT(answer(made.said) == answer(whole.said));
    RC_ASSERT(models::to_json(made.said) == models::to_json(whole.said));
    RC_ASSERT(made.said.origins.all() == whole.said.origins.all());
  }
}

}  // namespace
}  // namespace moesim::tools

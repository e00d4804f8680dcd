// Settings without effect: the user's are refused by name, those of jobs and searches are dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/question/paths.h"
#include "models/question/question.h"
#include "models/workload/fields.h"
#include "tests/cases.h"
#include "tests/message_of.h"
#include "tests/models/small_job.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::small_job;

const char* const kStep = R"({"model": "deepseek-v2-lite", "cluster": "dgx-h100x4", "scope": "step",
    "parallel": {"tp": 2, "cp": 2, "ep": 4, "etp": 2, "pp": 2, "microbatches": 8},
    "dispatcher": "alltoall", "routing": "zipf:1.1"})";
const char* const kDense = R"({"scope": "step", "parallel": {"tp": 2}, "cluster": "dgx-h100x1",
    "model": {"name": "dense", "hidden": 512, "layers": 8, "experts": 0, "dense_ffn": 2048,
              "vocabulary": 32000, "attention": {"heads": 8}}})";
const char* const kLayer = R"({"model": "mixtral-8x7b", "cluster": "dgx-h100x1", "parallel": {"ep": 8},
    "dispatcher": "alltoall", "routing": "zipf:1.1"})";

const char* base_of(const std::string& name) {
  return name == "step" ? kStep : name == "dense" ? kDense : kLayer;
}

// A row of without_effect.json.
struct Case {
  const char* base;
  ordered_json plan;  // that leaves the value without effect
  std::string path;
  json value;
  std::string found;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& row : moesim::testing::cases("models/without_effect.json", "without effect"))
    all.push_back({base_of(row[0]), row[1], row[2], row[3], row[4]});
  return all;
}

void say(Question& q, const std::string& path, const json& value,
         const Origin& origin = Origin::said("--set")) {
  set(q.said, find_path(path), value, origin);
}

Question question_of(const char* base, const ordered_json& plan = {}) {
  Question q;
  q.said = Scenario::parse(JsonNode::from_json(json::parse(base), "s.json"));
  for (const auto& [path, value] : plan.items()) say(q, path, value);
  return q;
}

Resolved checked(const Question& q, const std::vector<ScenarioPath>* changed = nullptr) {
  Resolved r = resolve(q);
  check_effects(q, r, changed);
  return r;
}

TEST(WithoutEffect, TheUsersAreRefusedByName) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.path + " " + one.value.dump() + " " + one.found);
    Question q = question_of(one.base, one.plan);
    ASSERT_EQ(message_of([&] { checked(q); }), "");
    say(q, one.path, one.value);
    const std::string message = message_of([&] { checked(q); });
    EXPECT_THAT(message, HasSubstr(one.found));
    EXPECT_THAT(message, HasSubstr("expected"));
    EXPECT_TRUE(message.starts_with(one.path)) << message;
    // A file's is refused at its line.
    say(q, one.path, one.value, Origin::file("s.json:7"));
    EXPECT_THAT(message_of([&] { checked(q); }), HasSubstr("s.json:7: "));
  }
}

// As arguments of a job they leave the scenario as it is without them.
TEST(WithoutEffect, AJobsAreDropped) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.path + " " + one.value.dump() + " " + one.found);
    Question q = question_of(one.base, one.plan);
    q.job = JobSource{"train.sh", {}};
    Scenario without = checked(q).scenario;
    without.resolve();
    say(q, one.path, one.value, Origin::file("train.sh:3 --flag"));
    Scenario s = checked(q).scenario;
    s.resolve();
    EXPECT_EQ(json(to_json(s)), json(to_json(without)));
    EXPECT_THAT(without_effect(s), IsEmpty());
  }
}

// The plan of each base gives every one of these an effect.
TEST(WithoutEffect, AreAcceptedWhereTheyHaveOne) {
  for (const auto& row : moesim::testing::cases("models/without_effect.json", "with effect")) {
    Question q = question_of(base_of(row[0]));
    const std::string path = row[1];
    say(q, path, row[2]);
    EXPECT_EQ(message_of([&] { checked(q); }), "") << path;
    Scenario s = checked(q).scenario;
    s.resolve();
    EXPECT_TRUE(s.gave(path)) << path;
  }
  // --overlap gradients leaves out the parameters, which ddp does not gather.
  Question q = question_of(kStep, {{"training.sharding", "ddp"}});
  say(q, "training.overlap", "gradients");
  EXPECT_EQ(message_of([&] { checked(q); }), "");
}

TEST(WithoutEffect, ADefaultThatIsSaidIsAccepted) {
  for (const Case& one : cases()) {
    const Field& field = *find_field(one.path);
    if (field.fallback.empty() || field.path == "placement" || field.path.ends_with("_sharding")) continue;
    Question q = question_of(one.base, one.plan);
    set_field(field, q.said, field.fallback);
    EXPECT_EQ(message_of([&] { checked(q); }), "") << one.path << " " << field.fallback;
  }
}

TEST(WithoutEffect, ASearchedSizeDropsTheSettingWithANote) {
  Question q = question_of(kDense, {{"parallel.global_batch", "64"}});
  q.said.parallel.tp = 1;
  q.said.given.reset(index_of(*find_field("parallel.tp")));
  say(q, "training.sequence_parallel", false);
  open_plan(q);
  ASSERT_TRUE(q.search);
  const Resolved r = checked(q);
  ASSERT_EQ(r.scenario.parallel.tp, 1);
  EXPECT_THAT(r.notes, Contains(HasSubstr("training.sequence_parallel: no effect: false with tp 1")));
  Scenario s = r.scenario;
  s.resolve();
  EXPECT_TRUE(s.training.sequence_parallel);
}

// A change of another setting may leave one without effect, whose own change is refused.
TEST(WithoutEffect, OfAChangedQuestionTheChangesAreRefused) {
  Question q = question_of(kStep, {{"parallel.tp", 1}, {"parallel.etp", 1}});
  say(q, "training.loss_parallel", false);
  const std::vector<ScenarioPath> size{find_path("parallel.tp")}, setting{find_path("loss_parallel")};
  EXPECT_EQ(message_of([&] { checked(q, &size); }), "");
  EXPECT_THAT(message_of([&] { checked(q, &setting); }),
              HasSubstr("training.loss_parallel: found false with tp 1"));
  say(q, "training.overlap", "delayed-wgrad");
  const std::vector<ScenarioPath> whole{find_path("training.overlap")};
  EXPECT_THAT(message_of([&] { checked(q, &whole); }), HasSubstr("training.overlap.delayed_wgrad: found"));
}

TEST(WithoutEffect, PartsOfAModelAreRefusedWhereItHasNoSuchLayer) {
  for (const auto& [base, path, value, lacks] :
       std::vector<std::tuple<const char*, const char*, int, const char*>>{
           {kLayer, "model.dense_ffn", 8192, "dense FFN"},
           {kLayer, "model.routing_topk_groups", 2, "routing groups"},
           {kDense, "model.moe_every", 2, "experts"},
           {kDense, "model.shared_ffn", 512, "experts"}}) {
    Question q = question_of(base);
    say(q, path, value);
    EXPECT_THAT(message_of([&] { checked(q); }),
                HasSubstr(std::string(path) + ": found " + std::to_string(value) + " with model"));
    EXPECT_THAT(message_of([&] { checked(q); }), HasSubstr(std::string("which has no ") + lacks));
  }
}

// The fabric and the latency of NVLink are flows'.
TEST(WithoutEffect, FlowsNumbersAreRefusedUnderCalibratedTiming) {
  for (const auto& [path, value] :
       std::vector<std::pair<const char*, json>>{{"cluster.rails", false},
                                                 {"cluster.fabric", "rail-optimized"},
                                                 {"cluster.nvlink.latency", 2e-6}}) {
    Scenario s = small_job();
    set(s, find_path(path), value, Origin::said("--set"));
    AnswerOptions options;
    options.draws = 0;
    EXPECT_EQ(message_of([&] { answer(s, options); }),
              std::string(path) +
                  ": found with timing calibrated, which does not use it; expected compare --timing flow");
    if (std::string_view(path) != "cluster.fabric") {
      options.flow = true;
      EXPECT_EQ(message_of([&] { answer(s, options); }), "") << path;
    }
  }
  Scenario s = small_job();
  set(s, find_path("cluster.rails"), json(true), Origin::said("--set"));
  EXPECT_NO_THROW(answer(s, {.draws = 0})) << "the cluster has them anyway";
}

// A text that sets several fields names the one that the scope does not use.
TEST(WithoutEffect, AShortFormsPartIsNamedByItsPath) {
  Question q = question_of(kLayer);
  say(q, "training.sharding", "zero1:muon");
  EXPECT_THAT(message_of([&] { resolve(q); }), HasSubstr("training.muon: found with scope layer"));
}

}  // namespace
}  // namespace moesim::models

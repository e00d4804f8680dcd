// `moesim whatif` as a user runs it, and crossovers against a search that tries every value.
#include "tools/moesim/questions/whatif.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/hardware/hardware.h"
#include "process.h"
#include "tools/moesim/questions/around.h"
#include "tools/moesim/questions/ask.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

constexpr const char* kScenario = R"({"model": "mixtral-8x7b", "parallel": {"ep": 8},
 "dispatcher": "allgather,alltoall", "routing": "balanced", "cluster": "dgx-h100x2"})";

models::Question question_of(const char* text) {
  models::Question q;
  q.said = models::Scenario::parse(JsonNode::parse(text, "test.json"));
  return q;
}

Base base_of(const char* text) { return Base::of(question_of(text), CommonOptions{}); }

class WhatIf : public ::testing::Test {
 protected:
  WhatIf() { folder_.write("s.json", kScenario); }
  Outcome run(Words more) const {
    more.insert(more.begin(), {"whatif", "s.json"});
    return run_moesim(more, folder_.path());
  }
  TempFolder folder_;
};

TEST_F(WhatIf, TheSeedOptionStandsInThePlaceOfTheScenarios) {
  json other = json::parse(kScenario);
  other["seed"] = 2;
  folder_.write("seed2.json", other.dump());
  const std::vector<Words> questions{{"--set", "topk=1"},
                                     {"--each", "--set", "topk=1"},
                                     {"--sensitivity"},
                                     {"--crossover", "topk=1..2"},
                                     {"--map", "topk=1,2", "ep=4,8"},
                                     {"--set", "scope=step", "--best", "dispatcher"}};
  for (Words question : questions) {
    question.insert(question.end(), {"--set", "routing=zipf:1.2", "--quiet", "--format", "csv"});
    Words given = question, in_file = question;
    given.emplace_back("--seed=2");
    in_file.insert(in_file.begin(), {"whatif", "seed2.json"});
    const Outcome from_file = run_moesim(in_file, folder_.path());
    EXPECT_EQ(from_file.exit_code, 0) << from_file.err;
    EXPECT_EQ(run(given).out, from_file.out) << question.front();
    EXPECT_NE(run(question).out, from_file.out) << question.front();
  }
}

TEST_F(WhatIf, TheScopeIsOfTheQuestion) {
  json step = json::parse(kScenario);
  step["scope"] = "step";
  folder_.write("step.json", step.dump());
  const std::vector<Words> questions{{"--set", "pp=2"},
                                     {"--each", "--set", "pp=2", "--set", "topk=1"},
                                     {"--sensitivity"},
                                     {"--crossover", "topk=1..2"},
                                     {"--map", "topk=1,2", "ep=4,8"},
                                     {"--best", "dispatcher"}};
  for (Words question : questions) {
    question.emplace_back("--quiet");
    Words in_file = question;
    in_file.insert(in_file.begin(), {"whatif", "step.json"});
    question.insert(question.end(), {"--set", "scope=step"});
    const Outcome from_file = run_moesim(in_file, folder_.path());
    EXPECT_EQ(from_file.exit_code, 0) << from_file.err;
    EXPECT_EQ(run(question).out, from_file.out) << question.front();
  }
}

// Everything twice as good halves the time, but for what is fixed inside kernels; and the elasticities, each
// by itself, add up to that of everything together.
TEST(Sensitivity, ElasticitiesAddUpToAboutMinusOne) {
  for (const char* text :
       {kScenario,
        R"({"model": "deepseek-v3", "parallel": {"ep": 32, "seq": 4096}, "routing": "zipf:0.8",
            "dispatcher": "allgather,alltoall,flex-deepep", "cluster": "dgx-h100x8"})",
        R"({"model": "mixtral-8x7b", "parallel": {"tp": 2, "ep": 8, "pp": 2, "microbatches": 8},
            "dispatcher": "alltoall", "scope": "step", "cluster": "dgx-h100x4"})"}) {
    const models::Scenario scenario = question_of(text).said;
    const Sensitivities s = sensitivities(scenario, 0);
    // A step has more that no hardware number changes: what the host does, and what hides behind it.
    const double fixed = scenario.is_step() ? 0.15 : 0.07;
    for (const auto& [dispatcher, together] : s.together) {
      double sum = 0;
      for (const Sensitivity& one : s.numbers)
        for (const auto& [name, value] : one.elasticity)
          if (name == dispatcher) {
            const bool rate = one.path.ends_with("bandwidth") || one.path.ends_with("flops");
            // A part that is better never costs time.
            EXPECT_LE(rate ? value.value : -value.value, 1e-9) << one.path;
            sum += rate ? value.value : -value.value;
          }
      // Not exactly: where two things overlap, only the longer one counts.
      EXPECT_NEAR(sum, together.value, 0.08) << dispatcher << " of " << text;
      EXPECT_GE(together.value, -1 - 1e-6) << dispatcher << " of " << text;
      EXPECT_LE(together.value, -1 + fixed) << dispatcher << " of " << text;
    }
    // Not only to first order: twice as good takes half the time and what is fixed.
    models::Scenario twice = *s.baseline.scenario;
    auto cluster = std::make_shared<models::Cluster>(*twice.cluster);
    for (const models::HardwareNumber& number : models::hardware_numbers()) {
      const bool time =
          number.unit == models::HardwareUnit::kSeconds || number.unit == models::HardwareUnit::kFactor;
      number.scale(*cluster, time ? 0.5 : 2);
    }
    twice.cluster = cluster;
    const Comparison after = ask(twice, models::AnswerOptions{.draws = 0, .breakdown = false, .each = true});
    for (std::size_t i = 0; i < after.answers.size(); ++i) {
      const double share = after.answers[i].time_us.value / s.baseline.answers[i].time_us.value;
      EXPECT_GE(share, 0.5 * (1 - 1e-6)) << text;
      EXPECT_LE(share, 0.5 * (1 + fixed)) << text;
    }
  }
}

TEST_F(WhatIf, AMapIsDrawn) {
  const Outcome outcome =
      run({"--map", "topk=1..4", "ep=2,4,7,8", "--draws", "8", "--picture", "map.svg", "-q"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string svg = testing::read_text(folder_.path() / "map.svg");
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  // A cell per scenario, each with its hint; the four of EP 7 are grey and say why.
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (std::size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<title>"), 16);
  EXPECT_EQ(count("<title>topk = 2, parallel.ep = 7\n"), 1);
  EXPECT_EQ(count("fill=\"#d9d9d9\"/></g>"), 4);
  EXPECT_THAT(svg, AllOf(HasSubstr("mixtral-8x7b on dgx-h100x2"), HasSubstr(">alltoall<")));
  if (std::system("xmllint --version >/dev/null 2>&1") == 0) {
    EXPECT_EQ(std::system(("xmllint --noout '" + (folder_.path() / "map.svg").string() + "'").c_str()), 0);
  }
}

// HH, 11: the nearest values at which another dispatcher is the fastest, as asking there finds them.
TEST(Around, NamesTheNearestChange) {
  const Base base = base_of(R"({"model": "qwen3-30b-a3b", "parallel": {"ep": 16},
 "dispatcher": "allgather,alltoall", "cluster": "dgx-h100x4"})");
  const auto fastest = [&](double topk) {
    Asker asker(base, {find_path("topk")});
    return asker.ask({value_of(find_path("topk"), topk)}, {0, false}).winner()->dispatcher;
  };
  bool found = false;
  int sides = 0;
  for (const auto& one : map_around(base, 1)) {
    if (one.path != "topk") continue;
    found = true;
    EXPECT_EQ(one.now, "8");
    for (const auto& [side, tried] : {std::pair{one.below, one.from}, {one.above, one.to}}) {
      if (!side) {
        EXPECT_EQ(fastest(std::stod(tried)), fastest(8));
        continue;
      }
      ++sides;
      const double value = std::stod(side->value);
      EXPECT_EQ(side->dispatcher, fastest(value));
      EXPECT_NE(fastest(value), fastest(8));
    }
  }
  EXPECT_GT(sides, 0);
  EXPECT_TRUE(found);
}

// Bisection finds the same changes as trying every value.
TEST(Crossover, AgreesWithTryingEveryValue) {
  for (const char* text : {"topk=1..8", "seq=16..4096:16", "ep=1..8", "ep=1..400", "hidden=256..8192:128"}) {
    const models::StudyAxis range = models::StudyAxis::parse_assignment(text, "--crossover");
    const CrossoverResult found = find_crossovers(base_of(kScenario), range, "allgather,alltoall", 0);
    std::vector<std::pair<double, std::string>> expected;
    std::string previous;
    for (const PathValue& value : range.values) {
      models::Scenario changed = question_of(kScenario).said;
      models::set(changed, range.path, value.json, Origin::said("--set"));
      std::string fastest;
      try {
        fastest = ask(changed, models::AnswerOptions{.draws = 0, .breakdown = false, .each = true})
                      .winner()
                      ->dispatcher;
      } catch (const InputError&) {
        continue;
      }
      if (!previous.empty() && fastest != previous) expected.emplace_back(value.number, fastest);
      previous = fastest;
    }
    std::vector<std::pair<double, std::string>> crossings;
    for (const Crossover& c : found.crossings) crossings.emplace_back(c.above, c.to);
    EXPECT_EQ(crossings, expected) << text;
  }
}

// Too many values to try: the one change is found all the same.
TEST(Crossover, IsFoundByBisectionInALongRange) {
  const Base four_nodes = base_of(R"({"model": "deepseek-v3", "parallel": {"ep": 32}, "routing": "zipf:0.8",
      "dispatcher": "allgather,alltoall", "cluster": "dgx-h100x8"})");
  const auto at = [&](const char* text) {
    return find_crossovers(four_nodes, models::StudyAxis::parse_assignment(text, "--crossover"), "", 0);
  };
  const CrossoverResult coarse = at("seq=4..100:4"), fine = at("seq=4..60000"), smooth = at("gini=0..0.8");
  ASSERT_EQ(coarse.crossings.size(), 1u);
  ASSERT_EQ(fine.crossings.size(), 1u);
  EXPECT_EQ(fine.crossings[0].above, fine.crossings[0].below + 1);
  EXPECT_GT(fine.crossings[0].above, coarse.crossings[0].below);
  EXPECT_LE(fine.crossings[0].above, coarse.crossings[0].above);
  EXPECT_GE(smooth.points.size(), 17u);
  EXPECT_LE(smooth.points.size(), 17 + 4 * smooth.crossings.size());
}

TEST(Crossover, TheIntervalHoldsTheCrossing) {
  const models::StudyAxis range = models::StudyAxis::parse_assignment("seq=16..8192", "--crossover");
  const CrossoverResult r = find_crossovers(base_of(kScenario), range, "allgather,alltoall", 24);
  for (const Crossover& c : r.crossings) {
    EXPECT_EQ(c.above, c.below + 1);
    EXPECT_LE(c.low, c.below);
    EXPECT_GE(c.high, c.above);
    EXPECT_GE(c.value, c.below);
    EXPECT_LE(c.value, c.above);
  }
}

}  // namespace
}  // namespace moesim::tools

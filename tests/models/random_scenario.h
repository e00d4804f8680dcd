// Scenarios drawn at random: jobs that people ask about, legal ones only.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/answers/answer.h"
#include "models/question/question.h"
#include "models/workload/fields.h"
#include "models/workload/scenario.h"
#include "tests/models/field_samples.h"

namespace moesim::models::testing {

// A scenario file's object. `step`: of a whole training step, else of one layer.
inline nlohmann::json random_scenario_json(std::mt19937_64& random, bool step) {
  const auto one_of = [&](const auto&... choices) {
    using T = std::common_type_t<decltype(choices)...>;
    const std::vector<T> all{choices...};
    return all[random() % all.size()];
  };
  using Text = std::string;
  nlohmann::json parallel{{"ep", one_of(2, 4, 8, 16)}, {"seq", one_of(512, 1024, 2048, 4096)}};
  if (random() % 4 == 0) parallel["tp"] = 2;
  nlohmann::json scenario{
      {"model", one_of(Text("mixtral-8x7b"), Text("deepseek-v2-lite"), Text("qwen3-30b-a3b"), Text("olmoe"))},
      {"cluster", one_of(Text("dgx-h100x1"), Text("dgx-h100x4"), Text("dgx-a100x2"), Text("dgx-h800x4"),
                         Text("dgx-b200x2"), Text("dgx-h200x4"))},
      {"dispatcher",
       one_of(Text("allgather"), Text("alltoall"), Text("flex-deepep"), Text("alltoall-legacy"))},
      {"routing", one_of(Text("balanced"), Text("zipf:0.6"), Text("zipf:1.2"), Text("gini:0.3"))}};
  if (step) {
    scenario["scope"] = "step";
    parallel["microbatches"] = one_of(1, 2, 4, 8);
    parallel["pp"] = one_of(1, 1, 2, 4);
    scenario["training"] = {{"recompute", one_of(Text("none"), Text("full"), Text("moe_act"))},
                            {"precision", one_of(Text("bf16"), Text("bf16"), Text("fp8_block"))},
                            {"launch", one_of(Text("eager"), Text("partial-graphs"), Text("graphs"))},
                            {"overlap", {{"gradients", random() % 2 == 0}}}};
  }
  scenario["parallel"] = parallel;
  return scenario;
}

// Likewise, with any of their samples for some fields, whether legal or not.
inline nlohmann::json random_question_json(std::mt19937_64& random, bool step) {
  nlohmann::json question = random_scenario_json(random, step);
  const Scopes scope = step ? Scopes::kStep : Scopes::kLayer;
  for (const Field& field : scenario_fields()) {
    if (!field.used_in(scope) || field.path == "scope" || random() % 24 != 0) continue;
    const std::vector<FieldSample> samples = samples_of(field);
    nlohmann::json* at = &question;
    std::string_view rest = field.path;
    for (std::size_t dot = 0; at && (dot = rest.find('.')) != std::string_view::npos;
         rest.remove_prefix(dot + 1)) {
      at = &(*at)[std::string(rest.substr(0, dot))];
      if (!at->is_object() && !at->is_null()) at = nullptr;  // a short form has no parts
    }
    if (at) (*at)[std::string(rest)] = samples[random() % samples.size()].json;
  }
  return question;
}

// Drawn until one has a forecast and no setting without effect.
inline nlohmann::json legal_scenario_json(std::mt19937_64& random, bool step) {
  AnswerOptions options;
  options.draws = 0;
  while (true) {
    nlohmann::json scenario = random_scenario_json(random, step);
    try {
      Question question;
      question.said = Scenario::parse(JsonNode::from_json(scenario, "random"));
      answer(question.said, options);
      Resolved resolved = resolve(question);
      check_effects(question, resolved);
      return scenario;
    } catch (const InputError&) {
    }
  }
}

}  // namespace moesim::models::testing

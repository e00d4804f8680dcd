// What `moesim serve` is asked: a scenario in, the JSON of the command line out.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moesim::tools {

// Kinds of a question, a letter each (Answerer).
inline constexpr char kAnswerQuestion = 'a', kCrossoverQuestion = 'c', kReportQuestion = 'r',
                      kPlanQuestion = 'p';

// `body` of kAnswerQuestion and kReportQuestion: a scenario, and beside its fields "draws",
// "leave_out_illegal" and (of an answer) "measure_next" where wanted; of kCrossoverQuestion {"scenario",
// "crossover": "topk=1..8", "between", "draws"}; of kPlanQuestion
// {"scenario", "tokens", "clusters", "deadline", "budget", "by", "most", "draws"}. Returns the JSON of
// `compare`, `whatif --crossover` or `plan`, or the page of `compare --report`. Throws InputError.
std::string answer_question(char kind, const std::string& body);

// What the page needs to be drawn, as JSON: names that are built in, the fields of a scenario.
nlohmann::ordered_json page_data();

}  // namespace moesim::tools

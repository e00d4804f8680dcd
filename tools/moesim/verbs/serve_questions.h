// Questions to `moesim serve`: a scenario in, the command line's JSON out.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moesim::tools {

// Kinds of questions, one letter each (Answerer).
inline constexpr char kAnswerQuestion = 'a', kCrossoverQuestion = 'c', kReportQuestion = 'r',
                      kPlanQuestion = 'p';

// `body` of kAnswerQuestion and kReportQuestion: a scenario with optional "draws", "leave_out_illegal" and
// (for an answer) "measure_next"; of kCrossoverQuestion {"scenario", "crossover": "topk=1..8", "between",
// "draws"}; of kPlanQuestion {"scenario", "tokens", "clusters", "deadline", "budget", "by", "most", "draws"}.
// Returns the JSON of `compare`, `whatif --crossover` or `plan`, or the page of `compare --report`. Throws
// InputError.
std::string answer_question(char kind, const std::string& body);

// Returns the page's data as JSON: built-in names, the fields of a scenario, whether they may name files.
nlohmann::ordered_json page_data(bool files);

}  // namespace moesim::tools

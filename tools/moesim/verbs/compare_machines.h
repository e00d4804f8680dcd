// `moesim compare --cluster h100,h200,b200`: machines side by side, each with its own best plan and
// dispatcher.
#pragma once

#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// Splits "h100,h200" into names; empty for one cluster, or one as JSON.
std::vector<std::string> several_clusters(const std::string& said);

// Answers the question for every cluster and prints a row for each, fastest per token first; returns the exit
// code. Throws InputError where no cluster has an answer; one without an answer is a row with the reason.
int compare_machines(const QuestionOptions& question, const std::vector<std::string>& clusters,
                     const models::AnswerOptions& options, const CommonOptions& common);

}  // namespace moesim::tools

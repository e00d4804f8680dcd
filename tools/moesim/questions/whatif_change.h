// `moesim whatif --set`: compares a scenario with a changed one and explains the difference; or many changes,
// one by one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

// Shared parts of the results of what-if questions.

// {"dispatchers": [...], "fastest": name, "probability": p}.
nlohmann::ordered_json evaluation_json(const Comparison& evaluation);
// Returns the envelope of a result: its inputs with the base scenario, and that scenario's model.
nlohmann::ordered_json whatif_result(const Base& base, const std::vector<std::string>& warnings,
                                     const CommonOptions& common);

// Prints below an answer of which scenario it is: model, machine with its network, scope, and the plan
// that was chosen.
void print_asked(const Base& base, std::span<const models::ScenarioPath> varied = {});

// Warnings of many scenarios that another option or file answers: without those of what the profile was
// measured on and of what a dispatcher's program counts.
std::vector<std::string> many_to_act_on(const std::vector<std::string>& warnings, const Base& base);

// Formats a ratio of times as "-3.1 % (-3.4 to -2.8)".
std::string change_text(const models::Estimate& ratio);

// Returns the base with all changes ("path=value"). Throws InputError for invalid paths and values.
Base with_changes(const Base& base, const std::vector<std::string>& sets);

// "path=value" as written; values may be multiples of the baseline's ("x2"). The difference is to what
// somebody runs today: the measured dispatcher, else `today` (--baseline), else the job's own, else the
// recommended one; behind the change the same dispatcher runs, unless another is set.
int run_changes(const Base& base, const std::vector<std::string>& sets, const std::string& today,
                const models::AnswerOptions& asked, const CommonOptions& common);
// Tries every change separately, most helpful first by tokens per second and GPU, which orders like time
// where the work is constant. An impossible change is listed with its error.
int run_each(const Base& base, const std::vector<std::string>& sets, const std::string& today,
             const models::AnswerOptions& asked, const CommonOptions& common);

}  // namespace moesim::tools

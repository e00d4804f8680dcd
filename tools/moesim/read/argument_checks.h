// A framework's rules for its own arguments: which of them a job or a plan breaks, so that the framework would
// refuse to start.
//
// argument_checks.json has a row for each rule, with a condition in a small language: names of arguments and of
// shared conditions, numbers, 'texts', + - * / %, comparisons, in (...), and, or (its first value that is not
// nothing), not, given(name), has(list, 'item', ...), and stages() and letters() of a pipeline's layout.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

// What the conditions look at. A flag has no values.
struct CheckedArguments {
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::int64_t world = 0;    // GPUs; 0: unknown
  bool environment = false;  // whether the job's environment variables are among the values
  bool complete = false;     // a dump of all arguments, with their defaults
  bool before_blackwell = false;
};

struct BrokenRule {
  std::string id;
  std::string is;      // what of the arguments breaks it
  std::string says;    // the framework's message
  std::string source;  // file and version
  bool warns = false;  // the framework starts, and does something else

  std::string text() const;  // in one line
};

// Returns the rules that arguments break, in the order of the file. `version`: of Megatron's core, 0.<version>;
// 0: the newest. Of an older version only rules that are known to stand in it count. Other frameworks than
// Megatron and NeMo have none here.
std::vector<BrokenRule> broken_rules(const CheckedArguments& arguments, JobFramework framework,
                                     int version = 0);
// Likewise of a file's settings, and of a resolved scenario's plan.
std::vector<BrokenRule> broken_rules(const JobFile& file, JobFramework framework, int version = 0);
std::vector<BrokenRule> broken_rules(const models::Scenario& plan, const Arguments& arguments,
                                     JobFramework framework, int version = 0);
// Returns the first rule that a resolved plan with one dispatcher breaks, in one line; "" where there is none, for
// what the framework's arguments cannot say, and for another framework's job or recipe.
std::string refusal_of(const models::Scenario& plan, JobFramework framework, int version);
// Whether the plan's GPU is an NVIDIA one before Blackwell.
bool before_blackwell(const models::Scenario& plan);
// Parses "0.14", "core_r0.16.0" or "newest". Throws InputError.
int framework_version(std::string_view text);

// Returns how often each letter stands in a layout, "Et*3|(tt|)*29m|L", and its stages under '|'; empty where it
// cannot be read.
std::map<char, std::int64_t> count_layout(std::string_view layout);

}  // namespace moesim::tools

// A framework's rules for its own arguments: which of them a job or a plan breaks, so that the framework would
// refuse to start.
//
// argument_checks.json has a row for each rule, with a condition in a small language: names of arguments, of shared
// conditions and of what a resolved plan says (plan.parallel.pp, plan.model.layers, plan.dispatcher), numbers, 'texts',
// + - * / %, comparisons, in (...), and, or (its first value that is not nothing), not, given(name), count(list),
// product(list), length() of a list in short form, has(list, 'item', ...), only(list, 'item', ...), and stages(),
// letters() and ordered() of a pipeline's layout.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  bool typed = false;        // a command line that is to start, with all that is not a default
  bool bridge = false;       // of Megatron-Bridge
  bool before_blackwell = false;
  std::string gpu;                         // its profile; empty: unknown
  const models::Scenario* plan = nullptr;  // resolved; null: unknown
};

struct BrokenRule {
  std::string id;
  std::string is;      // what of the arguments breaks it
  std::string says;    // the framework's message
  std::string source;  // file and version
  bool warns = false;  // the framework starts, and does something else
  bool told = false;   // whoever reads the job has to know it
  bool lacks = false;  // the framework has no argument for what the plan says

  std::string text() const;  // in one line
  // Returns the job's file, whether the framework starts with it, and text().
  std::string note(const std::string& file, JobFramework framework) const;
};

// Returns the rules that arguments break, in the order of the file. `version`: of Megatron's core, 0.<version>;
// 0: the newest. Of an older version those that came later are left out. Other frameworks' rules have no versions.
std::vector<BrokenRule> broken_rules(const CheckedArguments& arguments, JobFramework framework,
                                     int version = 0);
// Likewise of a file's settings, and of a resolved scenario's plan.
std::vector<BrokenRule> broken_rules(const JobFile& file, JobFramework framework, int version = 0);
std::vector<BrokenRule> broken_rules(const models::Scenario& plan, const Arguments& arguments,
                                     JobFramework framework, int version = 0);
// Throws InputError with the first rule that a job's own arguments break, so that the framework does not start;
// returns what it does otherwise than they say, one line each. `plan`: as resolved, or null.
std::vector<std::string> check_start(const Job& job, JobFramework framework, int version,
                                     const models::Scenario* plan);
// Returns whose rules hold for a recipe, or for a plan with its recipe or of its job: "megatron" (without one, too),
// "torchtitan", "deepspeed", "nemo-automodel"; "": nobody's.
std::string_view rules_of(std::string_view recipe);
std::string_view rules_of(JobFramework framework);
std::string_view rules_of(const models::Scenario& plan);
// Returns the first rule that a resolved plan with one dispatcher breaks, in one line; "" where there is none, and for
// what Megatron's arguments cannot say. nullopt: by the plan's own rules, with what its framework lacks.
std::string refusal_of(const models::Scenario& plan, std::optional<JobFramework> framework, int version);
// Parses "0.14", "core_r0.16.0" or "newest". Throws InputError.
int framework_version(std::string_view text);

// Returns a layout, "Et*3|(tt|)*29m|L", written out, without its last '|'; nullopt where it cannot be read.
std::optional<std::string> expand_layout(std::string_view layout);
// Returns how often each letter stands in it, and its stages under '|'; empty where it cannot be read.
std::map<char, std::int64_t> count_layout(std::string_view layout);

}  // namespace moesim::tools

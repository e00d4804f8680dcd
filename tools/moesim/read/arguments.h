// Arguments of training frameworks: one table per framework, read in both directions. A job's arguments
// become a scenario; a scenario's plan becomes arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/workload/scenario.h"
#include "tools/moesim/read/job_file.h"
#include "tools/moesim/show/result_json.h"

namespace moesim::tools {

enum class JobFramework : std::uint8_t { kMegatron, kTorchtitan, kDeepSpeed, kNemo };

// Parses "megatron", "torchtitan", "deepspeed" or "nemo". Throws InputError with the nearest name.
JobFramework framework_named(std::string_view name);
std::string_view name_of(JobFramework framework);

// The use of an argument.
enum class ArgumentUse : std::uint8_t {
  kUsed,
  kApproximated,  // modelled partly or approximately
  kIrrelevant,    // known not to change the cost of a step
  kUnknown,
};
std::string_view name_of(ArgumentUse use);

struct UsedArgument {
  Setting setting;
  ArgumentUse use = ArgumentUse::kUnknown;
  std::string because;  // empty where it is used unchanged
};

// A job: the scenario as far as the arguments give it, and values that depend on the number of GPUs.
struct Job {
  std::string file;
  std::string framework;  // its recipe
  nlohmann::ordered_json scenario;
  models::LaunchedGpus gpus;      // from the launcher
  std::int64_t global_batch = 0;  // sequences per step; 0: one microbatch per replica
  std::vector<UsedArgument> arguments;
  std::map<std::string, std::string, std::less<>>
      places;                        // of the scenario's paths: "train.sh:12 --num-layers"
  std::vector<std::string> assumed;  // script variables assumed to be unset
  std::vector<std::string> notes;    // other assumptions of the reader, one line each
  std::string no_model;  // error message where --model is not given either; empty: the file has a model

  std::vector<std::string> of_model;  // arguments that describe the file's model
  JobFile settings;                   // as written

  // Returns arguments that are not modelled or unknown, one line each.
  std::vector<std::string> remarks() const;
};

// Reads a job of a framework. Throws InputError at the argument for invalid values, for jobs that cannot be
// described, and for missing values that are required.
Job read_job(const JobFile& file, JobFramework framework);

// Arguments in the order of writing; true: a flag.
using Arguments = std::vector<std::pair<std::string, nlohmann::ordered_json>>;
struct JobArguments {
  Arguments arguments;
  // Settings of the scenario that the arguments do not express or that the framework defaults differently,
  // found by reading the arguments back.
  std::vector<std::string> left_out;
};
// Returns the arguments of a resolved scenario with one dispatcher (none for a dense model). Throws
// InputError for other scenarios.
// Throws InputError, too, for a plan that breaks a rule of the framework (argument_checks.h); `version`: as there.
JobArguments arguments_of(const models::Scenario& scenario, JobFramework framework, int version = 0);
// Likewise without any check.
Arguments written_arguments(const models::Scenario& scenario, JobFramework framework);
// Returns written arguments as a job's file of them would be read.
JobFile file_of(const Arguments& arguments, std::int64_t gpus);
// Likewise in the syntax of the framework's files: "--name value" lines, TOML, JSON, YAML.
std::string arguments_text(const Arguments& arguments, JobFramework framework);

// The arguments that say a plan, as a result has them.
struct FrameworkArguments {
  JobArguments made;
  JobFramework framework;
};
Columns<FrameworkArguments> columns_of(Of<FrameworkArguments>);
nlohmann::ordered_json job_arguments_json(const JobArguments& made, JobFramework framework);
// Returns a resolved scenario with one of its dispatchers, named as in answers.
models::Scenario with_dispatcher(const models::Scenario& scenario, const std::string& dispatcher);
// Returns the text of a plan's arguments, preceded by lines on what they leave out. Throws InputError for
// features that the framework lacks.
std::string plan_arguments_text(const models::Scenario& plan, JobFramework framework, int version = 0);
// The lines that set the environment variables among a plan's arguments.
std::string variables_text(const Arguments& arguments);

// Typed access to the settings of a job; records which were read and builds the scenario.
class JobReader {
 public:
  JobReader(const JobFile& file, Job& job) : file_(file), job_(job) {}

  const Setting* find(std::string_view name);
  bool has(std::string_view name) { return find(name) != nullptr; }
  bool flag(std::string_view name, bool fallback = false);
  std::optional<std::int64_t> whole(std::string_view name, std::int64_t low = 1,
                                    std::int64_t high = std::int64_t{1} << 31);
  std::int64_t whole_or(std::string_view name, std::int64_t fallback, std::int64_t low = 1) {
    return whole(name, low).value_or(fallback);
  }
  std::optional<double> number(std::string_view name);
  std::string text(std::string_view name, std::string_view fallback = "");
  // Likewise, restricted to `choices`.
  std::string choice(std::string_view name, std::string_view fallback,
                     std::initializer_list<std::string_view> choices);
  std::vector<std::string> list(std::string_view name);

  // Throws InputError for an optimizer other than Adam's `names`; the first is the default.
  void only_adam(std::string_view name, std::initializer_list<std::string_view> names);

  // Record that an argument is modelled only approximately, or that it changes nothing beside the others.
  void approximate(std::string_view name, const std::string& because);
  void without_effect(std::string_view name, const std::string& because);
  [[noreturn]] void fail(std::string_view name, const std::string& expected);
  // Throws for a missing argument.
  [[noreturn]] void fail_without(const std::string& found, const std::string& expected) const;
  // Records that the file's model lacks a size: --model has to say it.
  void lacks_model(const std::string& found, const std::string& expected);

  // Sets the scenario's value at a path, "parallel.tp".
  void set(std::string_view path, nlohmann::ordered_json value);
  Job& job() { return job_; }
  // The next value set comes from no argument.
  void forget_place() { last_place_.clear(); }
  bool asked(std::string_view name) const { return asked_.contains(name); }

  // A recorded use, and why.
  struct Noted {
    std::string name;
    ArgumentUse use = ArgumentUse::kApproximated;
    std::string because;
  };
  // Returns nullptr where nothing was recorded.
  const Noted* noted(std::string_view name) const;

 private:
  const std::string& only_value(const Setting& setting) const;
  const JobFile& file_;
  Job& job_;
  std::set<std::string, std::less<>> asked_;
  std::vector<Noted> noted_;
  std::string last_place_;  // of the setting found last
};

// One line of a framework's table: its arguments, and the conversions to and from a scenario.
struct ArgumentRule {
  std::vector<std::string> names;
  std::function<void(JobReader&)> in;
  std::function<void(const models::Scenario&, Arguments&)> out;
};

// Known arguments that are not read, for one reason; a name that ends in * matches all that begin so.
// `neutral`: a value equivalent to leaving them out.
struct KnownArguments {
  std::vector<std::string> names;
  std::string because, neutral;
};

struct ArgumentTable {
  std::vector<ArgumentRule> rules;
  std::vector<std::pair<std::string, std::string>> aliases;  // alias, name in the table
  std::vector<KnownArguments> irrelevant;
  std::vector<KnownArguments> approximated;
  // Arguments that say where the model stands: it is --model's, also where the file has sizes (replaced), or where it
  // has none.
  std::vector<KnownArguments> replaced, elsewhere;
  // Refused unless the value is off (false, 0, none), or equal to the only accepted value.
  std::vector<KnownArguments> refused;
};

std::vector<ArgumentRule> torchtitan_rules();
std::vector<ArgumentRule> deepspeed_rules();

// Returns a framework's rules, with its other arguments as known_arguments.json lists them.
const ArgumentTable& table_of(JobFramework framework);

// Returns whether a setting's value is equivalent to leaving it out.
bool says_nothing(const Setting& setting);

}  // namespace moesim::tools

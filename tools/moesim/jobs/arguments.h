// What the arguments of training frameworks mean: one table a framework, read in both directions. A job's
// arguments become a scenario; a scenario's plan becomes arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/workload/scenario.h"
#include "tools/moesim/jobs/job_file.h"

namespace moesim::tools {

enum class JobFramework : std::uint8_t { kMegatron, kTorchtitan, kDeepSpeed, kNemo };

// "megatron", "torchtitan", "deepspeed", "nemo". Throws InputError with the nearest name.
JobFramework framework_named(std::string_view name);
std::string_view name_of(JobFramework framework);

// What became of an argument.
enum class ArgumentUse : std::uint8_t {
  kUsed,
  kApproximated,  // part of it is not modelled, or only nearly
  kIrrelevant,    // known to leave the cost of a step alone
  kUnknown,
};
std::string_view name_of(ArgumentUse use);

struct UsedArgument {
  Setting setting;
  ArgumentUse use = ArgumentUse::kUnknown;
  std::string because;  // empty where it is used as it stands
};

// A job: the scenario as far as the arguments say it, and what the number of GPUs decides.
struct Job {
  std::string file;
  nlohmann::ordered_json scenario;
  std::optional<std::int64_t> gpus;  // of the launcher
  std::int64_t global_batch = 0;     // sequences of a step; 0: one microbatch a replica
  std::vector<UsedArgument> arguments;
  std::map<std::string, std::string, std::less<>>
      places;                        // of the scenario's paths: "train.sh:12 --num-layers"
  std::vector<std::string> assumed;  // variables of a script that were taken as not set
  std::vector<std::string> notes;    // what else its reader took for granted, a line each
  std::string no_model;  // a refusal for where --model is not said either; empty: the file has one

  // What should be said: what is not modelled, and what nobody understands, a line each.
  std::vector<std::string> remarks() const;
};

// Reads a job of a framework. Throws InputError at the argument for values that are none, for what makes
// another job than can be described, and for values that are needed and cannot be told.
Job read_job(const JobFile& file, JobFramework framework);

// Arguments in the order in which they are written; true: a flag.
using Arguments = std::vector<std::pair<std::string, nlohmann::ordered_json>>;
struct JobArguments {
  Arguments arguments;
  // What of the scenario the framework has no arguments for, or other defaults: found by reading them back.
  std::vector<std::string> left_out;
};
// Returns the arguments of a resolved scenario with one dispatcher (or none, of a dense model). Throws
// InputError for other scenarios.
JobArguments arguments_of(const models::Scenario& scenario, JobFramework framework);
// The same as the framework's files have them: "--name value" lines, TOML, JSON, YAML.
std::string arguments_text(const Arguments& arguments, JobFramework framework);

// Typed access to the settings of a job; remembers what was asked for and builds the scenario.
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
  // The same, one of `choices`.
  std::string choice(std::string_view name, std::string_view fallback,
                     std::initializer_list<std::string_view> choices);
  std::vector<std::string> list(std::string_view name);

  // Throws InputError for an optimizer under none of Adam's `names`, of which the first is the default.
  void only_adam(std::string_view name, std::initializer_list<std::string_view> names);

  // Notes that an argument is only nearly what is modelled.
  void approximate(std::string_view name, const std::string& because);
  [[noreturn]] void fail(std::string_view name, const std::string& expected);
  // Of something that is not there.
  [[noreturn]] void fail_without(const std::string& found, const std::string& expected) const;

  // Sets the scenario's value at a path, "parallel.tp".
  void set(std::string_view path, nlohmann::ordered_json value);
  Job& job() { return job_; }
  // What is set next has no argument yet that says it.
  void forget_place() { last_place_.clear(); }
  bool asked(std::string_view name) const { return asked_.contains(name); }
  const std::string* approximated(std::string_view name) const;

 private:
  const std::string& only_value(const Setting& setting) const;
  const JobFile& file_;
  Job& job_;
  std::set<std::string, std::less<>> asked_;
  std::vector<std::pair<std::string, std::string>> approximated_;
  std::string last_place_;  // of the setting that was found last
};

// One line of a framework's table: its arguments, what they say of a scenario, and back.
struct ArgumentRule {
  std::vector<std::string> names;
  std::function<void(JobReader&)> in;
  std::function<void(const models::Scenario&, Arguments&)> out;
};

// An argument that is known and not read, by its name; a name that ends in * stands for all that begin so.
// `neutral`: a value that says no more than leaving it out.
struct KnownArgument {
  std::string_view name, because, neutral = {};
};

struct ArgumentTable {
  std::vector<ArgumentRule> rules;
  std::vector<std::pair<std::string_view, std::string_view>> aliases;  // another name, the table's
  std::span<const KnownArgument> irrelevant;
  std::span<const KnownArgument> approximated;
  // Refused unless their value says nothing (false, 0, none); and those of which one value alone is meant.
  std::span<const KnownArgument> refused;
};

const ArgumentTable& megatron_table();
const ArgumentTable& torchtitan_table();
const ArgumentTable& deepspeed_table();

// "3", or "true" of a setting that stands alone: whether it says what leaving it out says.
bool says_nothing(const Setting& setting);

}  // namespace moesim::tools

// The command line of a scenario: a file, and an option for every field that has one
// (models/workload/fields.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/answers/plan_choice.h"
#include "models/workload/scenario.h"
#include "tools/moesim/jobs/arguments.h"
#include "tools/moesim/questions/scenario_document.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

// Declares --with.
void declare_with(CLI::App& app, std::vector<std::string>& with);

class ScenarioOptions {
 public:
  // Declares the file and the options, in the groups of the table. Keep this object while they are parsed.
  void declare(CLI::App& app);
  // The same without the file, which take_file() says.
  void declare_fields(CLI::App& app);
  // `framework`: whose arguments the file holds; nullopt: a scenario, or found out by name and content.
  // `words`: arguments of a script, or in the place of a file.
  void take_file(const std::string& file, std::optional<JobFramework> framework,
                 const std::vector<std::string>& words = {});

  struct Loaded {
    models::Scenario scenario;
    std::optional<Job> job;  // that it came of
  };
  // Returns the scenario of the file with what the options change, its dispatchers named, not resolved.
  // Throws InputError for values that are none, and for what the scope does not use.
  Loaded load(const CommonOptions& common) const;
  models::Scenario scenario(const CommonOptions& common) const { return load(common).scenario; }
  // Chooses what nobody said of the plan where docs/scenario.md says so: on request, and of a question
  // without a file that says no size at all. Empty where nothing was open.
  models::ChosenPlan choose(models::Scenario& scenario, const CommonOptions& common) const;
  // What document() chooses of what nobody says. Only the batch: for a question that searches plans itself.
  // Nothing: for one that chooses a batch for each of its scenarios.
  enum class Choose : std::uint8_t { kPlan, kBatch, kNothing };
  // The same question as a document that can be changed by path: the file, what the options say of it, and
  // what is chosen. `scopes`: several are asked about, so that each says itself what it has no use for.
  // Throws InputError for what the scope does not use.
  ScenarioDocument document(const CommonOptions& common, Choose choose, models::ChosenPlan& chosen,
                            bool scopes = false) const;
  // Says a field as its flag would; say_unsaid(): unless a flag has.
  void say(std::string_view path, const std::string& text);
  void say_unsaid(std::string_view path, const std::string& text);
  bool asks_anything() const { return !file_.empty() || !texts_.empty(); }
  // Whether --search was given; the question may have nothing to do with it.
  bool searches() const { return search_; }
  bool has_file() const { return !file_.empty(); }

 private:
  std::optional<Job> job() const;

  std::string file_;
  bool search_ = false;
  std::optional<JobFramework> framework_;
  std::vector<std::string> words_, with_;
  std::map<std::size_t, std::string> texts_;  // of the fields that were given, by their index
};

// Tells what was chosen, first of all, on standard output where that is for people.
void show_chosen(const models::ChosenPlan& chosen, const CommonOptions& common);

}  // namespace moesim::tools

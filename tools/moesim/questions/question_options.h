// The command line of a question: a file of any kind, and an option for every field that has one
// (models/workload/fields.h).
#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "models/question/question.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/options.h"

namespace moesim::tools {

// Declares --with.
void declare_with(CLI::App& app, std::vector<std::string>& with);

// Refuses, by name, options of a verb that `what` leaves without effect: all that were given but settings, those of
// every verb, and `taken`.
void refuse_without_effect(const CLI::App& verb, const char* what, const char* expected,
                           std::initializer_list<std::string_view> taken);

class QuestionOptions {
 public:
  // Declares the file and the options, in the groups of the table; this object must outlive parsing. `sets`:
  // with --set; false where the verb has its own.
  void declare(CLI::App& app, bool sets = true);
  // Likewise without the file, which take_file() sets. `only`: of these fields alone, with the help of each where it is
  // another than the table's; empty: of all.
  using Told = std::pair<std::string_view, const char*>;
  void declare_fields(CLI::App& app, bool sets = true, std::span<const Told> only = {});
  // `framework`: the framework of the file's arguments; nullopt: a scenario, or recognised by name and
  // content. `words`: arguments of a script, or instead of a file.
  void take_file(const std::string& file, std::optional<JobFramework> framework,
                 const std::vector<std::string>& words = {});

  struct Loaded {
    models::Question question;
    std::optional<Job> job;  // the job that it came from
  };
  // Reads the file and applies the options. Throws InputError for invalid values.
  Loaded load(const CommonOptions& common) const;
  models::Question question(const CommonOptions& common) const { return load(common).question; }

  // Returns a question that was read elsewhere with the options in place of its settings.
  models::Question over(models::Question read, const CommonOptions& common) const;

  // Set a field as its flag would; say_unsaid(): unless a flag did. set(): any path as --set would.
  void say(std::string_view path, const std::string& text);
  void set(std::string_view path, const std::string& text);
  void say_unsaid(std::string_view path, const std::string& text);
  std::string said(std::string_view path) const;                      // empty: not given
  std::vector<std::pair<std::string, std::string>> all_said() const;  // paths and their texts
  const std::string& file() const { return file_; }
  bool asks_anything() const { return !file_.empty() || !texts_.empty() || !sets_.empty(); }
  // Returns whether --search was given.
  bool searches() const { return search_; }

 private:
  std::optional<Job> job() const;

  std::string file_;
  bool search_ = false;
  std::optional<JobFramework> framework_;
  std::vector<std::string> words_, with_, sets_;
  std::map<std::size_t, std::string> texts_;  // of the given fields, by index
};

// Returns the question of a file alone.
models::Question question_of_file(const std::string& file, const CommonOptions& common);

// Returns whether the argument for a scenario file is the scenario itself, as JSON text.
bool is_scenario_text(std::string_view file);
// Reads a scenario file, or the text given instead. Throws InputError.
JsonNode read_scenario(const std::string& file);

}  // namespace moesim::tools

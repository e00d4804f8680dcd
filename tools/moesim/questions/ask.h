// Resolves and answers a question, alone or with other values at some paths.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/answers/answer.h"
#include "models/question/changes.h"
#include "models/question/question.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

using models::add_new;
using models::Answer;
using models::Comparison;
using models::difference_us;
using models::find_path;
using models::Origin;
using models::parse_value;
using models::PathValue;
using models::Question;
using models::ratio;
using models::scenario_paths;
using models::ScenarioPath;
using models::shown;
using models::split_assignment;
using models::unit_of;
using models::value_of;

// The rules of a framework, or of the plan's own (refusal_of()), which every plan keeps that a search shows. `version`:
// of Megatron's core, 0: the newest.
models::PlanRules framework_rules(int version = 0, std::optional<JobFramework> framework = {});
// Returns the command line's options for resolving: its threads, a reader for routing files, and rules.
models::ResolveOptions resolving(const CommonOptions& common, std::optional<JobFramework> framework = {});
// models::resolve() with these options.
models::Resolved settle(const Question& question, const CommonOptions& common);

// A question with its resolution: the base of a what-if question.
struct Base {
  Question question;
  models::Resolver resolver;  // resolved it; a searched plan is not searched again
  models::Resolved resolved;
  bool planned = true;  // false: open sizes are still open, and effects are not checked

  // `plan`: false where the caller searches plans itself. Throws InputError for settings without effect.
  static Base of(Question question, const CommonOptions& common, bool plan = true,
                 std::optional<JobFramework> framework = {});
  // Resolves another question, searching its plan again only where necessary. Throws InputError for settings
  // without effect among the `changed` ones.
  Base with(Question other, const std::vector<ScenarioPath>& changed = {}) const;
};

// Opens the scenario's routing file, if any, and answers.
Comparison ask(models::Scenario scenario, const models::AnswerOptions& options);

// Answers a base with other values at some paths; shared work is read, searched and priced once. One per
// thread.
class Asker {
 public:
  Asker(const Base& base, std::vector<ScenarioPath> paths);
  ~Asker();
  Asker(Asker&&) noexcept;

  // An illegal dispatcher among legal ones becomes an answer with an error. Throws InputError as resolving and
  // answering do.
  Comparison ask(const std::vector<PathValue>& values, models::AnswerOptions options);
  models::Resolved resolve(const std::vector<PathValue>& values);

 private:
  std::vector<ScenarioPath> paths_;
  bool planned_;
  models::Changes changes_;
  models::Resolver resolver_;
  // Pointers make an Asker movable.
  std::unique_ptr<models::PriceCache> prices_;
  std::unique_ptr<models::RoutingCache> routings_;
};

// Returns "plan chosen: --tp 1 ... (the fastest of 672 tried ...)" and the notes, a line each.
std::string chosen_text(const models::Resolved& resolved);
// Prints chosen_text() where the output is a table.
void show_chosen(const models::Resolved& resolved, const CommonOptions& common);

}  // namespace moesim::tools

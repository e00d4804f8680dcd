// Asking: a question is resolved and answered, alone or with many other values at some paths.
#pragma once

#include <memory>
#include <vector>

#include "models/answers/answer.h"
#include "models/answers/priced_draws.h"
#include "models/question/changes.h"
#include "models/question/question.h"
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

// How the command line resolves questions: with its threads, and routing files opened by their reader.
models::ResolveOptions resolving(const CommonOptions& common);
// models::resolve() with these.
models::Resolved settle(const Question& question, const CommonOptions& common);

// A question beside its resolution: what a what-if question starts from.
struct Base {
  Question question;
  models::Resolver resolver;  // that has resolved it: a plan which was searched is not searched again
  models::Resolved resolved;

  // `plan`: false where the caller searches plans itself.
  static Base of(Question question, const CommonOptions& common, bool plan = true);
  // The same with another question, whose plan is searched again only where it has to be.
  Base with(Question other) const;
};

struct AskOptions {
  int draws = 48;  // 0: no intervals
  bool breakdown = true;
  double tolerance = models::Decision::kTolerance;
  std::vector<models::Measured> measured = {};  // of a run of the scenario that is asked
  const models::Anchor* anchor = nullptr;       // of another scenario's run
};

// Opens the scenario's routing file, where it names one, and answers.
Comparison ask(models::Scenario scenario, const models::AnswerOptions& options);
// The same where an illegal dispatcher beside legal ones is an answer with its error.
Comparison ask(models::Scenario scenario, const AskOptions& options);

// Asks about a base with other values at some paths; what the rows share is read, searched and priced once.
// One per thread.
class Asker {
 public:
  Asker(const Base& base, std::vector<ScenarioPath> paths);

  // Throws InputError as resolving and answering do.
  Comparison ask(const std::vector<PathValue>& values, const AskOptions& options);
  models::Resolved resolve(const std::vector<PathValue>& values);

 private:
  models::Changes changes_;
  models::Resolver resolver_;
  // Behind pointers, so that an Asker can be moved.
  std::unique_ptr<models::PriceCache> prices_ = std::make_unique<models::PriceCache>();
  std::unique_ptr<models::RoutingCache> routings_ = std::make_unique<models::RoutingCache>();
};

// "plan chosen: --tp 1 ... (the fastest of 672 tried ...)" and what else was taken, a line each.
std::string chosen_text(const models::Resolved& resolved);
// The same first of all, on standard output where that is for people.
void show_chosen(const models::Resolved& resolved, const CommonOptions& common);

}  // namespace moesim::tools

// A question: what was said about a job, setting by setting with its origin, and how it becomes the scenario
// that is answered. Every reader (command line, script, table row, log, page, Python) makes one, every verb
// takes one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/question/plan_choice.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// A training job whose arguments the settings come from.
struct JobSource {
  std::string file;
  std::int64_t gpus = 0;  // that its launcher starts; 0: not said
};

struct Question {
  Scenario said;        // not resolved: what was said, with origins; the rest are the fields' defaults
  std::string file;     // whose folder paths in changes are taken from; empty: the current folder
  bool search = false;  // sizes of the plan that were not said are searched
  // A job's arguments say its whole plan: sizes that they leave out are their framework's defaults.
  std::optional<JobSource> job;
};

// Asks for a search where the question leaves its whole plan open: one about a training step that says no
// size. Call it before sizes are changed: what was searched then stays searched.
void open_plan(Question& question);

// A question with everything that follows from what was said. Not yet Scenario::resolve()d: answer() does.
struct Resolved {
  Scenario scenario;
  ChosenPlan chosen;  // of a plan that was open
  // What was taken that was not said and that a reader should see first, a clause each.
  std::vector<std::string> notes;
};

struct ResolveOptions {
  int threads = 0;  // of a search of plans; 0: all cores
  // Opens the file that a routing names, for searches; models know no formats.
  std::function<void(RoutingSpec&)> open_routing;
  // false: the caller searches plans itself; what is open stays so.
  bool plan = true;
};

// Resolves questions that differ in a few settings. A plan that was searched is searched again for another
// model, scope or machine (its GPU, their number, NVLink domain or memory), and stays under other changes.
// Not for several threads at a time.
class Resolver {
 public:
  explicit Resolver(ResolveOptions options = {});

  // Said before recipe before default: fills what follows from what was said. Throws InputError for a field
  // that the scope does not use, and where no plan fits.
  Resolved resolve(const Question& question);

 private:
  struct Searched {
    Scenario plan;
    ChosenPlan chosen;
  };
  void search(Resolved& r);

  ResolveOptions options_;
  std::map<std::string, Searched> searched_;  // by what a search depends on
};

// Resolver(options).resolve(question).
Resolved resolve(const Question& question, const ResolveOptions& options = {});

// The dispatchers that people choose between for a dispatch group of so many ranks on a machine: Megatron's
// AllGather and AlltoAll, and DeepEP and HybridEP where their kernels were measured on its GPU, or on its
// network where the group spans NVLink domains.
std::vector<DispatcherSpec> usual_dispatchers(const Cluster& cluster, std::int64_t ranks);

// Returns every setting that is not its default, of a resolved scenario: [{"path", "value", "origin":
// {"kind", "where"}}]. Objects stand with their name, parts of them that were changed with their own path.
nlohmann::ordered_json settings_json(const Scenario& scenario);

}  // namespace moesim::models

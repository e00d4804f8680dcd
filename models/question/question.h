// A question: the given settings of a job, each with its origin, and how they become the scenario that is
// answered. Every reader (command line, script, table row, log, page, Python) makes one, every verb takes
// one.
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

struct ScenarioPath;

// GPUs that a job's launcher starts; 0: not given.
struct LaunchedGpus {
  std::int64_t count = 0, per_node = 0;
};

// A training job from whose arguments the settings come.
struct JobSource {
  std::string file;
  LaunchedGpus gpus;
};

struct Question {
  Scenario said;        // given settings with origins, not resolved; the rest are defaults
  std::string file;     // relative paths in changes start from its folder; empty: the current folder
  bool search = false;  // searches the sizes of the plan that were not given
  // Set where a job's arguments give its whole plan: missing sizes are the framework's defaults.
  std::optional<JobSource> job;
};

// Turns on the search where the question leaves its whole plan open: a training step without any given size.
// Call it before sizes are changed, so that searched sizes stay searched.
void open_plan(Question& question);

// A question with everything derived from its settings.
struct Resolved {
  Scenario scenario;  // resolved, unless its plan is left open or there is an error
  Scenario asked;     // without the sizes that follow from others: what a result holds as its inputs
  ChosenPlan chosen;  // choice for a plan that was open
  // Important assumed values that were not given, one clause each.
  std::vector<std::string> notes;
  std::vector<WithoutEffect> dropped;
  // Why the settings contradict each other: what no one can answer, though a study may change it.
  std::string error;
};

struct ResolveOptions {
  int threads = 0;  // for a search of plans; 0: all cores
  // Opens the file that a routing names, for searches; models contain no file formats.
  std::function<void(RoutingSpec&)> open_routing;
  PlanRules refused;  // which a searched plan keeps
  // false: the caller searches plans; open sizes stay open.
  bool plan = true;
};

// Resolves questions that differ in a few settings. A searched plan is searched again for another model,
// scope or machine (its GPU, their number, NVLink domain or memory) and stays under other changes. Not
// thread-safe.
class Resolver {
 public:
  explicit Resolver(ResolveOptions options = {});

  // Resolves a question in this order, each once: recipe, GPUs, plan, dispatchers, batch, check. Throws
  // InputError for a field that the scope does not use, and where no plan fits.
  Resolved resolve(const Question& question);

 private:
  struct Searched {
    Scenario plan;
    ChosenPlan chosen;
  };
  void search(Resolved& r);

  ResolveOptions options_;
  std::map<std::string, Searched> searched_;  // by the settings that a search depends on
};

// Resolver(options).resolve(question).
Resolved resolve(const Question& question, const ResolveOptions& options = {});

// Throws InputError for the first of the user's settings that had no effect and was dropped. Those of a job's
// arguments and of recipes are dropped silently, and with a note in `resolved` what a searched size leaves
// without effect. `changed`: checks these paths alone; null: all.
void check_effects(const Question& question, Resolved& resolved,
                   const std::vector<ScenarioPath>* changed = nullptr);

// Returns the usual dispatchers for a dispatch group of `ranks` ranks on a machine: Megatron's AllGather and
// AlltoAll, and DeepEP and HybridEP where their kernels were measured on its GPU, or on its network where the
// group spans NVLink domains.
std::vector<DispatcherSpec> usual_dispatchers(const Cluster& cluster, std::int64_t ranks);

// Returns every setting of a resolved scenario that differs from its default: [{"path", "value", "origin":
// {"kind", "where"}}]. Objects appear by name, their changed parts by their own path.
nlohmann::ordered_json settings_json(const Scenario& scenario);

}  // namespace moesim::models

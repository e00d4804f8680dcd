#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

const std::vector<Verb>& all_verbs() {
  static const std::vector<Verb> verbs{
      compare_verb(), replay_verb(), validate_verb(), plan_verb(),       whatif_verb(),
      sweep_verb(),   rerun_verb(),  scenario_verb(), calibrate_verb(),  trace_verb(),
      list_verb(),    schema_verb(), serve_verb(),    completion_verb(),
  };
  return verbs;
}

}  // namespace moesim::tools

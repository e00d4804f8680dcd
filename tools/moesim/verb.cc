#include "tools/moesim/verb.h"

namespace moesim::tools {

const std::vector<Verb>& all_verbs() {
  static const std::vector<Verb> verbs{
      compare_verb(),
      list_verb(),
      trace_verb(),
  };
  return verbs;
}

}  // namespace moesim::tools

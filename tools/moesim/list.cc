// `moesim list`: what is built in.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/moesim/output.h"
#include "tools/moesim/verb.h"

namespace moesim::tools {

Verb list_verb() {
  return {"list", "what is built in: models, clusters, profiles, dispatchers, routings",
          "  moesim list dispatchers\n  moesim list models --format json", [](CLI::App&) -> Run {
            return [](const CommonOptions&) { return 0; };
          }};
}

}  // namespace moesim::tools

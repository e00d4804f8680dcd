// `moesim completion`: completions for bash, and the man page, from the definition of the command line.
#include <memory>
#include <string>

#include "base/input_error.h"
#include "base/text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/shell_files.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

Verb completion_verb() {
  return {"completion", "completions for bash (zsh reads them after bashcompinit), and the man page",
          "  source <(moesim completion bash)\n"
          "  moesim completion man | man -l -",
          [](CLI::App& command) -> Run {
            const auto what = std::make_shared<std::string>();
            command.add_option("what", *what, "bash or man")->required()->type_name("bash|man");
            const CLI::App* app = command.get_parent();
            return [what, app](const CommonOptions&) {
              if (*what == "bash")
                print(bash_completion(*app));
              else if (*what == "man")
                print(man_page(*app));
              else
                throw InputError("completion: found " + in_quotes(*what) + ", expected bash or man");
              return 0;
            };
          }};
}

}  // namespace moesim::tools

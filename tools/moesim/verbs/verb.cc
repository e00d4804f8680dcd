#include "tools/moesim/verbs/verb.h"

#include <fmt/format.h>

#include <memory>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::tools {

Run declare_commands(CLI::App& verb, const std::vector<Command>& commands, const Run& otherwise) {
  const std::vector<CLI::Option> own = verb.get_options();
  auto declared = std::make_shared<std::vector<std::pair<CLI::App*, Run>>>();
  for (const Command& command : commands) {
    CLI::App* app = verb.add_subcommand(command.name, command.summary);
    if (!command.examples.empty()) app->footer("Examples:\n" + command.examples);
    app->fallthrough();  // --format and similar may follow
    app->allow_extras();
    declared->emplace_back(app, command.declare(*app));
  }
  verb.require_subcommand(0, 1);
  return [=, name = verb.get_name()](const CommonOptions& common) {
    std::vector<std::string> names;
    for (const auto& [app, run] : *declared) {
      names.push_back(app->get_name());
      if (!app->parsed()) continue;
      for (const CLI::Option& option : own)
        if (option->count() > 0)
          throw InputError(
              fmt::format("{0} {1}: found {2}, expected options of `moesim {0} {1} --help` behind {1}", name,
                          names.back(), option->get_name()));
      return run(common);
    }
    if (otherwise) return otherwise(common);
    throw InputError({"moesim " + name}, "no command", "one of " + join(names, ", "));
  };
}

const std::vector<Verb>& all_verbs() {
  static const std::vector<Verb> verbs{
      compare_verb(), replay_verb(), validate_verb(), plan_verb(),       whatif_verb(),
      sweep_verb(),   rerun_verb(),  scenario_verb(), calibrate_verb(),  trace_verb(),
      list_verb(),    schema_verb(), serve_verb(),    completion_verb(),
  };
  return verbs;
}

}  // namespace moesim::tools

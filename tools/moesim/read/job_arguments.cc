#include "tools/moesim/read/job_arguments.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace moesim::tools {

nlohmann::ordered_json job_arguments_json(const JobArguments& made, JobFramework framework) {
  nlohmann::ordered_json j{{"framework", name_of(framework)},
                           {"arguments", nlohmann::ordered_json::object()}};
  for (const auto& [name, value] : made.arguments) j["arguments"][name] = value;
  j["text"] = arguments_text(made.arguments, framework);
  j["left_out"] = made.left_out;
  return j;
}

models::Scenario with_dispatcher(const models::Scenario& scenario, const std::string& dispatcher) {
  models::Scenario one = scenario;
  std::erase_if(one.dispatchers, [&](const models::DispatcherSpec& d) { return d.text() != dispatcher; });
  one.all_dispatchers = false;
  return one;
}

std::string plan_arguments_text(const models::Scenario& plan, JobFramework framework) {
  const JobArguments made = arguments_of(plan, framework);
  std::string text = fmt::format("\narguments of {}:\n", name_of(framework));
  for (const std::string& one : made.left_out) text += fmt::format("not among them: {}\n", one);
  return text + "\n" + arguments_text(made.arguments, framework);
}

}  // namespace moesim::tools

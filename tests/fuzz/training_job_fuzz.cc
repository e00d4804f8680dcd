// Any bytes as a training job's file (a shell script, YAML, TOML, JSON): refused with one line, or read into
// a scenario, whose arguments are written and read back.
#include "base/json_reader.h"
#include "models/dispatchers/dispatcher.h"
#include "tests/fuzz/one_line.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/read/load_job.h"

namespace {

using namespace moesim;

void take(const tools::JobFile& file, tools::JobFramework framework) {
  tools::Job job = tools::read_job(file, framework);
  if (job.gpus.count == 0) job.gpus.count = 8;
  check(job.arguments.size() >= file.settings.size(), "every argument is accounted for");
  for (const std::string& remark : job.remarks()) check(!remark.empty(), "a remark says something");
  models::Question question = tools::question_of(job);
  if (question.said.model.hidden == 0) question.said.set_model("mixtral-8x7b");
  models::Scenario scenario = models::resolve(question).scenario;
  models::name_dispatchers(scenario);
  if (scenario.dispatchers.size() > 1) scenario.set_dispatchers("alltoall");
  scenario.resolve();
  const tools::JobArguments made = tools::arguments_of(scenario, framework);
  check(!tools::arguments_text(made.arguments, framework).empty(), "a plan has arguments");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  using tools::JobFramework;
  fuzz::accepted([&] { take(tools::read_shell_job(text, "fuzz.sh", {"N=8"}), JobFramework::kMegatron); });
  fuzz::accepted([&] { take(tools::read_yaml_job(text, "fuzz.yaml", {}), JobFramework::kMegatron); });
  fuzz::accepted([&] { take(tools::read_toml_job(text, "fuzz.toml", {}), JobFramework::kTorchtitan); });
  fuzz::accepted([&] { take(tools::read_json_job(text, "fuzz.json", {}), JobFramework::kDeepSpeed); });
  return 0;
}

// `moesim plan`: machine, plan, duration and cost of training a model on so many tokens.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "models/answers/training_run.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "tools/moesim/questions/anchoring.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/questions/plan_question.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/argument_checks.h"
#include "tools/moesim/read/arguments.h"
#include "tools/moesim/show/comparison.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/terminal.h"
#include "tools/moesim/show/training_run.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct PlanOptions {
  QuestionOptions scenario;
  PlanQuestion question;
  Anchoring anchoring;
  bool no_upgrades = false;
  int top = 10;
  std::string report, script;
};

// Refuses plans of frameworks whose program is the user's.
void check_script(const models::Scenario& plan) {
  const std::string_view rules = rules_of(plan);
  if (rules == "deepspeed" || rules == "nemo-automodel")
    throw InputError(
        fmt::format("--script: found a plan of {}, expected one of Megatron or torchtitan", rules));
}

// Returns a bash script with lines for sbatch and torchrun, and the plan's arguments for pretrain_gpt.py of Megatron-LM
// or as torchtitan's file; comments above them give the moesim command that forecasts the plan (`command`) and what
// the arguments leave out. Throws InputError for features that the framework lacks.
std::string launch_script(const models::Scenario& plan, const std::string& command, int version) {
  const bool titan = rules_of(plan) == "torchtitan";
  const JobFramework framework = titan ? JobFramework::kTorchtitan : JobFramework::kMegatron;
  const JobArguments made = arguments_of(plan, framework, version);
  const std::string arguments = arguments_text(made.arguments, framework);
  // A rack of 72 GPUs in one NVLink domain is made of hosts of 4 (NVIDIA's GB200 NVL72: 18 compute trays).
  const std::int64_t world = plan.parallel.world(), node = plan.cluster->gpus_per_node;
  const std::int64_t host = node > 16 && node % 4 == 0 ? 4 : node;
  std::int64_t hosts = (world + host - 1) / host;
  while (world % hosts != 0) ++hosts;  // torchrun starts as many on each
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH --nodes={0}\n#SBATCH --ntasks-per-node=1\n"
      "#SBATCH --gpus-per-node={1}\n#SBATCH --exclusive\n",
      hosts, world / hosts);
  text += fmt::format("# The forecast of this plan: {}\n", command);
  for (const std::string& one : made.left_out) text += fmt::format("# Not among the arguments: {}\n", one);
  text += "# Data, tokenizer, learning rate and checkpoints are yours: \"$@\".\nset -euo pipefail\n";
  text += fmt::format(
      "{}MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
      "{}srun torchrun --nnodes={} --nproc-per-node={} --rdzv-backend=c10d \\\n"
      "  --rdzv-endpoint=\"$MASTER_ADDR:29500\" --rdzv-id=\"$SLURM_JOB_ID\" \\\n"
      "  {} \"$@\"\n",
      variables_text(made.arguments),
      titan ? fmt::format("cat > job.toml <<'END'\n{}END\n", arguments)
            : fmt::format("ARGUMENTS=(\n{})\n", arguments),
      hosts, world / hosts,
      titan                        ? "-m torchtitan.train --job.config_file job.toml"
      : plan.model.pattern.empty() ? "pretrain_gpt.py \"${ARGUMENTS[@]}\""
                                   : "pretrain_mamba.py \"${ARGUMENTS[@]}\"");
  return text;
}

// Removes the settings that nobody gave from a scenario's JSON: a default that it holds counts as given when it
// is read, and `plan` does not search what is given.
void keep_said(nlohmann::ordered_json& json, const models::Scenario& scenario) {
  for (const models::Field& field : models::scenario_fields()) {
    std::string path(field.path);
    std::ranges::replace(path, '.', '/');
    const nlohmann::ordered_json::json_pointer at("/" + path);
    if (!scenario.gave(field.path) && json.contains(at)) json[at.parent_pointer()].erase(at.back());
  }
}

int run_plan(const PlanOptions& o, const CommonOptions& common) {
  check_report(common.report);
  std::string batch;
  QuestionOptions options = o.scenario;
  options.say_unsaid("scope", "step");
  if (options.searches())
    throw InputError(
        "--search: found with plan, which searches every size that you do not give; expected it with another verb");
  models::RunQuestion q = o.question.question(Base::of(options.question(common), common, false), batch);
  if (!o.script.empty()) check_script(q.scenario);
  q.upgrades = !o.no_upgrades;
  q.threads = common.threads;
  std::optional<Comparison> run;  // of the existing job
  if (o.anchoring.measured()) {
    const models::Scenario own = Base::of(options.question(common), common).resolved.scenario;
    run = ask(own, {.each = true, .measured = o.anchoring.of(own)});
    if (print_unexplained("plan", *run, common)) return 1;
    q.anchor = &*run->anchor;
    q.spread = {};
  }
  const models::RunAnswer a = [&] {
    ProgressLine line(common);
    q.progress = line.teller();
    return models::plan_run(q);
  }();
  const std::vector<std::string> warnings = training_run_warnings(a);
  if (!o.script.empty())
    write_file(o.script,
               launch_script(*a.plans.front().scenario, plan_command(a.plans.front()), o.question.version()));
  if (wants_result(common)) {
    models::Scenario said = q.scenario;
    // Settings below cluster need one cluster, whose numbers describe them; a plan's own question has none.
    if (std::ranges::any_of(said.origins.all(),
                            [](const auto& one) { return one.first.starts_with("cluster."); }))
      said.cluster = q.machines.front().cluster;
    nlohmann::ordered_json inputs = describe_inputs(common, said);
    keep_said(inputs["scenario"], said);
    nlohmann::ordered_json result = envelope("plan", inputs, warnings);
    add_model(result, q.scenario);
    add_training_run(result, q, a, batch);
    if (run) result["anchor"] = json_of(*run->anchor);
    if (publish(result, common)) return 0;
  }
  if (common.format == Format::kCsv) {
    print(training_run_csv(a));
    return 0;
  }
  print(training_run_text(q, a, batch, o.top));
  if (run) print("\n" + anchor_text(*run));
  const models::PricedTraining& best = a.plans.front();
  warn_below(common, to_act_on(best.answer.warnings, *best.scenario->cluster, {&best.answer, 1}));
  return 0;
}

const ResultSchema kUnexplained("plan", "plan --measured", schema_of_unexplained);

}  // namespace

Verb plan_verb() {
  return {
      "plan",
      "from a model and its tokens to a machine, a plan, the days and the money",
      "  moesim plan --model deepseek-v3 --tokens 14.8T --cluster h800x256 --precision fp8 --recipe hai-llm\n"
      "  moesim plan --model qwen3-30b-a3b --tokens 2T --clusters h100,h200,b200 --deadline 30d",
      [](CLI::App& app) -> Run {
        auto o = std::make_shared<PlanOptions>();
        o->question.declare(app);
        o->anchoring.declare(app, false);
        app.add_flag("--no-upgrades", o->no_upgrades, "Without what a faster network or GPU is worth")
            ->group(kQuestionGroup);
        app.add_option("--top", o->top, "Plans shown [10]")
            ->check(CLI::Range(1, 1000))
            ->group(kQuestionGroup);
        app.add_option("--script", o->script, "Write a batch script (sbatch, torchrun) of the best plan")
            ->type_name("FILE")
            ->group(kQuestionGroup);
        o->scenario.declare(app);
        declare_report(app, o->report);
        return [o](const CommonOptions& common) {
          CommonOptions with_report = common;
          with_report.report = o->report;
          return run_plan(*o, with_report);
        };
      },
      {"--model", "--tokens", "--clusters", "--gpus", "--deadline", "--budget", "--by", "--prices",
       "--script", "--report"}};
}

}  // namespace moesim::tools

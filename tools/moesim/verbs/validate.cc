// `moesim validate`: how far forecasts are from what was measured: recordings, a training log, published
// tables.
#include "tools/moesim/verbs/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "base/units.h"
#include "tools/moesim/questions/question_options.h"
#include "tools/moesim/read/training_log.h"
#include "tools/moesim/show/report.h"
#include "tools/moesim/validation/validation.h"
#include "tools/moesim/verbs/verb.h"

namespace moesim::tools {

namespace {

struct ValidateOptions {
  FileValidation file;
  RecordingValidation recordings;
  LogValidation log;
  TableQuestion table;
  std::vector<std::string> training, decisions;
  std::string memory, known, leave_out;
};

using Names = std::vector<std::string>;

// What each question is asked with, the first that is given, and the options that belong to it alone or to
// some. Others belong to recordings.
const Names kQuestions{"file", "--log", "--training", "--decisions", "--known", "--memory", "--all"};
const Names kOfFile{"file"};
const std::vector<std::pair<std::string_view, Names>> kBelong{
    {"--only", {"--all"}},
    {"--job", {"--log", "file"}},
    {"--with", {"--log", "file"}},
    {"--by-running", {"--log", "file"}},
    {"--detail", {"--training", "--memory"}},
    {"--leave-out", {"--training", "--decisions"}},
    {"--anchored", {"--decisions"}},
    {"--cluster", {"--log", "--all", "--forecast", "file"}},
    {"--draws", {"--log", "file", "--training", "--decisions", "--all", "--forecast"}},
    {"--max-error", {"--log", "--training", "--decisions", "--memory", "--all", "--forecast"}},
    {"--report", {"--log", "--training", "--decisions", "--known", "--memory", "--all", "--forecast"}}};

// What rows of a file do not say, and what a training log has no use for.
const Names kFacts{"--gpu",    "--source", "--library", "--op",      "--nodes", "--gpus-per-node", "--tokens",
                   "--hidden", "--topk",   "--experts", "--network", "--nics",  "--nic-rate"};

// Returns the option that asks the question: of a pair of recordings --forecast. Refuses options without
// effect on it.
std::string question_of(const CLI::App& app) {
  const auto asked = std::ranges::find_if(kQuestions, [&](const auto& name) { return app.count(name) > 0; });
  std::string question = asked == kQuestions.end() ? "--forecast" : *asked;
  const Names common{"--format", "--quiet", "--seed", "--threads"}, recordings{"--all", "--forecast"};
  for (const CLI::Option option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == question || std::ranges::count(common, name) > 0) continue;
    const auto at = std::ranges::find(kBelong, name, &std::pair<std::string_view, Names>::first);
    const Names& to = std::ranges::count(kFacts, name) > 0 ? kOfFile
                      : at == kBelong.end()                ? recordings
                                                           : at->second;
    if (std::ranges::count(to, question) > 0) continue;
    if (std::ranges::count(recordings, question) > 0)
      throw InputError(fmt::format("found {} without {}", name, join(to, " or ")));
    throw InputError(fmt::format("found {} beside {}, which does not look at it", name, question));
  }
  return question;
}

// Refuses options that this kind of file has no use for.
int validate_file(ValidateOptions& o, const CLI::App& app, const CommonOptions& common) {
  std::error_code error;
  const std::string text = std::filesystem::is_directory(o.file.file, error)
                               ? std::string()
                               : read_file(o.file.file, kMaxTrainingLogBytes);
  const bool training = has_steps(text);
  const Names of_training{"--job", "--with", "--by-running", "--cluster", "--draws"};
  for (const std::string& name : training ? kFacts : of_training)
    if (app.count(name) > 0)
      throw InputError(fmt::format("found {} beside {}, which is {}", name, o.file.file,
                                   training ? "a training log: --cluster and --job say what ran"
                                            : "no training log: --gpu, --network, --nics say what ran"));
  for (const auto& [path, text] : o.recordings.job.said()) {
    if (path == "cluster.nodes") o.file.facts.nodes = static_cast<int>(parse_int(text).value_or(0));
    if (path == "model.experts") o.file.facts.experts = parse_int(text).value_or(0);
  }
  if (!training) return validate_rows(o.file, text, common);
  o.log.log = o.file.file;
  o.log.judge = true;
  if (app.count("--cluster") > 0) o.log.cluster = o.recordings.cluster;
  o.log.draws = o.recordings.draws;
  return validate_log(o.log, common);
}

int run(ValidateOptions& o, const CLI::App& app, CommonOptions common) {
  const std::string question = question_of(app);
  if (question == "file") return validate_file(o, app, common);
  if (question == "--all" || question == "--forecast") {
    return validate_recordings(o.recordings, common);
  }
  check_report(o.recordings.report);
  common.report = o.recordings.report;
  const double limit = o.recordings.max_error.empty() ? 0 : parse_fraction(o.recordings.max_error);
  if (question == "--log") {
    if (app.count("--cluster") > 0) o.log.cluster = o.recordings.cluster;
    o.log.draws = o.recordings.draws;
    o.log.max_error = limit;
    return validate_log(o.log, common);
  }
  const std::string detail = question == "--memory" ? "causes" : "breakdown";
  if (!o.table.detail.empty() && o.table.detail != detail)
    throw InputError(
        fmt::format("found --detail {} beside {}, expected {}", o.table.detail, question, detail));
  o.table.max_error = limit;
  o.table.leave_out = !o.leave_out.empty();
  o.table.draws = o.recordings.draws;
  const auto ask = [&](auto validate, Names tables) {
    o.table.tables = std::move(tables);
    return validate(o.table, common);
  };
  if (question == "--known") return ask(validate_known, {o.known});
  if (question == "--memory") return ask(validate_memory, {o.memory});
  return question == "--decisions" ? ask(validate_decisions, o.decisions)
                                   : ask(validate_training, o.training);
}

void declare_recordings(CLI::App& app, RecordingValidation& o) {
  app.add_option("--forecast", o.forecast, "scaling recording to forecast from; several are pooled")
      ->type_name("DIR");
  app.add_option("--measured", o.measured, "realistic recording of the same job")->type_name("DIR");
  app.add_option("--all", o.all, "every <name>/scaling* below DIR against its <name>/realistic")
      ->type_name("DIR");
  app.add_option("--only", o.only, "with --all: only recordings whose paths below DIR hold this text");
  app.add_option("--cluster", o.cluster, "what the job ran on: a built-in name or a file")
      ->capture_default_str();
  o.job.declare_job(app);
  app.add_flag("--rescale", o.rescale, "give the forecast the sizes of the measured job, where they differ");
  app.add_option("--timeline", o.timeline,
                 "write forecast and measurement side by side as Chrome trace JSON");
  o.shown.declare(app);
  declare_report(app, o.report);
  app.add_option("--microbatches", o.microbatches, "per rank; default: as measured")
      ->check(CLI::Range(1, 1 << 20).description(""));
  app.add_option("--draws", o.draws, "forecasts drawn for the 90 % intervals; 0: run-to-run noise only")
      ->check(CLI::Range(0, 10000).description(""))
      ->capture_default_str();
}

void declare_log(CLI::App& app, LogValidation& o) {
  app.add_option("--log", o.log, "log of a training job (Megatron, torchtitan): its steps")
      ->type_name("FILE");
  app.add_option("--job", o.job,
                 "with --log: the job's arguments or a scenario [the arguments that the log holds]")
      ->type_name("FILE");
  declare_with(app, o.with);
}

void declare_tables(CLI::App& app, ValidateOptions& o) {
  app.add_option("--training", o.training, "tables of published training steps")->type_name("CSV");
  app.add_option("--decisions", o.decisions,
                 "tables of steps under several dispatchers: which wins, how sure")
      ->type_name("CSV");
  app.add_option("--memory", o.memory, "table of jobs that ran: measured peaks, and whether they fit")
      ->type_name("CSV");
  app.add_option("--known", o.known, "folder of public figures: exit 1 where one leaves its band")
      ->type_name("DIR");
  app.add_option("--leave-out", o.leave_out,
                 "with --training and --decisions: source, each publication is forecast without what "
                 "its rows taught")
      ->check(CLI::IsMember({"source"}));
  app.add_flag("--anchored", o.table.anchored,
               "with --decisions: each dispatcher in turn is a run that is known, as --measured takes it");
  app.add_option("--detail", o.table.detail,
                 "with --training: breakdown, the parts of every step (JSON); with --memory: causes, what "
                 "the fullest stage holds (JSON)")
      ->check(CLI::IsMember({"breakdown", "causes"}));
}

}  // namespace

Verb validate_verb() {
  return {"validate",
          "is this run normal, and if not, why; how far forecasts are from measured runs",
          "  moesim validate all_reduce.log --gpu h100-sxm --network infiniband-ndr\n"
          "  moesim validate --forecast rec/scaling --measured rec/realistic --cluster echo-h800x2",
          [](CLI::App& app) -> Run {
            auto options = std::make_shared<ValidateOptions>();
            options->file.declare(app);
            declare_recordings(app, options->recordings);
            declare_log(app, options->log);
            declare_tables(app, *options);
            app.add_option("--max-error", options->recordings.max_error,
                           "exit 1 when an iteration is further off, e.g. 5%");
            return
                [options, verb = &app](const CommonOptions& common) { return run(*options, *verb, common); };
          },
          {"--network", "--forecast", "--measured", "--all", "--cluster", "--training", "--decisions",
           "--memory", "--known", "--log"}};
}

}  // namespace moesim::tools

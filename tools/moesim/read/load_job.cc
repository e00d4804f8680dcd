#include "tools/moesim/read/load_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/file_io.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/embedded_profiles.h"
#include "models/workload/fields.h"

namespace moesim::tools {

namespace {

bool ends_in(const std::filesystem::path& file, std::initializer_list<std::string_view> endings) {
  const std::string extension = file.extension().string();
  return std::ranges::find(endings, extension) != endings.end();
}

bool is_yaml(const std::filesystem::path& file) { return ends_in(file, {".yaml", ".yml"}); }

// Keys of a DeepSpeed configuration that a scenario does not have.
constexpr std::array<std::string_view, 4> kDeepSpeedKeys{
    "\"train_batch_size\"", "\"train_micro_batch_size_per_gpu\"", "\"zero_optimization\"",
    "\"gradient_accumulation_steps\""};

constexpr std::string_view kSayIt =
    "its model and plan as options (--model NAME or a config.json, --cluster, --tp, --pp, --ep, --dp), or "
    "the arguments of the command that runs it (`moesim scenario from megatron -- COMMAND`)";

// Refuses the files of frameworks that are not read (known_arguments.json) by their words, with what of them says
// options of moesim.
void refuse_foreign(const std::string& text, const std::string& name) {
  const std::string lines = "\n" + text;
  const JsonNode file = JsonNode::parse(models::embedded_table("known_arguments"), "known_arguments.json");
  for (const JsonNode& node : file.find("frameworks")->items()) {
    JsonObject row(node);
    for (const JsonNode& node_of_mark : row.at("marks").items()) {
      std::string mark = node_of_mark.string();
      if (mark.starts_with('^')) mark[0] = '\n';  // at the start of a line
      const std::size_t at = lines.find(mark);
      if (at == std::string::npos) continue;
      std::vector<std::string> options;
      if (const auto known = row.find("options"))
        for (const std::string& key : known->keys())
          if (lines.find(key) != std::string::npos)
            options.push_back(fmt::format("{} as {}", key, known->find(key)->string()));
      throw InputError(
          SourcePlace{name,
                      std::count(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(at + 1), '\n')},
          fmt::format("{} of {}, whose model stands elsewhere (key {})", trim(mark), row.at("name").string(),
                      row.at("model").string()),
          options.empty() ? row.string("way", std::string(kSayIt))
                          : fmt::format("its plan as options beside --model NAME or its config.json: {}",
                                        join(options, ", ")));
    }
  }
}

// Returns why a file's model has to be said by --model; "" where it has its own.
std::string no_model(const JobFile& file, JobFramework framework, bool has) {
  const ArgumentTable& table = table_of(framework);
  for (const std::vector<KnownArguments>* list : {&table.replaced, &table.elsewhere})
    for (const KnownArguments& known : *list)
      for (const std::string& key : known.names)
        for (const Setting& s : file.settings)
          if ((list == &table.replaced || !has) && s.name == key && !says_nothing(s))
            return fmt::format(
                "{}: found a model that is described elsewhere ({}{}{}), expected --model NAME or its config.json",
                s.place.str(), s.shown, s.values.empty() ? "" : " ", join(s.values, " "));
  if (has) return "";
  return fmt::format(
      "{}: found no model (num_layers, hidden_size, ...), expected --model NAME or a config.json beside it",
      file.file);
}

// Returns the recipe of a framework, whose name tells the dispatchers that it has.
std::string recipe_of(JobFramework framework) {
  if (framework == JobFramework::kMegatron) return "megatron-lm";
  return std::string(framework == JobFramework::kNemo ? "megatron-bridge" : name_of(framework));
}

Job job_of_file(const JobFile& file, JobFramework framework) {
  Job job = read_job(file, framework);
  job.framework = recipe_of(framework);
  if (std::string elsewhere = no_model(file, framework, job.scenario.contains("model")); !elsewhere.empty()) {
    job.scenario.erase("model");
    if (job.no_model.empty()) job.no_model = std::move(elsewhere);
  }
  return job;
}

}  // namespace

std::optional<JobFramework> framework_of_file(const std::filesystem::path& file) {
  if (ends_in(file, {".toml"})) return JobFramework::kTorchtitan;
  if (is_yaml(file) || ends_in(file, {".sh", ".bash", ".slurm", ".sbatch", ".args"}))
    return JobFramework::kMegatron;
  if (!is_file(file)) return std::nullopt;  // the reader reports it
  std::error_code none;
  if (std::filesystem::file_size(file, none) > kMaxJobFileBytes || none) return std::nullopt;
  const std::string text = read_file(file, kMaxJobFileBytes);
  const std::string_view start = trim(text);
  if (ends_in(file, {".py"})) {
    refuse_foreign(text, file.string());
    throw InputError(SourcePlace{file.string()}, "a Python file", std::string(kSayIt));
  }
  if (start.starts_with("#!") || start.starts_with("--")) return JobFramework::kMegatron;
  if (start.starts_with('{') && std::ranges::any_of(kDeepSpeedKeys, [&](std::string_view key) {
        return text.find(key) != std::string::npos;
      }))
    return JobFramework::kDeepSpeed;
  return std::nullopt;
}

Job load_job(const std::filesystem::path& file, JobFramework framework,
             const std::vector<std::string>& given) {
  const std::string text = read_file(file, kMaxJobFileBytes);
  const std::string name = file.string();
  std::vector<std::string> with = given;
  const bool by_running = std::erase(with, kByRunning) > 0;
  if (by_running && (framework != JobFramework::kMegatron || is_yaml(file)))
    throw InputError(SourcePlace{name}, "--by-running beside a file that is no script", "a shell script");
  switch (framework) {
    case JobFramework::kTorchtitan:
      return job_of_file(read_toml_job(text, name, with), framework);
    case JobFramework::kDeepSpeed:
      return job_of_file(read_json_job(text, name, with), framework);
    case JobFramework::kNemo:
    case JobFramework::kMegatron:
      break;
  }
  if (by_running) return job_of_file(read_job_by_running(name, with), framework);
  if (!is_yaml(file) && framework == JobFramework::kMegatron) {
    try {
      return job_of_file(read_shell_job(text, name, with), framework);
    } catch (const NoJobCommand&) {
      refuse_foreign(text, name);
      throw;
    }
  }
  refuse_foreign(text, name);
  return job_of_file(read_yaml_job(text, name, with), framework);
}

Job job_of_words(const std::vector<std::string>& words, JobFramework framework,
                 const std::vector<std::string>& with) {
  if (framework != JobFramework::kMegatron)
    throw InputError(fmt::format("{}: found arguments, expected a file: its settings are keys of one",
                                 name_of(framework)));
  if (std::ranges::find(with, kByRunning) != with.end())
    throw InputError("--by-running: found arguments, expected a script");
  return job_of_file(read_command_job(words, with), framework);
}

models::Question question_of(const Job& job) {
  using models::Origin;
  models::Question q;
  models::Scenario& s = q.said;
  s = models::Scenario::parse(JsonNode::from_json(job.scenario, job.file));
  q.file = job.file;
  s.job_framework = job.framework;
  s.give("job.framework");
  if (s.gave("dispatcher") && s.dispatchers.size() == 1) {
    s.job_dispatcher = s.dispatchers.front().text();
    s.give("job.dispatcher");
  }
  q.job = models::JobSource{job.file, job.gpus};
  for (const models::Field& field : models::scenario_fields()) {
    if (!s.gave(field.path)) continue;
    const auto place = job.places.find(field.path);
    s.origins.set(field.path, Origin::file(place == job.places.end() ? job.file : place->second));
  }
  for (models::DispatcherSpec& spec : s.dispatchers) spec.origin = job.file;
  if (job.global_batch > 0) {
    s.batch.sequences = job.global_batch;
    const auto place = job.places.find("parallel.global_batch");
    s.give("parallel.global_batch", Origin::file(place == job.places.end() ? job.file : place->second));
  } else if (!s.batch.given() && !s.gave("parallel.microbatches")) {
    s.give("parallel.microbatches", {Origin::Kind::kRecipe, "one microbatch where no batch is said"});
  }
  for (std::string& remark : job.remarks()) s.model.remarks.push_back(std::move(remark));
  return q;
}

}  // namespace moesim::tools

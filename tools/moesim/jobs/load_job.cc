#include "tools/moesim/jobs/load_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file_io.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/fields.h"

namespace moesim::tools {

namespace {

bool ends_in(const std::filesystem::path& file, std::initializer_list<std::string_view> endings) {
  const std::string extension = file.extension().string();
  return std::ranges::find(endings, extension) != endings.end();
}

bool is_yaml(const std::filesystem::path& file) { return ends_in(file, {".yaml", ".yml"}); }

// Keys that a DeepSpeed configuration has and a scenario has not.
constexpr std::array<std::string_view, 4> kDeepSpeedKeys{
    "\"train_batch_size\"", "\"train_micro_batch_size_per_gpu\"", "\"zero_optimization\"",
    "\"gradient_accumulation_steps\""};

}  // namespace

std::optional<JobFramework> framework_of_file(const std::filesystem::path& file) {
  if (ends_in(file, {".toml"})) return JobFramework::kTorchtitan;
  if (is_yaml(file) || ends_in(file, {".sh", ".bash", ".slurm", ".sbatch", ".args"}))
    return JobFramework::kMegatron;
  if (!is_file(file)) return std::nullopt;  // who reads it says so
  std::error_code none;
  if (std::filesystem::file_size(file, none) > kMaxJobFileBytes || none) return std::nullopt;
  const std::string text = read_file(file, kMaxJobFileBytes);
  const std::string_view start = trim(text);
  if (start.starts_with("#!") || start.starts_with("--")) return JobFramework::kMegatron;
  if (start.starts_with('{') && std::ranges::any_of(kDeepSpeedKeys, [&](std::string_view key) {
        return text.find(key) != std::string::npos;
      }))
    return JobFramework::kDeepSpeed;
  return std::nullopt;
}

Job load_job(const std::filesystem::path& file, JobFramework framework,
             const std::vector<std::string>& with) {
  const std::string text = read_file(file, kMaxJobFileBytes);
  const std::string name = file.string();
  switch (framework) {
    case JobFramework::kTorchtitan:
      return read_job(read_toml_job(text, name, with), framework);
    case JobFramework::kDeepSpeed:
      return read_job(read_json_job(text, name, with), framework);
    case JobFramework::kNemo:
      return read_job(read_yaml_job(text, name, with), framework);
    case JobFramework::kMegatron:
      break;
  }
  return read_job(is_yaml(file) ? read_yaml_job(text, name, with) : read_shell_job(text, name, with),
                  framework);
}

Job job_of_words(const std::vector<std::string>& words, JobFramework framework,
                 const std::vector<std::string>& with) {
  if (framework != JobFramework::kMegatron)
    throw InputError(fmt::format("{}: found arguments, expected a file: its settings are keys of one",
                                 name_of(framework)));
  std::vector<std::string> all = words;
  for (const std::string& text : with)
    for (const std::string_view word : split(text, ' '))
      if (!word.empty()) all.emplace_back(word);
  JobFile file;
  file.file = "arguments";
  for (Setting& s : settings_of_words(all, {"arguments"})) {
    std::erase_if(file.settings, [&](const Setting& other) { return other.name == s.name; });
    file.settings.push_back(std::move(s));
  }
  return read_job(file, framework);
}

models::Question question_of(const Job& job) {
  using models::Origin;
  models::Question q;
  models::Scenario& s = q.said;
  s = models::Scenario::parse(JsonNode::from_json(job.scenario, job.file));
  q.file = job.file;
  q.job = models::JobSource{job.file, job.gpus.value_or(0)};
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

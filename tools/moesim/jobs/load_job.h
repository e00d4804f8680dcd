// A job from a file, whichever framework's it is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/question/question.h"
#include "tools/moesim/jobs/arguments.h"

namespace moesim::tools {

// Returns whose arguments a file holds, by its name and what it says; nullopt: none, so it may be a scenario.
// Throws InputError for Python.
std::optional<JobFramework> framework_of_file(const std::filesystem::path& file);

// Among `with`: the script is run (read_job_by_running()).
inline constexpr const char* kByRunning = "--by-running";

// Reads a file as arguments of a framework. `with`: as read_shell_job() takes it. Throws InputError for files
// that are none, with the place, and for frameworks that are known and not read, with what to say instead.
Job load_job(const std::filesystem::path& file, JobFramework framework, const std::vector<std::string>& with);
// Reads arguments that were typed.
Job job_of_words(const std::vector<std::string>& words, JobFramework framework,
                 const std::vector<std::string>& with);

// The question that a job's arguments ask: settings with the lines they stand at, the launcher's GPUs.
models::Question question_of(const Job& job);

}  // namespace moesim::tools

// Loads a job from a file of any supported framework.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/question/question.h"
#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

// Returns the framework whose arguments a file holds, by name and content; nullopt: none, so it may be a
// scenario. Throws InputError for Python.
std::optional<JobFramework> framework_of_file(const std::filesystem::path& file);

// Element of `with` that runs the script (read_job_by_running()).
inline constexpr const char* kByRunning = "--by-running";

// Reads a file as arguments of a framework. `with`: as for read_shell_job(). Throws InputError with the place
// for invalid files, and for known but unsupported frameworks with an alternative.
Job load_job(const std::filesystem::path& file, JobFramework framework, const std::vector<std::string>& with);
// Reads arguments typed on the command line.
Job job_of_words(const std::vector<std::string>& words, JobFramework framework,
                 const std::vector<std::string>& with);

// Returns the question of a job's arguments: settings with their lines, the launcher's GPUs.
models::Question question_of(const Job& job);

}  // namespace moesim::tools

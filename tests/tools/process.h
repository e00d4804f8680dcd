// Runs the built moesim as a user does, and keeps what it said.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim::tools::testing {

struct Outcome {
  int exit_code = -1;  // 128 + signal where one ended it
  std::string out;
  std::string err;

  std::size_t error_lines() const;
};

// kTerminal: standard output is a terminal of 80 columns.
enum class Output { kCaptured, kClosedPipe, kFullDisk, kTerminal };
inline constexpr int kTerminalColumns = 80;

// Runs `moesim arguments...` in `directory` (empty: here). A run of more than a minute is killed and counts
// as a hang.
Outcome run_moesim(const std::vector<std::string>& arguments, const std::filesystem::path& directory = {},
                   Output output = Output::kCaptured);

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more);

// The JSON result of `moesim words...`, which has to succeed without a warning; discarded where it fails.
nlohmann::json parsed(const std::vector<std::string>& words, const std::filesystem::path& directory = {});

// The synthetic job that ships with the sources: pp2, ep4, dp8, 16 ranks.
std::filesystem::path sample_folder();
inline std::string scaling() { return (sample_folder() / "scaling").string(); }
inline std::string realistic() { return (sample_folder() / "realistic").string(); }

// A folder of its own for one test, removed after it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);

}  // namespace moesim::tools::testing

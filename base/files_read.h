// The files that this process has read, so that a result can name them and no output replaces one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

struct stat;

namespace moesim {

// Records every file that a reader opens while it exists. The reader itself records, so that no caller can
// forget a file. Either one for the process, created by main(), or one per thread, which records the reads of
// that thread; without one nothing is recorded. Thread-safe.
class FilesRead {
 public:
  enum class Contents : std::uint8_t { kUnhashed, kHashed };
  enum class Of : std::uint8_t { kProcess, kThread };
  explicit FilesRead(Contents contents, Of of = Of::kProcess);
  FilesRead(const FilesRead&) = delete;
  FilesRead& operator=(const FilesRead&) = delete;
  ~FilesRead();

  // For readers: `content` is what was read from `path`. Throws InputError where the file was read before
  // with other content, since a result cannot name both.
  static void note(const std::filesystem::path& path, const struct stat& info, std::string_view content);
  // For readers that never hold a whole file.
  static void note_file(const std::filesystem::path& path);

  // Returns SHA-256 by path as opened; empty where contents are not hashed.
  static std::map<std::string, std::string> hashes();
  // Returns whether that file was read, under any name.
  static bool has(const struct stat& info);
};

}  // namespace moesim

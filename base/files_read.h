// Which files the readers of this process have read, so that a result can name them and no output replaces
// one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

struct stat;

namespace moesim {

// While one lives, every file that a reader opens is noted here by the reader itself: a list that each caller
// keeps would lack the file that somebody forgot. One of the process at a time, made by main(), or one of a
// thread, which then notes what that thread reads; without one nothing is noted. Thread-safe.
class FilesRead {
 public:
  enum class Contents : std::uint8_t { kUnhashed, kHashed };
  enum class Of : std::uint8_t { kProcess, kThread };
  explicit FilesRead(Contents contents, Of of = Of::kProcess);
  FilesRead(const FilesRead&) = delete;
  FilesRead& operator=(const FilesRead&) = delete;
  ~FilesRead();

  // For readers: `content` is what was read of `path`. Throws InputError where the file was read before with
  // other content: a result cannot name both.
  static void note(const std::filesystem::path& path, const struct stat& info, std::string_view content);
  // For readers that never hold a whole file.
  static void note_file(const std::filesystem::path& path);

  // SHA-256 by path as it was opened; empty where contents are not hashed.
  static std::map<std::string, std::string> hashes();
  // Whether that file, under any name, was read.
  static bool has(const struct stat& info);
};

}  // namespace moesim

// One input as several files: parts between lines of "=====".
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"

namespace moesim::fuzz {

inline std::vector<std::string_view> parts_of(std::string_view input) {
  constexpr std::string_view kBetween = "\n=====\n";
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = input.find(kBetween, at);
    parts.push_back(input.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) return parts;
    at = end + kBetween.size();
  }
}

// A folder of its own, gone at the end; in memory where the system has a place for that.
class Folder {
 public:
  Folder() {
    namespace fs = std::filesystem;
    std::error_code none;
    const fs::path memory = "/dev/shm";
    std::string name =
        ((fs::is_directory(memory, none) ? memory : fs::temp_directory_path()) / "moesim-fuzz-XXXXXX")
            .string();
    check(::mkdtemp(name.data()) != nullptr, "a folder");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace moesim::fuzz

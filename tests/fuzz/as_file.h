// Any bytes as a file, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/check.h"

namespace moesim::fuzz {

class AsFile {
 public:
  explicit AsFile(std::string_view content) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    check(file_ >= 0, "memory for a file");
    check(::write(file_, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "memory for a file");
  }
  AsFile(const AsFile&) = delete;
  AsFile& operator=(const AsFile&) = delete;
  ~AsFile() { ::close(file_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace moesim::fuzz

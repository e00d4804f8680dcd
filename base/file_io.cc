#include "base/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/input_error.h"

namespace moesim {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  // False when the last buffered bytes could not be written.
  bool reset() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

std::string system_message() { return std::strerror(errno); }

}  // namespace

bool path_exists(const std::filesystem::path& path) noexcept {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

bool is_file(const std::filesystem::path& path) noexcept {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

bool is_folder(const std::filesystem::path& path) noexcept {
  std::error_code none;
  return std::filesystem::is_directory(path, none);
}

std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const SourcePlace place{path.string()};
  // Non-blocking, so that a pipe without a writer is refused below instead of waited for.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw InputError(place, "cannot open: " + system_message());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw InputError(place, "cannot stat: " + system_message());
  if (S_ISDIR(info.st_mode)) throw InputError(place, "a directory", "a file");
  if (!S_ISREG(info.st_mode)) throw InputError(place, "a special file", "a regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > limit_bytes)
    throw InputError(place, fmt::format("{} bytes", size), fmt::format("at most {} bytes", limit_bytes));
  std::string content(size, '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(place, "cannot read: " + system_message());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  return content;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  const SourcePlace place{path.string()};
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  bool named = false;
  const auto fail = [&](const char* what) {
    const std::string why = system_message();
    if (named) ::unlink(temporary.c_str());
    throw InputError(place, fmt::format("cannot {}: {}", what, why));
  };
  // A file without a name leaves nothing behind, however the process ends. Where the file system has none
  // (NFS), a named one does it.
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  Descriptor file(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    named = true;
    file = Descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) throw InputError(place, "cannot create: " + system_message());
  }
  while (!content.empty()) {
    const ssize_t put = ::write(file.get(), content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write");
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  if (named) {
    if (!file.reset()) fail("write");
  } else {
    ::unlink(temporary.c_str());
    const std::string link = fmt::format("/proc/self/fd/{}", file.get());
    if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) fail("create");
    named = true;
    if (!file.reset()) fail("write");
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename");
}

}  // namespace moesim

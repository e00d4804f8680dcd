#include "base/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "base/files_read.h"
#include "base/input_error.h"
#include "base/text.h"

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
  void release() { fd_ = -1; }
  // Returns false when the last buffered bytes could not be written.
  bool reset() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

std::string system_message() { return std::strerror(errno); }

std::atomic<bool> forbidden = false;

// A name with line breaks would forge lines where it is printed.
void check_one_line(const std::filesystem::path& path) {
  if (path.native().find('\n') != std::string::npos)
    throw InputError(SourcePlace{path.string()}, "a name of several lines", "one line");
}

void check_may_read(const std::filesystem::path& path) {
  check_one_line(path);
  if (forbidden)
    throw InputError(SourcePlace{path.string()}, "a file", "names and values: files are not read here");
}

}  // namespace

void forbid_reading() noexcept { forbidden = true; }

bool path_exists(const std::filesystem::path& path) noexcept {
  std::error_code none;
  return !forbidden && std::filesystem::exists(path, none);
}

bool is_file(const std::filesystem::path& path) noexcept {
  std::error_code none;
  return !forbidden && std::filesystem::is_regular_file(path, none);
}

bool is_folder(const std::filesystem::path& path) noexcept {
  std::error_code none;
  return !forbidden && std::filesystem::is_directory(path, none);
}

RegularFile::RegularFile(const std::filesystem::path& path) : name_(path.string()) {
  check_may_read(path);
  const SourcePlace place{name_};
  // Non-blocking, so that a pipe without a writer is refused below instead of waited for.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw InputError(place, "cannot open: " + system_message());
  Descriptor until_checked(file_);
  struct stat info {};
  if (::fstat(file_, &info) != 0) throw InputError(place, "cannot stat: " + system_message());
  if (S_ISDIR(info.st_mode)) throw InputError(place, "a directory", "a file");
  if (!S_ISREG(info.st_mode)) throw InputError(place, "a special file", "a regular file");
  size_ = static_cast<std::uint64_t>(info.st_size);
  until_checked.release();
}

RegularFile::~RegularFile() { ::close(file_); }

std::size_t RegularFile::read(char* to, std::size_t bytes) const {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(file_, to + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(SourcePlace{name_}, "cannot read: " + system_message());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

namespace {

std::string read_noted(const std::filesystem::path& path, std::uint64_t limit_bytes, bool input) {
  const RegularFile file(path);
  if (file.size() > limit_bytes)
    throw InputError(SourcePlace{path.string()}, fmt::format("{} bytes", file.size()),
                     fmt::format("at most {} bytes", limit_bytes));
  std::string content(file.size(), '\0');
  content.resize(file.read(content.data(), content.size()));
  struct stat info {};
  if (input && ::fstat(file.descriptor(), &info) == 0) FilesRead::note(path, info, content);
  return content;
}

// The target of a write to `path`: through links, to an existing file or to a name in its folder.
struct Target {
  std::filesystem::path path;
  mode_t mode = 0644;
  bool device = false, replaces = false;
  int descriptor = -1;  // inherited by the process
};

// Returns the descriptor named by "/dev/fd/3" and similar, or standard output or error where `path` leads to
// its file, which is then written to instead of replaced. -1: another file.
int descriptor_of(const std::filesystem::path& path) {
  const std::string name = path.string();
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"})
    if (name.starts_with(folder))
      if (const auto number = parse_int(name.substr(folder.size())); number && *number >= 0)
        return static_cast<int>(std::min<long long>(*number, std::numeric_limits<int>::max()));
  if (name == "/dev/stdout") return STDOUT_FILENO;  // also where it is closed
  if (name == "/dev/stderr") return STDERR_FILENO;
  struct stat named {
  }, own{};
  if (::stat(name.c_str(), &named) != 0 || S_ISCHR(named.st_mode)) return -1;
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(standard, &own) == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino)
      return standard;
  return -1;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// Leaves a missing folder to its creators.
void check_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = folder_of(path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0 && errno != ENOENT)
    throw InputError(SourcePlace{path.string()}, "cannot create: " + system_message());
}

// Returns whether kWriteOnlyIn allows a file there.
bool may_write(const std::filesystem::path& path) {
  const char* const only = std::getenv(kWriteOnlyIn);
  if (only == nullptr) return true;
  std::error_code error;
  const auto folder = std::filesystem::canonical(only, error);
  if (error) return false;
  const auto real = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  return !error &&
         std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first == folder.end();
}

Target target_of(const std::filesystem::path& path) {
  check_one_line(path);
  const SourcePlace place{path.string()};
  if (!may_write(path))
    throw InputError(place, "a file outside of the folder that this command may write in");
  Target target{path};
  struct stat info {};
  if (const int descriptor = descriptor_of(path); descriptor >= 0) {
    if (::fstat(descriptor, &info) != 0) throw InputError(place, "cannot write: " + system_message());
    if (FilesRead::has(info)) throw InputError(place, "an input of this command", "another file to write");
    target.device = true;
    target.descriptor = descriptor;
    return target;
  }
  if (::stat(path.c_str(), &info) != 0) {
    // A dangling link would be replaced by a file.
    if (::lstat(path.c_str(), &info) == 0) throw InputError(place, "a link to a file that is not there");
    check_folder_of(path);
    return target;
  }
  if (S_ISCHR(info.st_mode)) {
    target.device = true;
    return target;
  }
  if (S_ISDIR(info.st_mode)) throw InputError(place, "a directory", "a file to write");
  if (!S_ISREG(info.st_mode)) throw InputError(place, "a special file", "a regular file to write");
  if (FilesRead::has(info)) throw InputError(place, "an input of this command", "another file to write");
  std::error_code none;
  if (std::filesystem::is_symlink(path, none)) target.path = std::filesystem::canonical(path, none);
  if (none) throw InputError(place, "cannot follow: " + none.message());
  check_folder_of(target.path);
  target.mode = info.st_mode & 07777;
  target.replaces = true;
  return target;
}

// Writes everything; returns false where the system refuses.
bool put_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(file, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

// Suffix of a file while it is written, "NAME.PID.moesim-tmp", which is unlikely elsewhere.
constexpr std::string_view kUnfinished = ".moesim-tmp";

// Removes temporary files of killed writers of `target` (SIGKILL, lost machine): no write takes that long.
void remove_leftovers(const std::filesystem::path& target) {
  constexpr std::chrono::minutes kLongest{10};
  const std::string name = target.filename().string() + ".";
  std::error_code none;
  for (std::filesystem::directory_iterator at(folder_of(target), none), end; !none && at != end;
       at.increment(none)) {
    const std::string one = at->path().filename().string();
    if (one.size() <= name.size() + kUnfinished.size() || !one.starts_with(name) ||
        !one.ends_with(kUnfinished))
      continue;
    const auto pid = one.substr(name.size(), one.size() - name.size() - kUnfinished.size());
    struct stat info {};
    if (pid.find_first_not_of("0123456789") != std::string::npos ||
        (::stat(at->path().c_str(), &info) == 0 && FilesRead::has(info)))
      continue;
    std::error_code gone;
    const auto written = std::filesystem::last_write_time(at->path(), gone);
    if (!gone && std::filesystem::file_time_type::clock::now() - written > kLongest)
      std::filesystem::remove(at->path(), gone);
  }
}

// Some file systems cannot sync, which is not a failed write.
bool synced(int file) { return ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP; }

}  // namespace

void check_utf8(std::string_view text, const std::string& file) {
  // A zero is also refused: readers of text end at it, and a lost machine leaves files that end in zeros.
  const std::size_t at = std::min(first_not_utf8(text), text.find('\0'));
  if (at == std::string_view::npos) return;
  const std::string_view before = text.substr(0, at);
  const std::size_t line = before.rfind('\n') + 1;  // 0 in the first line
  throw InputError(
      SourcePlace{file, 1 + std::count(before.begin(), before.end(), '\n'), static_cast<long>(at - line) + 1},
      fmt::format("the byte 0x{:02x}", static_cast<unsigned char>(text[at])), "text in UTF-8");
}

std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  std::string text = read_noted(path, limit_bytes, true);
  check_utf8(text, path.string());
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // that editors on Windows write
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::string read_own_file(const std::filesystem::path& path) {
  return read_noted(path, std::uint64_t{8} << 30, false);
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  check_may_read(folder);
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    found.push_back(at->path());
  if (error) throw InputError(SourcePlace{folder.string()}, "cannot list the folder: " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

void check_writable(const std::filesystem::path& path) { target_of(path); }

std::filesystem::path regular_file_to_write(const std::filesystem::path& path) {
  const Target target = target_of(path);
  if (target.device) throw InputError(SourcePlace{path.string()}, "a device", "a regular file to write");
  return target.path;
}

SignalsHeld::SignalsHeld() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);
}

SignalsHeld::~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool SignalsHeld::one_ends() {
  sigset_t pending;
  if (::sigpending(&pending) != 0) return false;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction does {};
    if (::sigismember(&pending, number) == 1 && ::sigaction(number, nullptr, &does) == 0 &&
        does.sa_handler == SIG_DFL)
      return true;
  }
  return false;
}

void sync_folder_of(const std::filesystem::path& path) {
  const Descriptor opened(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() >= 0) ::fsync(opened.get());
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  const SourcePlace place{path.string()};
  const Target target = target_of(path);
  const std::string temporary = fmt::format("{}.{}{}", target.path.string(), ::getpid(), kUnfinished);
  bool named = false;
  const auto fail = [&](const char* what) {
    const std::string why = system_message();
    if (named) ::unlink(temporary.c_str());
    throw InputError(place, fmt::format("cannot {}: {}", what, why));
  };
  if (target.descriptor >= 0) {
    if (std::fflush(stdout) != 0 || !put_all(target.descriptor, content)) fail("write");
    return;
  }
  if (target.device) {
    const Descriptor device(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (device.get() < 0 || !put_all(device.get(), content)) fail("write");
    return;
  }
  // An unnamed file leaves nothing behind, however the process ends. Where the file system lacks them (NFS),
  // or without /proc to link it, a named file is used.
  const std::filesystem::path folder = folder_of(target.path);
  const bool proc = ::access("/proc/self/fd", X_OK) == 0;
  Descriptor file(proc ? ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644) : -1);
  if (file.get() < 0) {
    named = true;
    file = Descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) throw InputError(place, "cannot create: " + system_message());
  }
  if (!put_all(file.get(), content)) fail("write");
  if (target.replaces && ::fchmod(file.get(), target.mode) != 0) fail("keep the mode");
  if (!synced(file.get())) fail("write");
  if (named) {
    if (!file.reset()) fail("write");
  } else {
    const std::string link = fmt::format("/proc/self/fd/{}", file.get());
    const auto link_as = [&](const std::filesystem::path& name) {
      return ::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    // A new file gets its name at once; a replacement, by rename.
    if (!target.replaces && link_as(target.path)) {
      if (!file.reset()) fail("write");
      sync_folder_of(target.path);
      return;
    }
    const SignalsHeld held;
    ::unlink(temporary.c_str());
    if (!link_as(temporary)) fail("create");
    named = true;
    if (!file.reset()) fail("write");
    if (::rename(temporary.c_str(), target.path.c_str()) != 0) fail("rename");
    named = false;
  }
  if (named && ::rename(temporary.c_str(), target.path.c_str()) != 0) fail("rename");
  if (target.replaces) remove_leftovers(target.path);
  sync_folder_of(target.path);
}

std::filesystem::path own_program() {
  std::error_code none;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (!none) return program;
  // Without /proc: the name of its start.
  const auto* name = std::bit_cast<const char*>(::getauxval(AT_EXECFN));
  return std::filesystem::weakly_canonical(name != nullptr ? name : "moesim", none);
}

}  // namespace moesim

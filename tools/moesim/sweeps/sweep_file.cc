#include "tools/moesim/sweeps/sweep_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/sweeps/sweep_rows.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTail = std::uint64_t{16} << 20;  // more than the rows of any scenario

fs::path definition_of(const fs::path& path) { return SweepFile::partial_of(path).string() + ".json"; }

// Whether a record (moesim.sweep/1) is of this sweep.
bool finished_before(const fs::path& record, const std::string& definition) {
  if (!is_file(record)) return false;
  const auto made = nlohmann::ordered_json::parse(read_own_file(record), nullptr, false);
  return made.is_object() && made.contains("definition") && made["definition"].dump(2) + "\n" == definition;
}

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw InputError(SourcePlace{path.string()}, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

}  // namespace

fs::path SweepFile::partial_of(const fs::path& path) { return path.string() + ".partial"; }

fs::path SweepFile::record_of(const fs::path& path) { return path.string() + ".json"; }

SweepFile::SweepFile(fs::path path, const std::string& definition, const std::string& header,
                     SweepStart start)
    : path_(std::move(path)) {
  if (path_.empty()) {
    print(header);
    return;
  }
  const fs::path partial = partial_of(path_);
  check_writable(path_);
  if (path_exists(path_) && !is_file(path_))
    throw InputError(SourcePlace{path_.string()}, "a special file", "a regular file to write");
  if (start == SweepStart::kFresh && path_exists(partial))
    throw InputError(SourcePlace{partial.string()}, "rows of an interrupted sweep",
                     "--resume to go on, or --overwrite to start again");
  if (start == SweepStart::kResume && !path_exists(partial) && is_file(path_) &&
      finished_before(record_of(path_), definition)) {
    complete_ = true;
    return;
  }
  file_ = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail(partial, "create");
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(std::exchange(file_, -1));
    throw InputError(SourcePlace{partial.string()}, "another sweep is writing it");
  }
  try {
    if (start == SweepStart::kResume) go_on(definition);
    if (first_ > 0) return;
    write_file(definition_of(path_), definition);
    if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) fail(partial, "write");
    append(header);
  } catch (...) {
    ::close(std::exchange(file_, -1));
    throw;
  }
}

SweepFile::~SweepFile() {
  if (file_ >= 0) ::close(file_);
}

void SweepFile::go_on(const std::string& definition) {
  const fs::path partial = partial_of(path_);
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail(partial, "stat");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == 0) return;
  if (!path_exists(definition_of(path_)) || read_own_file(definition_of(path_)) != definition)
    throw InputError(SourcePlace{partial.string()},
                     "rows of another sweep (its options, files or version differ)",
                     "the same command, or --overwrite to start again");
  const std::uint64_t from = size - std::min(size, kTail);
  std::string tail(size - from, '\0');
  std::size_t got = 0;
  while (got < tail.size()) {
    const ssize_t n = ::pread(file_, tail.data() + got, tail.size() - got, static_cast<off_t>(from + got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(partial, "read");
    got += static_cast<std::size_t>(n);
  }
  // The last scenario may lack rows: it is made again. What is behind the last line end was cut.
  std::size_t end = tail.rfind('\n');
  std::optional<std::uint64_t> last;
  std::size_t keep = 0;
  while (end != std::string::npos) {
    const std::size_t before = end == 0 ? std::string::npos : tail.rfind('\n', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    if (before == std::string::npos && from > 0) break;  // no whole line
    const auto index = SweepRows::index_of(std::string_view(tail).substr(begin, end - begin));
    if (!index || (last && *index != *last)) break;
    last = index;
    keep = begin;
    end = before;
  }
  if (!last || *last == 0) return;
  first_ = *last;
  const auto length = static_cast<off_t>(from + keep);
  if (::ftruncate(file_, length) != 0 || ::lseek(file_, length, SEEK_SET) != length) fail(partial, "write");
}

void SweepFile::append(std::string_view rows) {
  if (file_ < 0) {
    print(rows);
    return;
  }
  while (!rows.empty()) {
    const ssize_t put = ::write(file_, rows.data(), rows.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(partial_of(path_), "write");
    rows.remove_prefix(static_cast<std::size_t>(put));
  }
}

void SweepFile::finish() {
  if (file_ < 0) return;
  const fs::path partial = partial_of(path_);
  if (::fsync(file_) != 0 && errno != EINVAL) fail(partial, "write");
  if (::rename(partial.c_str(), path_.c_str()) != 0) fail(path_, "rename");
  sync_folder_of(path_);
  ::close(std::exchange(file_, -1));
  ::unlink(definition_of(path_).c_str());
}

}  // namespace moesim::tools

#include "tools/moesim/sweeps/sweep_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;

fs::path definition_of(const fs::path& path) { return SweepFile::partial_of(path).string() + ".json"; }
fs::path sums_of(const fs::path& path) { return SweepFile::partial_of(path).string() + ".sums"; }

// Whether a record (moesim.sweep/1) is of this sweep. Throws InputError where it is, but not of the table.
bool finished_before(const fs::path& path, const std::string& definition) {
  const fs::path record = SweepFile::record_of(path);
  if (!is_file(record)) return false;
  const auto made = parse_ordered(read_own_file(record), record.string());
  if (!made.is_object() || !made.contains("definition") || json_text(made["definition"]) != definition)
    return false;
  const auto rows = made.find("rows");
  const std::string is = sha256_hex_of_file(path);
  if (rows == made.end() || !rows->is_object() || rows->value("sha256", "") != is)
    throw InputError(SourcePlace{path.string()},
                     "a table that is not the one of its record (SHA-256 " + is + ")",
                     "the table as the sweep wrote it, or --overwrite to make it again");
  return true;
}

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw InputError(SourcePlace{path.string()}, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

void put_all(int file, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(path, "write");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

// The next link of a chain of checksums.
std::string linked(const std::string& link, std::string_view rows) {
  Sha256 sum;
  sum.add(link);
  sum.add(rows);
  return sum.hex();
}

// A line of the chain: after the rows of so many scenarios there were so many bytes.
struct Link {
  std::uint64_t scenarios = 0, bytes = 0;
  std::string sum;
};

std::optional<Link> link_of(std::string_view line) {
  const std::vector<std::string_view> parts = split(line, ' ');
  if (parts.size() != 3 || parts[2].size() != 64) return std::nullopt;
  const auto scenarios = parse_int(parts[0]), bytes = parse_int(parts[1]);
  if (!scenarios || !bytes || *scenarios < 0 || *bytes < 0) return std::nullopt;
  return Link{static_cast<std::uint64_t>(*scenarios), static_cast<std::uint64_t>(*bytes),
              std::string(parts[2])};
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
      finished_before(path_, definition)) {
    complete_ = true;
    return;
  }
  while (!lock()) {
  }
  try {
    sums_ = ::open(sums_of(path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (sums_ < 0) fail(sums_of(path_), "create");
    if (start != SweepStart::kResume || !go_on(definition)) start_anew(definition, header);
  } catch (...) {
    if (sums_ >= 0) ::close(std::exchange(sums_, -1));
    ::close(std::exchange(file_, -1));
    throw;
  }
}

SweepFile::~SweepFile() {
  if (sums_ >= 0) ::close(sums_);
  if (file_ >= 0) ::close(file_);
}

// Opens and locks the partial file. False where another sweep finished meanwhile: what was opened has become
// its table.
bool SweepFile::lock() {
  const fs::path partial = partial_of(path_);
  file_ = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail(partial, "create");
  const bool locked = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  const int why = errno;
  struct stat opened {
  }, named{};
  const bool same = locked && ::fstat(file_, &opened) == 0 && ::stat(partial.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (same) return true;
  ::close(std::exchange(file_, -1));
  if (!locked && why != EWOULDBLOCK)
    throw InputError(SourcePlace{partial.string()},
                     fmt::format("a file system that cannot lock files ({})", std::strerror(why)),
                     "one with locks, such as a local disk, so that no second sweep writes the same table");
  if (!locked) throw InputError(SourcePlace{partial.string()}, "another sweep is writing it");
  return false;
}

void SweepFile::start_anew(const std::string& definition, const std::string& header) {
  write_file(definition_of(path_), definition);
  if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) fail(partial_of(path_), "write");
  if (::ftruncate(sums_, 0) != 0 || ::lseek(sums_, 0, SEEK_SET) != 0) fail(sums_of(path_), "write");
  append(header, 0);
}

// Goes on behind the last rows that the chain vouches for; what is behind them was cut off from its checksum
// when the sweep ended, and is made again. False: there is nothing to go on with.
bool SweepFile::go_on(const std::string& definition) {
  const fs::path partial = partial_of(path_);
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail(partial, "stat");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == 0) return false;
  if (!path_exists(definition_of(path_)) || read_own_file(definition_of(path_)) != definition)
    throw InputError(SourcePlace{partial.string()},
                     "rows of another sweep (its options, files or version differ)",
                     "the same command, or --overwrite to start again");
  const auto damaged = [&](const fs::path& file, const char* what, long line) {
    throw InputError(SourcePlace{file.string(), line}, what,
                     "what the sweep wrote, or --overwrite to start again");
  };
  const std::string sums = read_own_file(sums_of(path_));
  std::size_t kept = 0;  // of the chain
  std::string rows;
  long line = 0;
  for (std::size_t at = 0, end = 0; (end = sums.find('\n', at)) != std::string::npos; at = end + 1) {
    ++line;
    const auto link = link_of(std::string_view(sums).substr(at, end - at));
    if (!link || link->bytes < bytes_ || link->scenarios < first_)
      damaged(sums_of(path_), "a line that is no checksum", line);
    if (link->bytes > size) break;  // a lost machine may lose rows that had their checksum
    rows.resize(link->bytes - bytes_);
    std::size_t got = 0;
    while (got < rows.size()) {
      const ssize_t n =
          ::pread(file_, rows.data() + got, rows.size() - got, static_cast<off_t>(bytes_ + got));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(partial, "read");
      got += static_cast<std::size_t>(n);
    }
    link_ = linked(link_, rows);
    if (link_ != link->sum) damaged(partial, "rows that are not those of their checksum", 0);
    sum_.add(rows);
    bytes_ = link->bytes;
    first_ = link->scenarios;
    kept = end + 1;
  }
  if (kept == 0) return false;
  const auto length = static_cast<off_t>(bytes_), chain = static_cast<off_t>(kept);
  if (::ftruncate(file_, length) != 0 || ::lseek(file_, length, SEEK_SET) != length) fail(partial, "write");
  if (::ftruncate(sums_, chain) != 0 || ::lseek(sums_, chain, SEEK_SET) != chain)
    fail(sums_of(path_), "write");
  return true;
}

void SweepFile::append(std::string_view rows, std::optional<std::uint64_t> next) {
  if (file_ < 0) {
    print(rows);
    return;
  }
  put_all(file_, partial_of(path_), rows);
  if (!next) return;
  sum_.add(rows);
  bytes_ += rows.size();
  link_ = linked(link_, rows);
  put_all(sums_, sums_of(path_), fmt::format("{} {} {}\n", *next, bytes_, link_));
}

void SweepFile::finish() {
  if (file_ < 0) return;
  const fs::path partial = partial_of(path_);
  if (::fsync(file_) != 0 && errno != EINVAL) fail(partial, "write");
  if (::rename(partial.c_str(), path_.c_str()) != 0) fail(path_, "rename");
  sync_folder_of(path_);
  // While the lock is held: they are nobody else's.
  ::unlink(definition_of(path_).c_str());
  ::unlink(sums_of(path_).c_str());
  ::close(std::exchange(sums_, -1));
  ::close(std::exchange(file_, -1));
}

}  // namespace moesim::tools

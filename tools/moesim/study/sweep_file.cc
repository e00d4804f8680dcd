#include "tools/moesim/study/sweep_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/text.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;

fs::path definition_of(const fs::path& path) { return SweepFile::partial_of(path).string() + ".json"; }
fs::path sums_of(const fs::path& path) { return SweepFile::partial_of(path).string() + ".sums"; }

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw InputError(SourcePlace{path.string()}, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

// A line of the chain of checksums.
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

// Returns whether a sweep may have written that file beside its table.
bool of_a_sweep(const fs::path& path, const fs::path& file) {
  const std::string text = read_own_file(file);
  if (file == sums_of(path))
    return text.empty() || link_of(std::string_view(text).substr(0, text.find('\n')));
  const auto made = parse_ordered(text, file.string());
  if (!made.is_object()) return false;
  if (file == definition_of(path)) return made.contains("scenarios") && made.contains("files");
  const auto schema = made.find("schema");
  return schema != made.end() && *schema == "moesim.sweep/1";
}

// Checks the files beside the table, whose names the user did not give: they replace no input, no link and no
// foreign file.
void check_companions(const fs::path& path, SweepStart start) {
  for (const fs::path& file : SweepFile::beside(path)) {
    const auto refuse = [&](const char* found, const char* expected) {
      throw InputError(SourcePlace{file.string()}, found, expected);
    };
    std::error_code none;
    if (fs::is_symlink(file, none)) refuse("a link", "nothing, or what a sweep left");
    regular_file_to_write(file);
    if (!is_file(file)) continue;
    if (fs::hard_link_count(file, none) > 1)
      refuse("a file of several names", "nothing, or what a sweep left");
    if (start != SweepStart::kOverwrite && file != SweepFile::partial_of(path) && !of_a_sweep(path, file))
      refuse("a file that no sweep wrote",
             "another --out, or --overwrite to replace what has the names of the table's own files");
  }
}

// Opens a file of the sweep itself, without following links.
int open_own(const fs::path& file) {
  return ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
}

// Returns the SHA-256 of the rows in the record beside a table; nullopt: no record, or another sweep's.
std::optional<std::string> recorded_rows(const fs::path& path, const std::string& definition) {
  const fs::path record = SweepFile::record_of(path);
  if (!is_file(record)) return std::nullopt;
  const auto made = parse_ordered(read_own_file(record), record.string());
  if (!made.is_object() || !made.contains("definition") || json_text(made["definition"]) != definition)
    return std::nullopt;
  const auto rows = made.find("rows");
  return rows != made.end() && rows->is_object() ? rows->value("sha256", "") : "";
}

// Returns whether the same sweep was finished before. Throws InputError where it was, and its table has
// changed.
bool finished_before(const fs::path& path, const std::string& definition) {
  const auto rows = recorded_rows(path, definition);
  if (!rows) return false;
  const std::string is = sha256_hex_of_file(path);
  if (*rows != is)
    throw InputError(SourcePlace{path.string()},
                     "a table that is not the one of its record (SHA-256 " + is + ")",
                     "the table as the sweep wrote it, or --overwrite to make it again");
  return true;
}

void put_all(int file, const fs::path& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(path, "write");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace

std::string sweep_link(const std::string& behind, std::uint64_t scenarios, std::uint64_t bytes,
                       std::string_view rows) {
  Sha256 all;
  all.add(fmt::format("{} {} {}\n", behind, scenarios, bytes));
  all.add(rows);
  return all.hex();
}

fs::path SweepFile::partial_of(const fs::path& path) { return path.string() + ".partial"; }

fs::path SweepFile::record_of(const fs::path& path) { return path.string() + ".json"; }

std::array<fs::path, 4> SweepFile::beside(const fs::path& path) {
  return {partial_of(path), definition_of(path), sums_of(path), record_of(path)};
}

SweepFile::SweepFile(const fs::path& path, const std::string& definition, const std::string& header,
                     SweepStart start)
    : path_(path.empty() ? path : regular_file_to_write(path)) {
  if (path_.empty()) {
    print(header);
    return;
  }
  const fs::path partial = partial_of(path_);
  if (path_exists(path_) && !is_file(path_))
    throw InputError(SourcePlace{path_.string()}, "a special file", "a regular file to write");
  check_companions(path_, start);
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
  link_ = sha256_hex(definition);
  try {
    set_mode(S_IRUSR | S_IWUSR);
    sums_ = open_own(sums_of(path_));
    if (sums_ < 0) fail(sums_of(path_), "create");
    if (start != SweepStart::kResume || !go_on(definition)) {
      if (complete_) return;
      start_anew(definition, header);
    }
  } catch (...) {
    leave();
    throw;
  }
}

SweepFile::~SweepFile() { leave(); }

// Closes, and removes an empty partial file with its chain.
void SweepFile::leave() {
  struct stat info {};
  if (file_ >= 0 && ::fstat(file_, &info) == 0 && info.st_size == 0 && !named_) {
    ::unlink(definition_of(path_).c_str());
    ::unlink(sums_of(path_).c_str());
    ::unlink(partial_of(path_).c_str());
  }
  if (sums_ >= 0) ::close(std::exchange(sums_, -1));
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

// Opens and locks the partial file. Returns false where another sweep finished meanwhile and renamed it.
bool SweepFile::lock() {
  const fs::path partial = partial_of(path_);
  file_ = open_own(partial);
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

// Sets the mode of the replaced table, and `more` while writing: an unfinished table is not readable by more
// users.
void SweepFile::set_mode(mode_t more) const {
  struct stat table {
  }, partial{};
  if (::stat(path_.c_str(), &table) != 0 || ::fstat(file_, &partial) != 0) return;
  const mode_t wanted = (table.st_mode | more) & 07777;
  if ((partial.st_mode & 07777) != wanted && ::fchmod(file_, wanted) != 0) fail(path_, "keep the mode");
}

void SweepFile::start_anew(const std::string& definition, const std::string& header) {
  // Rows of another sweep never accompany this definition.
  if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) fail(partial_of(path_), "write");
  if (::ftruncate(sums_, 0) != 0 || ::lseek(sums_, 0, SEEK_SET) != 0) fail(sums_of(path_), "write");
  write_file(definition_of(path_), definition);
  append(header, 0);
}

// Continues after the last rows confirmed by the chain; later rows, whose checksum was lost when the sweep
// ended, are computed again. Returns false where there is nothing to continue.
bool SweepFile::go_on(const std::string& definition) {
  const fs::path partial = partial_of(path_);
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail(partial, "stat");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size == 0) return false;
  if (!path_exists(definition_of(path_)) && recorded_rows(path_, definition) == sha256_hex_of_file(partial)) {
    // It was killed before the table got its name.
    complete_ = true;
    give_name();
    return false;
  }
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
    if (link->bytes > size) break;  // a lost machine may lose rows whose checksum was written
    rows.resize(link->bytes - bytes_);
    std::size_t got = 0;
    while (got < rows.size()) {
      const ssize_t n =
          ::pread(file_, rows.data() + got, rows.size() - got, static_cast<off_t>(bytes_ + got));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(partial, "read");
      got += static_cast<std::size_t>(n);
    }
    link_ = sweep_link(link_, link->scenarios, link->bytes, rows);
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
  link_ = sweep_link(link_, *next, bytes_, rows);
  put_all(sums_, sums_of(path_), fmt::format("{} {} {}\n", *next, bytes_, link_));
}

void SweepFile::finish(const std::string& record) {
  if (file_ < 0) return;
  const fs::path partial = partial_of(path_);
  if (::fsync(file_) != 0 && errno != EINVAL) fail(partial, "write");
  // Files read since the start must not be replaced either.
  regular_file_to_write(path_);
  const SignalsHeld held;
  write_file(record_of(path_), record);
  give_name();
  leave();
}

void SweepFile::give_name() {
  set_mode(0);
  // While the lock is held: after the rename these files may belong to another sweep.
  ::unlink(definition_of(path_).c_str());
  ::unlink(sums_of(path_).c_str());
  if (::rename(partial_of(path_).c_str(), path_.c_str()) != 0) fail(path_, "rename");
  named_ = true;
  sync_folder_of(path_);
}

}  // namespace moesim::tools

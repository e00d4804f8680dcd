// Reads and writes whole files: reads are bounded, writes appear by rename or not at all.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace moesim {

// Test a path; false for any path that the file system rejects (too long, no permission, a loop).
bool path_exists(const std::filesystem::path& path) noexcept;
bool is_file(const std::filesystem::path& path) noexcept;
bool is_folder(const std::filesystem::path& path) noexcept;

// Irrevocably prevents this process from finding and reading files, before it works for an untrusted caller.
void forbid_reading() noexcept;

// A regular file open for reading. Throws InputError for a missing or unreadable file and for other kinds;
// never blocks on a pipe.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path);
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();
  std::uint64_t size() const { return size_; }  // when it was opened
  int descriptor() const { return file_; }
  // Reads the next bytes; fewer than `bytes` at the end.
  std::size_t read(char* to, std::size_t bytes) const;

 private:
  std::string name_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

// Returns the text of a regular file and records it as an input in FilesRead. Throws InputError if it is
// missing, unreadable, not a regular file, larger than `limit_bytes`, or not UTF-8.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes = std::uint64_t{8} << 30);
// Throws InputError at the line and column of the first byte that is not UTF-8.
void check_utf8(std::string_view text, const std::string& file);
// Returns the bytes of a file that this program wrote for itself, which is not an input.
std::string read_own_file(const std::filesystem::path& path);

// Returns the entries of a folder, sorted by name. Throws InputError for a folder that cannot be listed.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

// Environment variable with the only folder in which this process may write files; set for commands from an
// untrusted file.
inline constexpr const char* kWriteOnlyIn = "MOESIM_WRITE_ONLY_IN";

// Writes beside `path` and renames, so that readers never see a partial file, and after a crash of the
// machine either the old or the new file exists. Follows links, keeps the mode of a replaced file, and writes
// directly to a character device (/dev/null) or an open descriptor (/dev/stdout, /dev/fd/3). Throws
// InputError naming `path` when the disk is full or the folder cannot be written (leaving nothing behind),
// for other special files, for a file that this command has read, and outside of the folder in kWriteOnlyIn.
void write_file(const std::filesystem::path& path, std::string_view content);
// Syncs a folder; only then a name created or changed in it survives a crash of the machine.
void sync_folder_of(const std::filesystem::path& path);
// Throws InputError where write_file() would refuse `path` whatever its content, so that this is known before
// the work.
void check_writable(const std::filesystem::path& path);
// Likewise for a file that is written piece by piece, which a device cannot be. Returns `path`, or the target
// of a link.
std::filesystem::path regular_file_to_write(const std::filesystem::path& path);

// Delays terminating signals while it exists, between a file's temporary and final name.
class SignalsHeld {
 public:
  SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld();
  // Returns whether a terminating signal is pending: long work then stops and leaves nothing behind.
  static bool one_ends();

 private:
  sigset_t before_{};
};

// Returns the file of the running program, also without /proc.
std::filesystem::path own_program();

}  // namespace moesim

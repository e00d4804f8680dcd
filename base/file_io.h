// Whole files in and out: reads are bounded, writes appear by rename or not at all.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace moesim {

// What a path names; false for any that the file system will not look up (too long, no permission, a loop).
bool path_exists(const std::filesystem::path& path) noexcept;
bool is_file(const std::filesystem::path& path) noexcept;
bool is_folder(const std::filesystem::path& path) noexcept;

// From now on this process finds no file and reads none: for work that somebody else asks for. Not to be
// taken back.
void forbid_reading() noexcept;

// A regular file that is open for reading. Throws InputError for what is missing, unreadable or of another
// kind; never waits for a pipe.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path);
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();
  std::uint64_t size() const { return size_; }  // when it was opened
  int descriptor() const { return file_; }
  // Reads on; fewer than `bytes` at the end.
  std::size_t read(char* to, std::size_t bytes) const;

 private:
  std::string name_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

// The text of a regular file. Throws InputError if it is missing, unreadable, not a regular file, larger than
// `limit_bytes`, or not UTF-8. An input of the command: it is noted in FilesRead.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes = std::uint64_t{8} << 30);
// Throws InputError at the line and column of the first byte that is not UTF-8.
void check_utf8(std::string_view text, const std::string& file);
// The bytes of a file that this program wrote for itself: no input.
std::string read_own_file(const std::filesystem::path& path);

// What stands in a folder, in the order of the names. Throws InputError for a folder that cannot be listed.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

// An environment variable that names the only folder that this process may write files in: set for a command
// that somebody else's file asks for.
inline constexpr const char* kWriteOnlyIn = "MOESIM_WRITE_ONLY_IN";

// Writes beside `path` and renames, so that no reader ever sees half a file, and after a crash of the machine
// the old file or the new one is there. A link is followed, the mode of a file that is replaced is kept, a
// character device (/dev/null) and an open descriptor (/dev/stdout, /dev/fd/3) are written to. Throws
// InputError naming `path` when the disk is full or the folder cannot be written (nothing is left behind
// then), for other special files, for a file that this command has read, and outside of the folder that
// kWriteOnlyIn names.
void write_file(const std::filesystem::path& path, std::string_view content);
// A name that was made or changed in a folder outlives a crash of the machine only when the folder is synced.
void sync_folder_of(const std::filesystem::path& path);
// Throws InputError where write_file() would refuse `path` whatever its content is: to ask before the work.
void check_writable(const std::filesystem::path& path);
// The same for a file that is written bit by bit, which a device cannot be: `path`, or where a link leads.
std::filesystem::path regular_file_to_write(const std::filesystem::path& path);

// No signal ends the process while one lives: between a file's temporary name and its own.
class SignalsHeld {
 public:
  SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld();
  // Whether a signal came that ends the process afterwards: long work stops, and leaves nothing behind.
  static bool one_ends();

 private:
  sigset_t before_{};
};

// The file of the program that runs, also where there is no /proc.
std::filesystem::path own_program();

}  // namespace moesim

// The table that a sweep writes, row after row: under another name until it is whole, so that an interrupted
// sweep goes on where it stopped and nobody takes half a table for a whole one.
//
// results.csv.partial       the rows so far, in the final order; its last line may be cut
// results.csv.partial.sums  a chain of checksums of these rows, a line for every piece that was appended; it
//                           begins with that of results.csv.partial.json
// results.csv.partial.json  what the sweep is made of: another sweep must not go on with these rows
// results.csv               appears by rename when the last row is written; the three others are gone then
// results.csv.json          the sweep that made it, with the SHA-256 of its rows (moesim.sweep/1)
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace moesim::tools {

// The checksum of a piece of rows behind the one before it (the first: behind the SHA-256 of the definition);
// after it the rows of so many scenarios are there, in so many bytes of all.
std::string sweep_link(const std::string& behind, std::uint64_t scenarios, std::uint64_t bytes,
                       std::string_view rows);

enum class SweepStart : std::uint8_t { kFresh, kResume, kOverwrite };

class SweepFile {
 public:
  // An empty path is standard output. A link is followed: the other files stand beside the table that it
  // leads to. `definition` is JSON text that two runs of the same sweep share.
  // Throws InputError where rows of an interrupted sweep would be lost (kFresh), where they belong to another
  // one or are not those that a sweep wrote (kResume), where another process is writing them, and for folders
  // that cannot be written.
  SweepFile(const std::filesystem::path& path, const std::string& definition, const std::string& header,
            SweepStart start);
  SweepFile(const SweepFile&) = delete;
  SweepFile& operator=(const SweepFile&) = delete;
  ~SweepFile();  // leaves the partial file where finish() was not called

  // The table, where a link leads; empty: standard output.
  const std::filesystem::path& path() const { return path_; }
  // The first scenario whose rows are not there yet.
  std::uint64_t first() const { return first_; }
  // kResume found that the same sweep was finished before: there is nothing to append or to finish.
  bool complete() const { return complete_; }
  // Rows of the scenarios up to `next`; nullopt: of some of them, which nothing goes on behind.
  void append(std::string_view rows, std::optional<std::uint64_t> next);
  // Gives the table its name; `record` (JSON text) stands beside it.
  void finish(const std::string& record);
  // SHA-256 of all rows that were appended, those of earlier runs included.
  std::string sha256() const { return sum_.hex(); }

  static std::filesystem::path partial_of(const std::filesystem::path& path);
  static std::filesystem::path record_of(const std::filesystem::path& path);
  // All that a sweep writes beside its table.
  static std::array<std::filesystem::path, 4> beside(const std::filesystem::path& path);

 private:
  bool lock();
  void set_mode(mode_t more) const;
  void give_name();
  void leave();
  void start_anew(const std::string& definition, const std::string& header);
  bool go_on(const std::string& definition);

  std::filesystem::path path_;
  int file_ = -1, sums_ = -1;
  bool complete_ = false, named_ = false;
  std::uint64_t first_ = 0, bytes_ = 0;
  std::string link_;  // the last of the chain
  Sha256 sum_;
};

}  // namespace moesim::tools

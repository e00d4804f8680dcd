// The table that a sweep writes, row by row: under another name until it is complete, so that an interrupted
// sweep can resume and an incomplete table is never mistaken for a complete one.
//
//   results.csv.partial       the rows so far, in the final order; its last line may be cut
//   results.csv.partial.sums  checksums of these rows, one line for every appended piece, chained to the
//                             checksum of results.csv.partial.json
//   results.csv.partial.json  definition of the sweep: another sweep must not append to these rows
//   results.csv               appears by rename after the last row; the three others are then removed
//   results.csv.json          the sweep that made it, with the SHA-256 of its rows (moesim.sweep/1)
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/sha256.h"

namespace moesim::tools {

// Returns the checksum of a piece of rows chained to the previous one (the first: to the SHA-256 of the
// definition); after the piece, the table holds the rows of so many scenarios in so many bytes.
std::string sweep_link(const std::string& behind, std::uint64_t scenarios, std::uint64_t bytes,
                       std::string_view rows);

enum class SweepStart : std::uint8_t { kFresh, kResume, kOverwrite };

class SweepFile {
 public:
  // An empty path is standard output. Links are followed: the other files lie beside the link's target.
  // `definition`: JSON text common to all runs of the same sweep. Throws InputError where rows of an
  // interrupted sweep would be lost (kFresh), where they belong to another sweep or are not from a sweep
  // (kResume), where another process is writing them, and for folders that cannot be written.
  SweepFile(const std::filesystem::path& path, const std::string& definition, const std::string& header,
            SweepStart start);
  SweepFile(const SweepFile&) = delete;
  SweepFile& operator=(const SweepFile&) = delete;
  ~SweepFile();  // leaves the partial file where finish() was not called

  // The table, with links resolved; empty: standard output.
  const std::filesystem::path& path() const { return path_; }
  // The first scenario whose rows are missing.
  std::uint64_t first() const { return first_; }
  // kResume found a finished table of the same sweep: there is nothing to append or to finish.
  bool complete() const { return complete_; }
  // Appends rows of the scenarios up to `next`; nullopt: of some of them, after which nothing can be
  // appended.
  void append(std::string_view rows, std::optional<std::uint64_t> next);
  // Renames the complete table; `record` (JSON text) is stored beside it.
  void finish(const std::string& record);
  // Returns the SHA-256 of all appended rows, those of earlier runs included.
  std::string sha256() const { return sum_.hex(); }

  static std::filesystem::path partial_of(const std::filesystem::path& path);
  static std::filesystem::path record_of(const std::filesystem::path& path);
  // Returns all files that a sweep writes beside its table.
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
  std::string link_;  // last checksum of the chain
  Sha256 sum_;
};

// Sweeps in parts, for job arrays that share neither MPI nor a disk.

// Part `index` (from 0) of `count`.
struct SweepShard {
  std::uint64_t index = 0, count = 1;

  // Parses "2/16". Throws InputError for other text.
  static SweepShard parse(const std::string& text);
  // Returns the first scenario of the part and the one past its last; sizes differ by at most one.
  std::pair<std::uint64_t, std::uint64_t> of(std::uint64_t scenarios) const;
};

// Adds the part to the definition of the whole sweep.
void add_shard(nlohmann::ordered_json& definition, const SweepShard& shard);

// Merges the tables of all parts, in any order given, into the bytes and the record of the undivided sweep.
// Throws InputError for a table that does not match its record, for parts of different sweeps, and for a
// missing or repeated part.
void merge_sweeps(const std::vector<std::string>& parts, const std::string& out, SweepStart start);

}  // namespace moesim::tools

// Options of every verb besides its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::tools {

enum class Format { kTable, kJson, kCsv };

// Options shared by all verbs; filled by the command line before the verb runs.
struct CommonOptions {
  Format format = Format::kTable;
  bool quiet = false;
  std::uint64_t seed = 1;
  bool seed_given = false;                // true: it replaces a scenario's
  int threads = 0;                        // 0: all cores
  std::vector<std::string> command_line;  // as typed, without the program's name
  std::string report;                     // HTML page to write, for verbs that offer it
};

// Options whose value is a file that the verb writes.
inline constexpr std::array<std::string_view, 4> kOutputOptions{"--out", "--timeline", "--report",
                                                                "--picture"};

}  // namespace moesim::tools

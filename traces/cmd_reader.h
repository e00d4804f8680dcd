// Reader of CMD recordings: one text file per rank, one line per operation (docs/formats.md has the grammar).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "traces/recording.h"

namespace moesim::traces {

// A file of one rank, as its name tells.
struct RankFile {
  std::filesystem::path path;
  std::int64_t rank = 0;
  std::string time;  // the 14 digits YYYYMMDDhhmmss of the name, "" when it has none
};

// Returns nullopt for names not of the form "...rank<number>[_<14 digits>].txt".
std::optional<RankFile> parse_rank_file_name(const std::filesystem::path& path);

struct CmdReadOptions {
  // The pass to read where a folder holds several files per rank (distinguished by the time stamps of the
  // names).
  std::size_t pass = 0;
};

// Reads a folder of rank files, or a single rank file, in rank order. Rank files are regular files that end
// in ".txt" with "rank<number>" in their names; others are ignored. Time is linear in the size of the files;
// memory holds one file's text at a time. Throws InputError "file:line: found X, expected Y" for anything but
// a complete, well-formed recording: truncated or reordered fields, negative or overflowing numbers, shapes
// of absurd size, bytes that are not UTF-8, a missing final newline, a rank that differs from the file name
// or occurs twice, a folder without rank files, a pass that does not exist. Unknown operation names are kept
// and named in `warnings`.
Recording read_cmd(const std::filesystem::path& path, const CmdReadOptions& options = {});

// Parses the text of one rank file; `file` is for messages only. Names and shapes go to `pool`, which must
// outlive the result.
RankRecording read_cmd_text(std::string_view text, const std::string& file, Pool& pool);

// Returns the sizes in the names of a rank file and of the folders around it, in both layouts of public
// recordings ("pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling/rank00.txt",
// "wd16_tp1_pp2_exp4_expNum8_numl8_bs1_rank0_....txt"). The nearest name wins where two disagree.
NamedTopology named_topology(const std::filesystem::path& path);

}  // namespace moesim::traces

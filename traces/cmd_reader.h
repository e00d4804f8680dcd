// Reader of CMD recordings: one text file per rank, one line per operation (docs/formats.md has the grammar).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "traces/recording.h"

namespace moesim::traces {

struct CmdReadOptions {
  // Which pass to read where a folder holds several files per rank (told apart by the time stamps of the
  // names).
  std::size_t pass = 0;
};

// Reads a folder of rank files, or a single rank file, in rank order. Rank files are regular files that end
// in
// ".txt" and have "rank<number>" in their names; all others are left alone. Linear in the size of the files;
// holds one file's text at a time. Throws InputError "file:line: found X, expected Y" for anything that is
// not a whole, well-formed recording: truncated or reordered fields, negative or overflowing numbers, shapes
// of absurd size, bytes that are not UTF-8, a missing final newline, a rank that differs from the file name
// or stands there twice, a folder without rank files, a pass that does not exist. Unknown operation names are
// kept and named in `warnings`.
Recording read_cmd(const std::filesystem::path& path, const CmdReadOptions& options = {});

// Reads the text of one rank file; `file` is for messages, and the names it claims are not looked at. Names
// and shapes go to `pool`, which must outlive the result.
RankRecording read_cmd_text(std::string_view text, const std::string& file, Pool& pool);

// What the names of a rank file and of the folders around it claim, in both layouts of public recordings
// ("pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024/scaling/rank00.txt",
// "wd16_tp1_pp2_exp4_expNum8_numl8_bs1_rank0_....txt"). The nearest name wins where two disagree.
NamedTopology named_topology(const std::filesystem::path& path);

}  // namespace moesim::traces

// Facts in the name of a rank file; inside traces/ only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moesim::traces {

struct RankFile {
  std::filesystem::path path;
  std::int64_t rank = 0;
  std::string time;  // the 14 digits YYYYMMDDhhmmss of the name, "" when it has none
};

// Returns nullopt for names not of the form "...rank<number>[_<14 digits>].txt".
std::optional<RankFile> parse_rank_file_name(const std::filesystem::path& path);

// Separates the passes of a folder: in order of time, a pass ends where a rank repeats. Each pass is in rank
// order. Throws InputError when two files of one rank have the same time stamp, or none.
std::vector<std::vector<RankFile>> separate_passes(std::vector<RankFile> files);

}  // namespace moesim::traces

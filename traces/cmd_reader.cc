#include "traces/cmd_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "traces/cmd_line.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShortestLine = 128;
constexpr std::size_t kShortestSubOperation = 40;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{8}
                                        << 30;  // keeps line and sub-operation numbers in 32 bits

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Sets the size in one token of a name, such as "pp2", "expNumNone" or "hs4096".
void take_token(std::string_view token, NamedTopology& named) {
  using Field = std::optional<std::int64_t> NamedTopology::*;
  static constexpr std::pair<std::string_view, Field> kKeys[] = {
      {"wd", &NamedTopology::world},       {"tp", &NamedTopology::tp},
      {"pp", &NamedTopology::pp},          {"ep", &NamedTopology::ep},
      {"exp", &NamedTopology::ep},         {"expn", &NamedTopology::experts},
      {"expNum", &NamedTopology::experts}, {"dp", &NamedTopology::dp},
      {"nl", &NamedTopology::layers},      {"numl", &NamedTopology::layers},
      {"l", &NamedTopology::layers},       {"hs", &NamedTopology::hidden},
      {"sl", &NamedTopology::seq},         {"bs", &NamedTopology::micro_batch}};
  for (const auto& [key, field] : kKeys) {
    if (!token.starts_with(key)) continue;
    const std::string_view value = token.substr(key.size());
    if (value == "None" && field == &NamedTopology::experts) {
      named.*field = 0;
    } else if (all_digits(value)) {
      const std::optional<long long> number = parse_int(value);
      if (number && *number >= 1 && *number <= (std::int64_t{1} << 40)) named.*field = *number;
    }
  }
}

NamedTopology parse_name(std::string_view name) {
  NamedTopology named;
  for (std::string_view token : split(name, '_')) take_token(token, named);
  return named;
}

// Completes `near` from `far`.
NamedTopology merge(const NamedTopology& near, const NamedTopology& far) {
  return {near.world ? near.world : far.world,
          near.tp ? near.tp : far.tp,
          near.pp ? near.pp : far.pp,
          near.ep ? near.ep : far.ep,
          near.experts ? near.experts : far.experts,
          near.dp ? near.dp : far.dp,
          near.layers ? near.layers : far.layers,
          near.hidden ? near.hidden : far.hidden,
          near.seq ? near.seq : far.seq,
          near.micro_batch ? near.micro_batch : far.micro_batch};
}

// Returns the bytes of the well-formed character at the front of `text`, 0 if there is none (table 3-7 of the
// Unicode standard).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7F) || first == '\n' ? 1 : 0;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_high = first == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !too_high ? 4 : 0;
  }
  return 0;
}

// Returns true when all eight bytes are plain ASCII from 0x20 to 0x7E. The bit trick for "a byte below 0x20"
// reports a false alarm only above a real one; the caller then checks byte by byte.
bool plain_eight(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::uint64_t kHigh = 0x8080808080808080u;
  const std::uint64_t below_space = (word - 0x20 * kOnes) & ~word;
  const std::uint64_t deleted = word + kOnes;  // 0x7F becomes 0x80
  return ((word | below_space | deleted) & kHigh) == 0;
}

// Throws InputError with the place of the first byte that is not UTF-8 (RFC 3629) or is a control character
// other than a line feed, so that what is read can be printed.
void check_plain_text(std::string_view text, const std::string& file) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && plain_eight(text.data() + at)) {
      at += 8;
      continue;
    }
    const std::size_t length = character_length(text.substr(at, 4));
    if (length == 0) {
      const std::string_view before = text.substr(0, at);
      const auto line = 1 + static_cast<long>(std::count(before.begin(), before.end(), '\n'));
      const std::size_t line_start = before.rfind('\n');
      const auto column = static_cast<long>(line_start == std::string_view::npos ? at + 1 : at - line_start);
      char byte[8];
      std::snprintf(byte, sizeof byte, "0x%02x", static_cast<unsigned char>(text[at]));
      throw InputError({file, line, column}, std::string("the byte ") + byte,
                       text[at] == '\r' ? "line breaks without a carriage return"
                                        : "UTF-8 text without control characters");
    }
    at += length;
  }
}

std::size_t count_of(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size()))
    ++count;
  return count;
}

bool is_profiler_trace(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

std::string profiler_traces(const fs::path& folder) {
  for (const fs::path& entry : entries_of(folder))
    if (!is_folder(entry) && is_profiler_trace(entry) && entry.filename() != "dispatching.json")
      return "; `moesim trace convert " + folder.string() +
             " FOLDER` makes a recording of traces of the PyTorch profiler or of Chakra";
  return "";
}

std::vector<RankFile> rank_files_of(const fs::path& folder) {
  std::vector<RankFile> files;
  std::vector<std::string> folders;  // below this one, with their own rank files
  for (const fs::path& entry : entries_of(folder)) {
    if (is_folder(entry)) {
      std::error_code ignored;  // an unreadable folder is not reported
      for (fs::directory_iterator below(entry, ignored), end; !ignored && below != end;
           below.increment(ignored))
        if (parse_rank_file_name(below->path())) {
          folders.push_back(entry.filename().string());
          break;
        }
    } else if (auto file = parse_rank_file_name(entry)) {
      files.push_back(std::move(*file));
    }
  }
  if (files.empty()) {
    std::string hint = profiler_traces(folder);
    if (!folders.empty()) hint += "; there are recordings in its folders " + join(folders, ", ");
    throw InputError({folder.string()}, "a folder without rank files",
                     "files like rank00.txt or ..._rank0_20250818063302.txt" + hint);
  }
  return files;
}

// Separates the passes of a folder: in order of time, a pass ends where a rank repeats. Each pass is in rank
// order. Throws InputError when two files of one rank have the same time stamp, or none.
std::vector<std::vector<RankFile>> separate_passes(std::vector<RankFile> files) {
  std::sort(files.begin(), files.end(), [](const RankFile& a, const RankFile& b) {
    return std::tie(a.time, a.rank, a.path) < std::tie(b.time, b.rank, b.path);
  });
  std::vector<std::vector<RankFile>> passes;
  std::unordered_map<std::int64_t, const RankFile*> seen;  // ranks of the current pass
  for (const RankFile& file : files) {
    const auto known = seen.find(file.rank);
    if (known != seen.end() && known->second->time == file.time)
      throw InputError(
          {file.path.string()}, "a second file of rank " + std::to_string(file.rank),
          "one file per rank, or file names that tell the passes apart by a time stamp; the first is " +
              known->second->path.string());
    if (passes.empty() || known != seen.end()) {
      passes.emplace_back();
      seen.clear();
    }
    seen[file.rank] = &file;
    passes.back().push_back(file);
  }
  for (auto& pass : passes)
    std::sort(pass.begin(), pass.end(), [](const RankFile& a, const RankFile& b) { return a.rank < b.rank; });
  return passes;
}

RankRecording read_rank_file(const RankFile& file, Pool& pool) {
  RankRecording rank = read_cmd_text(read_file(file.path, kMaxFileBytes), file.path.string(), pool);
  if (rank.rank != file.rank)
    throw InputError(rank.place(rank.operations.front()), "rank " + std::to_string(rank.rank),
                     "rank " + std::to_string(file.rank) + " as the file name says");
  return rank;
}

void warn_of_unknown_operations(Recording& recording) {
  std::set<std::string, std::less<>> seen;
  std::vector<std::string> known(std::begin(kCmdOperations), std::end(kCmdOperations));
  for (const RankRecording& rank : recording.ranks)
    for (const Operation& operation : rank.operations) {
      if (contains(kCmdOperations, operation.name) || seen.contains(operation.name.view())) continue;
      seen.insert(operation.name.str());
      recording.warnings.push_back(rank.place(operation).str() + ": unknown operation " +
                                   in_quotes(operation.name) + did_you_mean(operation.name, known));
    }
}

}  // namespace

std::optional<RankFile> parse_rank_file_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.ends_with(".txt")) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(0, name.size() - 4);
  RankFile file{path, 0, ""};
  const std::size_t underscore = rest.rfind('_');
  if (underscore != std::string_view::npos) {
    const std::string_view last = rest.substr(underscore + 1);
    if (last.size() == 14 && all_digits(last)) {
      file.time = std::string(last);
      rest = rest.substr(0, underscore);
    }
  }
  const std::size_t at = rest.rfind("rank");
  if (at == std::string_view::npos || (at > 0 && rest[at - 1] != '_')) return std::nullopt;
  const std::string_view digits = rest.substr(at + 4);
  const std::optional<long long> rank = all_digits(digits) ? parse_int(digits) : std::nullopt;
  if (!rank || *rank > kMaxRank) return std::nullopt;
  file.rank = *rank;
  return file;
}

NamedTopology named_topology(const std::filesystem::path& path) {
  const std::filesystem::path full = std::filesystem::absolute(path).lexically_normal();
  NamedTopology named;
  // A file, its folder ("scaling"), and the folder above that ("pp2_tp1_ep4_...").
  std::filesystem::path at = full.has_filename() ? full : full.parent_path();
  for (int level = 0; level < 3 && at.has_filename(); ++level) {
    named = merge(named, parse_name(at.extension() == ".txt" ? at.stem().string() : at.filename().string()));
    at = at.parent_path();
  }
  return named;
}

RankRecording read_cmd_text(std::string_view text, const std::string& file, Pool& pool) {
  RankRecording rank;
  rank.file = file;
  if (text.empty()) throw InputError({file}, "an empty file", "lines like rank:0:forward_step(...)");
  check_plain_text(text, file);
  // Reserves exact sizes, so that large files are not copied while the lists grow; bounded by the shortest
  // possible line and sub-operation, so that invalid files cost no memory.
  rank.operations.reserve(std::min(count_of(text, "\n"), text.size() / kShortestLine));
  rank.sub_operations.reserve(
      std::min(count_of(text, "trace_src_func="), text.size() / kShortestSubOperation));
  std::uint32_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t length = text.find('\n');
    if (length == std::string_view::npos) {
      throw InputError({file, number}, "a last line without a line break, " + in_quotes(text, 32),
                       "a line break after every line (a file cut short?)");
    }
    const std::string_view line = text.substr(0, length);
    if (rank.operations.empty() && line.starts_with('#')) {
      rank.header.emplace_back(line.substr(1));
    } else {
      parse_cmd_line(line, number, rank, pool);
    }
    text.remove_prefix(length + 1);
  }
  if (rank.operations.empty())
    throw InputError({file, number}, "comments only", "lines like rank:0:forward_step(...)");
  return rank;
}

Recording read_cmd(const fs::path& path, const CmdReadOptions& options) {
  Recording recording;
  recording.source = path.string();
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::vector<std::vector<RankFile>> passes = separate_passes(rank_files_of(path));
    recording.passes = passes.size();
    recording.pass = options.pass;
    if (options.pass >= passes.size())
      throw InputError({path.string()}, "pass " + std::to_string(options.pass),
                       "a pass from 0 to " + std::to_string(passes.size() - 1));
    const std::vector<RankFile>& files = passes[options.pass];
    for (const RankFile& file : files) recording.ranks.push_back(read_rank_file(file, recording.pool));
    recording.named = named_topology(files.front().path);
    if (passes.size() > 1)
      recording.warnings.push_back(path.string() + ": holds " + std::to_string(passes.size()) +
                                   " passes; this is pass " + std::to_string(options.pass) + ", begun at " +
                                   files.front().time);
  } else {
    if (is_profiler_trace(path))
      throw InputError({path.string()}, "a trace of the PyTorch profiler or of Chakra, by its name",
                       "a recording: `moesim trace convert " + path.string() + " FOLDER` makes one of it");
    RankRecording rank = read_cmd_text(read_file(path, kMaxFileBytes), path.string(), recording.pool);
    const std::optional<RankFile> file = parse_rank_file_name(path);
    if (file && file->rank != rank.rank)
      throw InputError(rank.place(rank.operations.front()), "rank " + std::to_string(rank.rank),
                       "rank " + std::to_string(file->rank) + " as the file name says");
    recording.ranks.push_back(std::move(rank));
    recording.named = named_topology(path);
  }
  warn_of_unknown_operations(recording);
  return recording;
}

}  // namespace moesim::traces

#include "traces/cmd_reader.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/text.h"
#include "traces/cmd_line.h"
#include "traces/cmd_vocabulary.h"
#include "traces/plain_text.h"
#include "traces/rank_file.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShortestLine = 128;
constexpr std::size_t kShortestSubOperation = 40;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{8}
                                        << 30;  // keeps line and sub-operation numbers in 32 bits

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
             " FOLDER` makes a recording of traces of the PyTorch profiler";
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

RankRecording read_rank_file(const RankFile& file, Pool& pool) {
  RankRecording rank = read_cmd_text(read_file(file.path, kMaxFileBytes), file.path.string(), pool);
  if (rank.rank != file.rank)
    throw InputError(rank.place(rank.operations.front()), "rank " + std::to_string(rank.rank),
                     "rank " + std::to_string(file.rank) + " as the file name says");
  return rank;
}

void warn_of_unknown_operations(Recording& recording) {
  std::set<std::string, std::less<>> seen;
  std::vector<std::string> known(cmd_operations().begin(), cmd_operations().end());
  for (const RankRecording& rank : recording.ranks)
    for (const Operation& operation : rank.operations) {
      if (contains(cmd_operations(), operation.name) || seen.contains(operation.name.view())) continue;
      seen.insert(operation.name.str());
      recording.warnings.push_back(rank.place(operation).str() + ": unknown operation " +
                                   in_quotes(operation.name) + did_you_mean(operation.name, known));
    }
}

}  // namespace

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
      throw InputError({path.string()}, "a trace of the PyTorch profiler, by its name",
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

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/files_read.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/study/sweep_file.h"
#include "tools/moesim/study/sweep_table.h"

namespace moesim::tools {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kShard = "shard";

struct Part {
  std::string table;
  SweepShard shard;
  ordered_json record;     // without the part
  std::string definition;  // of the whole sweep
};

[[noreturn]] void fail(const std::string& file, const std::string& found, const std::string& expected) {
  throw InputError(SourcePlace{file}, found, expected);
}

Part read_part(const std::string& name) {
  std::error_code none;
  // The record lies beside the table, wherever a link to it is.
  const std::string table = fs::is_symlink(name, none) ? fs::canonical(name, none).string() : name;
  Part part;
  part.table = table;
  const std::string file = SweepFile::record_of(table).string();
  part.record = parse_ordered(read_file(file, kMaxJsonBytes), file);
  const char* expected = "the record of a part of a sweep (--shard)";
  const ordered_json& r = part.record;
  if (!r.is_object() || r.value("schema", "") != "moesim.sweep/1" || !r.contains("rows") ||
      !r["rows"].is_object() || !r.contains("definition") || !r["definition"].is_object() ||
      !r.contains("inputs") || !r["inputs"].is_object() || !r["inputs"].contains("command") ||
      !r["inputs"]["command"].is_array())
    fail(file, "no record of a sweep", expected);
  ordered_json definition = r["definition"];
  if (!definition.contains(kShard) || !definition[kShard].is_string())
    fail(file, "the record of a whole sweep", expected);
  part.shard = SweepShard::parse(definition[kShard].get<std::string>());
  definition.erase(kShard);
  part.definition = json_text(definition);
  part.record["definition"] = std::move(definition);
  if (!is_file(table)) fail(table, "no regular file", "the table of that record");
  FilesRead::note_file(table);
  const std::string is = sha256_hex_of_file(table);
  if (r["rows"].value("sha256", "") != is)
    fail(table, "a table that is not the one of its record (SHA-256 " + is + ")",
         "the table as the sweep wrote it");
  return part;
}

// Returns the command for the whole sweep: without the part, into another file.
ordered_json whole_command(const ordered_json& command, const std::string& out) {
  ordered_json words = ordered_json::array();
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string word = command[i].is_string() ? command[i].get<std::string>() : "";
    const std::string option = word.substr(0, word.find('='));
    if (option != "--shard" && option != "--out") {
      words.push_back(word);
      continue;
    }
    if (option == word) ++i;
    if (option != "--out") continue;
    words.push_back("--out");
    words.push_back(out);
  }
  return words;
}

// Checks that each part of one sweep occurs once; returns them in order.
std::vector<Part> in_order(const std::vector<std::string>& tables) {
  std::vector<Part> parts;
  for (const std::string& table : tables) {
    Part part = read_part(table);
    if (!parts.empty() && part.shard.count != parts.front().shard.count)
      fail(table, fmt::format("a part of {}", part.shard.count),
           fmt::format("one of {}, as {}", parts.front().shard.count, parts.front().table));
    if (!parts.empty() && part.definition != parts.front().definition)
      fail(table, "a part of another sweep (its options, files or version differ)",
           "parts of the sweep of " + parts.front().table);
    parts.push_back(std::move(part));
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.shard.index < b.shard.index; });
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (i > 0 && parts[i].shard.index == parts[i - 1].shard.index)
      fail(parts[i].table, fmt::format("part {} again", parts[i].shard.index), "each part once");
  const std::uint64_t count = parts.front().shard.count;
  std::uint64_t expected = 0;
  for (const Part& part : parts) {
    if (part.shard.index != expected) break;
    ++expected;
  }
  if (expected != count)
    throw InputError(fmt::format("sweep merge: found {} of {} parts, expected all; part {} is not there",
                                 parts.size(), count, expected));
  return parts;
}

}  // namespace

SweepShard SweepShard::parse(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto index = parse_int(text.substr(0, slash));
  const auto count = slash == std::string::npos ? std::nullopt : parse_int(text.substr(slash + 1));
  constexpr std::int64_t kMost = 1'000'000;
  if (!index || !count || *index < 0 || *count < 1 || *count > kMost || *index >= *count)
    throw InputError("--shard: found " + in_quotes(text) + ", expected I/N: part I, from 0 to N - 1, of N");
  return {static_cast<std::uint64_t>(*index), static_cast<std::uint64_t>(*count)};
}

std::pair<std::uint64_t, std::uint64_t> SweepShard::of(std::uint64_t scenarios) const {
  // Avoids an overflow of scenarios x index.
  const std::uint64_t each = scenarios / count, more = scenarios % count;
  const auto begin = [&](std::uint64_t i) { return i * each + std::min(i, more); };
  return {begin(index), begin(index + 1)};
}

void add_shard(ordered_json& definition, const SweepShard& shard) {
  definition[kShard] = fmt::format("{}/{}", shard.index, shard.count);
}

void merge_sweeps(const std::vector<std::string>& tables, const std::string& out, SweepStart start) {
  for (const std::string& table : tables)
    if (std::error_code none; fs::equivalent(table, out, none))
      throw InputError("--out: found " + in_quotes(out) + ", which is a part, expected another file");
  const std::vector<Part> parts = in_order(tables);
  const bool header = parts.front().record["definition"].value("format", "") == "csv";
  std::string first_line;
  if (header) {
    std::ifstream in(parts.front().table);
    std::getline(in, first_line);
    first_line += '\n';
  }
  SweepFile file(out, parts.front().definition, first_line, start);
  if (file.complete()) return;
  const std::uint64_t scenarios = parts.front().record["definition"].value("scenarios", std::uint64_t{0});
  for (const Part& part : parts) {
    const std::uint64_t next = part.shard.of(scenarios).second;
    if (next <= file.first()) continue;  // already written before resuming
    std::ifstream in(part.table, std::ios::binary);
    if (!in) throw InputError(SourcePlace{part.table}, "cannot read");
    std::string line, rows;
    std::uint64_t last = part.shard.of(scenarios).first;
    bool any = false;
    if (header) std::getline(in, line);
    constexpr std::size_t kPiece = 1 << 20;
    while (std::getline(in, line)) {
      const auto scenario = SweepTable::index_of(line);
      if (!scenario) fail(part.table, "a line that is no row", "the table as the sweep wrote it");
      if (*scenario != last && !(any && *scenario == last + 1))
        fail(part.table, fmt::format("rows of scenario {} behind those of {}", *scenario, last),
             "each scenario of the part in its turn");
      const bool same = any && *scenario == last;
      last = *scenario;
      any = true;
      if (*scenario < file.first()) continue;
      if (rows.size() >= kPiece && !same) {
        file.append(rows, *scenario);
        rows.clear();
      }
      rows += line;
      rows += '\n';
    }
    if (any ? last + 1 != next : last != next)
      fail(part.table, fmt::format("no rows behind scenario {}", last),
           fmt::format("all up to {}", next - 1));
    file.append(rows, next);
  }
  ordered_json record = parts.front().record;
  record["inputs"]["command"] = whole_command(record["inputs"]["command"], out);
  record["rows"] = {
      {"file", file.path().filename().string()}, {"sha256", file.sha256()}, {"scenarios", scenarios}};
  file.finish(json_text(record));
}

}  // namespace moesim::tools

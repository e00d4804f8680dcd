#include "traces/rank_file.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/input_error.h"
#include "base/text.h"
#include "traces/cmd_line.h"
#include "traces/cmd_reader.h"

namespace moesim::traces {
namespace {

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

}  // namespace moesim::traces

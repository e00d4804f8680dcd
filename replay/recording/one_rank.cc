#include "replay/recording/one_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/input_error.h"
#include "base/text.h"
#include "traces/dispatching.h"

namespace moesim::replay {

namespace {

// By expert rank; empty: the file does not cover the whole job.
std::vector<std::int64_t> received_rows(const models::RoutingSpec& routing, int ranks) {
  if (routing.kind != models::RoutingSpec::Kind::kFile) return {};
  const traces::Dispatching file = traces::read_dispatching(routing.path);
  if (file.loads || file.entries.size() != 1 || file.experts % ranks != 0) return {};
  const std::vector<std::int64_t>& experts = file.entries.front().table.received;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), 0);
  for (std::size_t e = 0; e < experts.size(); ++e) rows[e / (experts.size() / rows.size())] += experts[e];
  return rows;
}

// The first of two exchanges of a layer starts from the sender's rows, the second from the expert's.
void give_rows(Step& step, std::int64_t from, std::int64_t to, const std::string& file) {
  if (step.kind != StepKind::forward && step.kind != StepKind::backward) return;
  const double share = from > 0 ? static_cast<double>(to) / static_cast<double>(from) : 1;
  for (std::size_t s = 0; s < step.segments_us.size(); ++s)
    if (in_experts(step, s)) step.segments_us[s] *= share;
  std::size_t exchanges = 0;
  for (Call& call : step.calls) {
    if (!is_exchange(call) || ++exchanges % 2 != 0) continue;
    if (call.rows != from)
      throw InputError(
          fmt::format("{}: found {} rows for an expert rank that got {} in the recording, expected the "
                      "routing of this recording",
                      file, from, call.rows));
    call.rows = to;
  }
}

}  // namespace

RecordedJob with_all_expert_ranks(const RecordedJob& job, const models::RoutingSpec& routing,
                                  std::vector<std::string>& warnings) {
  const Topology& topology = job.topology;
  std::map<int, std::map<int, const RankSteps*>> known;  // stage, expert rank
  for (const RankSteps& rank : job.ranks)
    if (rank.rank >= 0) {
      const Coordinates at = topology.of(rank.rank);
      known[at.pp].try_emplace(at.expert, &rank);
    }
  bool lacks = false;
  for (int pp = 0; pp < topology.pp; ++pp) {
    if (known[pp].empty()) return job;
    lacks = lacks || known[pp].size() < static_cast<std::size_t>(topology.expert);
  }
  const std::vector<std::int64_t> rows =
      lacks ? received_rows(routing, topology.expert) : std::vector<std::int64_t>{};
  if (rows.empty()) return job;
  RecordedJob whole = job;
  std::set<std::string> added;
  for (int pp = 0; pp < topology.pp; ++pp)
    for (int expert = 0; expert < topology.expert; ++expert) {
      if (known[pp].contains(expert)) continue;
      const auto nearest =
          std::min_element(known[pp].begin(), known[pp].end(), [&](const auto& a, const auto& b) {
            return std::abs(a.first - expert) < std::abs(b.first - expert);
          });
      RankSteps rank = *nearest->second;
      rank.rank = topology.rank({topology.of(rank.rank).tp, expert, 0, pp});
      for (Step& step : rank.steps)
        give_rows(step, rows[static_cast<std::size_t>(nearest->first)],
                  rows[static_cast<std::size_t>(expert)], routing.path);
      whole.ranks.push_back(std::move(rank));
      added.insert(std::to_string(expert));
    }
  warnings.push_back(fmt::format(
      "expert ranks {} were not recorded: each does what the nearest recorded one did, with the rows of {}; "
      "its experts are taken to need time in proportion to their rows",
      join(std::vector<std::string>(added.begin(), added.end()), ", "), routing.path));
  return whole;
}

}  // namespace moesim::replay

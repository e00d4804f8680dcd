#include "replay/recording/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/input_error.h"
#include "traces/call_roles.h"

namespace moesim::replay {

namespace {

constexpr std::int64_t kMaxWorld = std::int64_t{1} << 22;

// Returns the axes of the grid that vary inside a group.
std::string_view axes_of(GroupKind kind) {
  static constexpr std::array<std::string_view, 9> kAxes{"tp", "ep-edp", "ep", "edp", "tp-ep",
                                                         "pp", "tp-pp",  "pp", "pp"};
  return kAxes[static_cast<std::size_t>(kind)];
}

models::RankGrid grid_of(const Topology& t) {
  return models::RankGrid::fastest_first(
      {{"tp", t.tp}, {"ep", t.expert}, {"edp", t.expert_dp}, {"pp", t.pp}});
}

// Returns the members of a pipeline that are in the group.
std::vector<int> members_of(GroupKind kind, std::vector<int> members) {
  if (kind == GroupKind::position) members.resize(1);
  if (kind == GroupKind::embedding && members.size() > 2) members = {members.front(), members.back()};
  return members;
}

}  // namespace

std::string_view name(GroupKind kind) {
  static constexpr std::array<std::string_view, 9> kNames{
      "tp", "dp", "ep", "expert-dp", "tp-ep", "pp", "tp-pp", "embedding", "position-embedding"};
  return kNames[static_cast<std::size_t>(kind)];
}

Coordinates Topology::of(int rank) const {
  check(rank >= 0 && rank < world(), "a rank of this topology");
  return {rank % tp, rank / tp % expert, rank / (tp * expert) % expert_dp, rank / stage_ranks()};
}

int Topology::rank(const Coordinates& at) const {
  return at.tp + tp * (at.expert + expert * (at.expert_dp + expert_dp * at.pp));
}

models::Parallel Topology::parallel() const {
  return {.tp = tp, .ep = expert, .etp = tp, .dp = dp(), .pp = pp};
}

std::vector<int> Topology::group(GroupKind kind, int rank) const {
  return members_of(kind, grid_of(*this).group_of(rank, axes_of(kind)));
}

std::vector<std::vector<int>> Topology::groups(GroupKind kind) const {
  std::vector<std::vector<int>> all = grid_of(*this).groups(axes_of(kind));
  for (std::vector<int>& members : all) members = members_of(kind, std::move(members));
  return all;
}

std::string Topology::str() const {
  return fmt::format("pp{} tp{} ep{} dp{} ({} ranks)", pp, tp, expert, dp(), world());
}

void Topology::check_sizes(const std::string& source) const {
  const SourcePlace place{source};
  std::int64_t product = 1;
  for (const int size : {tp, expert, expert_dp, pp}) {
    if (size < 1) throw InputError(place, fmt::format("a parallel size of {}", size), "at least 1");
    product *= size;
    if (product > kMaxWorld) throw InputError(place, "more than 4194304 ranks", "fewer");
  }
}

namespace {

// Ranks with equal work look alike in every plan, so that a wrong size would go unnoticed.
void require_names_of_used_groups(const traces::Recording& recording, bool tp_known, bool ep_known) {
  if (tp_known && ep_known) return;
  for (const auto& rank : recording.ranks)
    for (const auto& operation : rank.operations)
      for (const auto& sub : rank.subs(operation)) {
        const std::optional<traces::CallRole> role = traces::role_of(sub);
        if (!role) continue;
        if (!ep_known &&
            (role->group == traces::CallGroup::expert || role->group == traces::CallGroup::tp_expert))
          throw InputError(
              rank.place(operation),
              "exchanges of the group exp and no name that says how many ranks share the experts",
              "a folder or file name with ep, such as pp2_tp1_ep4");
        if (!tp_known && role->group == traces::CallGroup::tp)
          throw InputError(rank.place(operation),
                           "exchanges of the group tp and no name that says how many ranks share a layer",
                           "a folder or file name with tp, such as pp2_tp1");
      }
}

}  // namespace

Topology topology_of(const traces::Recording& recording) {
  const traces::NamedTopology& named = recording.named;
  const SourcePlace place{recording.source};
  // The lines show pipeline stages and the highest rank.
  std::int64_t stages = 1;
  std::int64_t highest = 0;
  for (const auto& rank : recording.ranks) {
    highest = std::max<std::int64_t>(highest, rank.rank);
    for (const auto& operation : rank.operations)
      stages = std::max<std::int64_t>(stages, operation.stage_id + 1);
  }
  const std::int64_t tp = named.tp.value_or(1);
  const std::int64_t ep = named.ep.value_or(1);
  const std::int64_t pp = named.pp.value_or(stages);
  for (const auto& [size, what] : {std::pair{tp, "tp"}, {ep, "ep"}, {pp, "pp"}, {named.dp.value_or(1), "dp"}})
    if (size < 1 || size > kMaxWorld)
      throw InputError(place, fmt::format("{} {} in the name", what, size), "a size from 1 to 4194304");
  if (stages > pp)
    throw InputError(place, fmt::format("stage_id {} in the lines", stages - 1),
                     fmt::format("less than pp {} of the name", pp));
  const std::int64_t per_stage_dp = tp * pp;
  std::int64_t world = named.world.value_or(named.dp ? *named.dp * per_stage_dp : 0);
  if (world == 0) {
    // Without a name: a complete recording has every rank.
    world = highest + 1;
    if (static_cast<std::int64_t>(recording.ranks.size()) != world)
      throw InputError(place,
                       fmt::format("{} of at least {} ranks and no name that says how many there were",
                                   recording.ranks.size(), world),
                       "a folder or file name with wd or dp");
  }
  if (world < 1 || world > kMaxWorld)
    throw InputError(place, fmt::format("{} ranks", world), "from 1 to 4194304");
  if (world % per_stage_dp != 0)
    throw InputError(place, fmt::format("{} ranks with tp {} and pp {}", world, tp, pp),
                     "a multiple of tp x pp");
  const std::int64_t dp = world / per_stage_dp;
  if (named.dp && *named.dp != dp)
    throw InputError(place, fmt::format("dp {} in the name", *named.dp),
                     fmt::format("{} = {} ranks / (tp {} x pp {})", dp, world, tp, pp));
  if (dp % ep != 0) throw InputError(place, fmt::format("ep {} with dp {}", ep, dp), "an ep that divides dp");
  if (highest >= world)
    throw InputError(place, fmt::format("rank {} of {} ranks", highest, world), "ranks below the world size");
  require_names_of_used_groups(recording, named.tp || world == pp, named.ep || dp == 1);
  Topology topology;
  topology.tp = static_cast<int>(tp);
  topology.expert = static_cast<int>(ep);
  topology.expert_dp = static_cast<int>(dp / ep);
  topology.pp = static_cast<int>(pp);
  topology.check_sizes(recording.source);
  for (const auto& rank : recording.ranks)
    for (const auto& operation : rank.operations)
      if (operation.stage_id != topology.of(rank.rank).pp)
        throw InputError(rank.place(operation),
                         fmt::format("stage_id {} on rank {}", operation.stage_id, rank.rank),
                         fmt::format("{} in {}", topology.of(rank.rank).pp, topology.str()));
  return topology;
}

}  // namespace moesim::replay

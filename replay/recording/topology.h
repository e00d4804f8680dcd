// The topology of a recording: the world ranks that it stands for, and the groups behind its labels. Its
// ranks are a models::RankGrid in Megatron's order tp-ep-dp-pp (docs/formats.md), with DP = EXP*EDP.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/workload/parallel.h"
#include "traces/recording.h"

namespace moesim::replay {

// Groups by their labels in a recording. `embedding` is the label "ep" of recordings: the first and last rank
// of a pipeline; expert parallelism is `expert`.
enum class GroupKind : std::uint8_t { tp, dp, expert, expert_dp, tp_expert, pp, model, embedding, position };

std::string_view name(GroupKind kind);

struct Coordinates {
  int tp = 0;
  int expert = 0;
  int expert_dp = 0;
  int pp = 0;

  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

struct Topology {
  int tp = 1;
  int expert = 1;     // EXP, expert-parallel size
  int expert_dp = 1;  // EDP = DP / EXP
  int pp = 1;

  int dp() const { return expert * expert_dp; }
  int stage_ranks() const { return tp * dp(); }
  int world() const { return stage_ranks() * pp; }

  Coordinates of(int rank) const;
  int rank(const Coordinates& at) const;

  // Returns the plan for the models: the recorders split experts over the same ranks as the rest.
  models::Parallel parallel() const;

  // Returns members in the order of the varying coordinates, fastest first; includes `rank`.
  std::vector<int> group(GroupKind kind, int rank) const;
  // Returns every group of this kind, in order of the smallest member.
  std::vector<std::vector<int>> groups(GroupKind kind) const;

  // Returns "pp2 tp1 ep4 dp8 (16 ranks)".
  std::string str() const;

  // Throws InputError when a size is not positive or the world exceeds 2^22 ranks.
  void check_sizes(const std::string& source) const;
};

// Returns the topology that a recording's names give (folder and files) and its lines confirm. Throws
// InputError naming the file where they contradict each other, or where the number of ranks is unknown.
Topology topology_of(const traces::Recording& recording);

}  // namespace moesim::replay

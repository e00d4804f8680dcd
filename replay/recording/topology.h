// The fake topology: which world ranks a recording stands for, and the groups its labels mean. Its ranks are
// a models::RankGrid in Megatron's order tp-ep-dp-pp (docs/formats.md), with DP = EXP*EDP.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/workload/parallel.h"
#include "traces/recording.h"

namespace moesim::replay {

// Groups by the labels of a recording. `embedding` is what recordings call "ep": the first and last rank of a
// pipeline; expert parallelism is `expert`.
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

  // The plan, as the models have it: the recorders split experts over the same ranks as the rest.
  models::Parallel parallel() const;

  // Members in the order of the varying coordinate(s), fastest first; `rank` among them.
  std::vector<int> group(GroupKind kind, int rank) const;
  // Every group of this kind, in order of the smallest member.
  std::vector<std::vector<int>> groups(GroupKind kind) const;

  // "pp2 tp1 ep4 dp8 (16 ranks)".
  std::string str() const;

  // Throws InputError when a size is not positive or the world exceeds 2^22 ranks.
  void check_sizes(const std::string& source) const;
};

// The topology a recording names (folder and file names) and its lines agree with. Throws InputError naming
// the file when names and lines contradict each other, or when nothing says how many ranks there were.
Topology topology_of(const traces::Recording& recording);

}  // namespace moesim::replay

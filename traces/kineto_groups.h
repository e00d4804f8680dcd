// The parallel plan behind process groups, and the labels of groups in CMD recordings; inside traces/ only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesim::traces {

// Sizes in rank order, fastest first: tp, ep, the rest of dp, pp.
struct ParallelSizes {
  std::int64_t tp = 1, ep = 1, expert_dp = 1, pp = 1;

  std::int64_t world() const { return tp * ep * expert_dp * pp; }
  std::int64_t stage_of(std::int64_t rank) const { return rank / (tp * ep * expert_dp); }
};

// A group as seen in traces: members, description, and whether all-to-alls ran on it.
struct SeenGroup {
  std::vector<std::int64_t> ranks;
  std::string description;
  bool exchanges = false;
};

// Derives tp from groups described as tensor parallel, ep from those of experts (or, without any, from groups
// with all-to-alls), pp from the distance of ranks that send to each other (`p2p_distance`, 0 for none); each
// only where it is not given. Throws InputError (`source` for messages) for sizes that do not divide the
// world.
ParallelSizes parallel_plan(std::int64_t world, std::span<const SeenGroup> groups, std::int64_t p2p_distance,
                            std::optional<std::int64_t> tp, std::optional<std::int64_t> ep,
                            std::optional<std::int64_t> pp, const std::string& source);

// Returns "tp", "exp", "exp_dp", "dp", or "" for any other group. A group that matches several (ep = dp) is
// "exp" where all-to-alls run on it, else the largest.
std::string_view group_label(const ParallelSizes& plan, std::span<const std::int64_t> ranks, bool exchange);

}  // namespace moesim::traces

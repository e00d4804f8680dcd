#include "traces/kineto_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/input_error.h"

namespace moesim::traces {

namespace {

bool says(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

// Returns the members of the group of `rank` when tp, ep or the rest of dp vary.
std::vector<std::int64_t> members(const ParallelSizes& plan, std::int64_t rank, bool tp, bool ep, bool rest) {
  const std::int64_t t = rank % plan.tp, e = rank / plan.tp % plan.ep;
  const std::int64_t d = rank / (plan.tp * plan.ep) % plan.expert_dp, p = plan.stage_of(rank);
  std::vector<std::int64_t> out;
  for (std::int64_t dd = rest ? 0 : d; dd < (rest ? plan.expert_dp : d + 1); ++dd)
    for (std::int64_t ee = ep ? 0 : e; ee < (ep ? plan.ep : e + 1); ++ee)
      for (std::int64_t tt = tp ? 0 : t; tt < (tp ? plan.tp : t + 1); ++tt)
        out.push_back(tt + plan.tp * (ee + plan.ep * (dd + plan.expert_dp * p)));
  return out;
}

}  // namespace

ParallelSizes parallel_plan(std::int64_t world, std::span<const SeenGroup> groups, std::int64_t p2p_distance,
                            std::optional<std::int64_t> tp, std::optional<std::int64_t> ep,
                            std::optional<std::int64_t> pp, const std::string& source) {
  std::int64_t tensor = 1, described_experts = 0, exchanging = 1;
  for (const SeenGroup& group : groups) {
    const auto size = static_cast<std::int64_t>(group.ranks.size());
    const bool data = says(group.description, "data") || says(group.description, "dp");
    const bool tensors = says(group.description, "tensor") || says(group.description, "mesh_tp");
    const bool experts = says(group.description, "expert") || says(group.description, "mesh_ep");
    if (tensors && !experts && !data) tensor = std::max(tensor, size);
    if (experts && !tensors && !data) described_experts = std::max(described_experts, size);
    if (group.exchanges && !tensors) exchanging = std::max(exchanging, size);
  }
  ParallelSizes plan;
  plan.tp = tp.value_or(tensor);
  plan.ep = ep.value_or(described_experts > 0 ? described_experts : exchanging);
  plan.pp = pp.value_or(p2p_distance > 0 && world % p2p_distance == 0 ? world / p2p_distance : 1);
  if (plan.tp < 1 || plan.ep < 1 || plan.pp < 1 || world % (plan.tp * plan.ep * plan.pp) != 0)
    throw InputError(SourcePlace{source},
                     fmt::format("{} ranks with tp {}, ep {} and pp {}", world, plan.tp, plan.ep, plan.pp),
                     "sizes whose product divides the ranks (--tp, --ep, --pp set them)");
  plan.expert_dp = world / (plan.tp * plan.ep * plan.pp);
  return plan;
}

std::string_view group_label(const ParallelSizes& plan, std::span<const std::int64_t> ranks, bool exchange) {
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= plan.world()) return {};
  const auto is = [&](bool tp, bool ep, bool rest) {
    return std::ranges::equal(members(plan, ranks.front(), tp, ep, rest), ranks);
  };
  if (exchange && is(false, true, false)) return "exp";
  if (is(false, true, true)) return "dp";
  if (is(false, true, false)) return "exp";
  if (is(false, false, true)) return "exp_dp";
  if (is(true, false, false)) return "tp";
  return {};
}

}  // namespace moesim::traces

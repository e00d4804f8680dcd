#include "models/programs/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace moesim::models {

namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    text += (text.empty() ? "" : ", ") +
            (i == j ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]));
    i = j + 1;
  }
  return text;
}

std::string describe(const IssuedCollective& op) {
  return fmt::format("{} ({} {}{}{})", op.name, name_of(op.kind), name_of(op.dtype),
                     op.place.empty() ? "" : ", ", op.place);
}

}  // namespace

std::optional<Mismatch> match_positions(std::span<const std::vector<IssuedCollective>> members) {
  if (members.size() < 2) return std::nullopt;
  std::size_t longest = 0;
  for (const auto& sequence : members) longest = std::max(longest, sequence.size());
  for (std::size_t at = 0; at < longest; ++at) {
    Mismatch mismatch;
    mismatch.position = static_cast<int>(at) + 1;
    const IssuedCollective* first = at < members[0].size() ? &members[0][at] : nullptr;
    for (std::size_t m = 1; m < members.size(); ++m) {
      const IssuedCollective* other = at < members[m].size() ? &members[m][at] : nullptr;
      bool same = (first == nullptr) == (other == nullptr);
      if (same && first != nullptr)
        same = first->kind == other->kind && first->dtype == other->dtype && first->bytes == other->bytes &&
               first->sends.size() == other->sends.size();
      // Compares rows sent by another member with rows expected from it.
      if (same && first != nullptr && !first->sends.empty())
        same = first->sends[m] == other->receives[0] && first->receives[m] == other->sends[0];
      if (!same) mismatch.ranks.push_back(static_cast<int>(m));
    }
    // Members that agree with member 0 may still disagree with each other.
    if (mismatch.ranks.empty() && first != nullptr && !first->sends.empty())
      for (std::size_t a = 1; a < members.size() && mismatch.ranks.empty(); ++a)
        for (std::size_t b = 1; b < members.size(); ++b)
          if (members[a][at].sends[b] != members[b][at].receives[a]) {
            mismatch.ranks = {static_cast<int>(a), static_cast<int>(b)};
            break;
          }
    if (mismatch.ranks.empty()) continue;
    const int example = mismatch.ranks.front();
    const std::string here = first ? describe(*first) : "nothing";
    const std::string there = at < members[example].size() ? describe(members[example][at]) : "nothing";
    mismatch.text = fmt::format(
        "mismatch at position {}, {} {}: member 0 issues {}, member {} issues {}; hang", mismatch.position,
        mismatch.ranks.size() > 1 ? "ranks" : "rank", ranks_text(mismatch.ranks), here, example, there);
    return mismatch;
  }
  return std::nullopt;
}

std::vector<std::vector<IssuedCollective>> issued(const Program& p, const std::vector<Op>& pass,
                                                  GroupKind kind, int group, const std::string& prefix) {
  const int g = p.group_size(kind);
  std::vector<std::vector<IssuedCollective>> members(g);
  for (const Op& op : pass) {
    if (op.kind != OpKind::kCollective || op.group != kind) continue;
    for (int m = 0; m < g; ++m) {
      IssuedCollective issue;
      issue.name = prefix + std::string(op.name);
      issue.kind = op.comm;
      issue.dtype = op.dtype;
      if (op.matrix >= 0) {
        const auto rows = p.matrix(op.matrix, group);
        for (int o = 0; o < g; ++o) {
          issue.sends.push_back(op.transposed ? rows[o * g + m] : rows[m * g + o]);
          issue.receives.push_back(op.transposed ? rows[m * g + o] : rows[o * g + m]);
        }
      } else if (op.comm != CommKind::kAllGatherV && op.comm != CommKind::kReduceScatterV) {
        issue.bytes = p.value(op.in, p.rank_of(kind, group, m));
      }
      members[m].push_back(std::move(issue));
    }
  }
  return members;
}

std::optional<std::vector<IssuedPosition>> find_order_cycle(
    std::span<const std::vector<IssuedPosition>> order) {
  // A collective must end before any member proceeds to its next one.
  std::map<std::pair<int, int>, std::size_t> index;
  std::vector<IssuedPosition> nodes;
  std::vector<std::vector<std::size_t>> next;
  const auto node = [&](const IssuedPosition& p) {
    const auto [at, added] = index.emplace(std::pair(p.communicator, p.position), nodes.size());
    if (added) nodes.push_back(p), next.emplace_back();
    return at->second;
  };
  for (const auto& sequence : order)
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      const std::size_t here = node(sequence[i]);
      if (i + 1 < sequence.size()) {
        const std::size_t there = node(sequence[i + 1]);
        next[here].push_back(there);
      }
    }
  // Depth-first search with an explicit stack; a back edge closes a cycle.
  std::vector<char> state(nodes.size(), 0);
  for (std::size_t start = 0; start < nodes.size(); ++start) {
    if (state[start] != 0) continue;
    std::vector<std::pair<std::size_t, std::size_t>> path{{start, 0}};
    state[start] = 1;
    while (!path.empty()) {
      auto& [at, edge] = path.back();
      if (edge == next[at].size()) {
        state[at] = 2;
        path.pop_back();
        continue;
      }
      const std::size_t to = next[at][edge++];
      if (state[to] == 1) {
        std::vector<IssuedPosition> cycle;
        auto from =
            std::find_if(path.begin(), path.end(), [&](const auto& step) { return step.first == to; });
        for (; from != path.end(); ++from) cycle.push_back(nodes[from->first]);
        return cycle;
      }
      if (state[to] == 0) {
        state[to] = 1;
        path.emplace_back(to, 0);
      }
    }
  }
  return std::nullopt;
}

}  // namespace moesim::models

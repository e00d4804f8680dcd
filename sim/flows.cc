#include "sim/flows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace moesim::sim {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Levels closer than this are one bottleneck.
constexpr double kSameLevel = 1.0 + 1e-12;

}  // namespace

FlowNetwork::FlowNetwork(std::span<const double> capacities, double window)
    : users_(capacities.size()),
      carried_(capacities.size()),
      link_mark_(capacities.size()),
      left_(capacities.size()),
      weight_(capacities.size()),
      open_(capacities.size()),
      level_(capacities.size()),
      window_(window) {
  capacity_.reserve(capacities.size());
  for (const double capacity : capacities) {
    check(capacity > 0 && std::isfinite(capacity), "a link has a capacity");
    capacity_.push_back(capacity * 1e-12);
  }
}

FlowNetwork::Slot FlowNetwork::take_slot(std::size_t uses) {
  if (uses < free_.size() && !free_[uses].empty()) {
    const Slot slot = free_[uses].back();
    free_[uses].pop_back();
    return slot;
  }
  const auto slot = static_cast<Slot>(rate_.size());
  rate_.push_back(0);
  remaining_.push_back(0);
  bytes_.push_back(0);
  cap_.push_back(0);
  updated_.emplace_back();
  tag_.push_back(0);
  flow_mark_.push_back(0);
  use_begin_.push_back(static_cast<std::uint32_t>(use_link_.size()));
  use_count_.push_back(static_cast<std::uint32_t>(uses));
  use_link_.resize(use_link_.size() + uses);
  use_factor_.resize(use_link_.size());
  use_place_.resize(use_link_.size());
  if (rate_.size() > leaves_) {
    std::size_t leaves = std::max<std::size_t>(64, leaves_);
    while (leaves < rate_.size()) leaves *= 2;
    std::vector<std::int64_t> tree(2 * leaves, kNever);
    if (leaves_ > 0) std::copy(tree_.begin() + leaves_, tree_.end(), tree.begin() + leaves);
    leaves_ = leaves;
    tree_ = std::move(tree);
    for (std::size_t i = leaves_ - 1; i > 0; --i) tree_[i] = std::min(tree_[2 * i], tree_[2 * i + 1]);
  }
  return slot;
}

FlowNetwork::Slot FlowNetwork::start(Time now, std::span<const LinkShare> shares, double bytes, double cap,
                                     std::uint32_t tag) {
  check(now >= now_, "time does not run backwards");
  check(bytes >= 0 && cap >= 0 && (cap > 0 || !shares.empty()), "a flow has bytes, and a link or a cap");
  now_ = now;
  const Slot flow = take_slot(shares.size());
  bytes_[flow] = remaining_[flow] = bytes;
  cap_[flow] = cap > 0 ? cap * 1e-12 : kInfinity;
  rate_[flow] = 0;
  updated_[flow] = now;
  tag_[flow] = tag;
  ++running_;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    use_link_[use_begin_[flow] + i] = shares[i].link;
    use_factor_[use_begin_[flow] + i] = shares[i].factor;
  }
  attach(flow);
  dirty_flows_.push_back(flow);
  return flow;
}

void FlowNetwork::attach(Slot flow) {
  const std::uint32_t begin = use_begin_[flow], end = begin + use_count_[flow];
  for (std::uint32_t use = begin; use < end; ++use) {
    auto& users = users_[use_link_[use]];
    use_place_[use] = static_cast<std::uint32_t>(users.size());
    users.push_back({flow, use});
    if (users.size() > 1) dirty_.push_back(use_link_[use]);
  }
}

void FlowNetwork::detach(Slot flow) {
  const std::uint32_t begin = use_begin_[flow], end = begin + use_count_[flow];
  for (std::uint32_t use = begin; use < end; ++use) {
    const std::uint32_t link = use_link_[use];
    auto& users = users_[link];
    users[use_place_[use]] = users.back();
    use_place_[users.back().use] = use_place_[use];
    users.pop_back();
    carried_[link] += bytes_[flow] * use_factor_[use];
    if (!users.empty()) dirty_.push_back(link);
  }
}

void FlowNetwork::set_cap(Time now, Slot flow, double cap) {
  check(now >= now_, "time does not run backwards");
  now_ = now;
  cap_[flow] = cap > 0 ? cap * 1e-12 : kInfinity;
  dirty_flows_.push_back(flow);
}

// What the flow could have if nobody else were there on the links it has to itself.
double FlowNetwork::own_limit(Slot flow) const {
  double limit = cap_[flow];
  const std::uint32_t begin = use_begin_[flow], end = begin + use_count_[flow];
  for (std::uint32_t use = begin; use < end; ++use) {
    const std::uint32_t link = use_link_[use];
    if (users_[link].size() == 1) limit = std::min(limit, capacity_[link] / use_factor_[use]);
  }
  return limit;
}

Time FlowNetwork::next_end() {
  if (!dirty_.empty() || !dirty_flows_.empty()) solve();
  return leaves_ == 0 ? Time::kMax : Time::from_ps(tree_[1]);
}

void FlowNetwork::end_due(Time now, std::vector<std::uint32_t>& tags) {
  check(now >= now_, "time does not run backwards");
  next_end();
  now_ = now;
  if (leaves_ == 0 || tree_[1] > now.ps()) return;
  // Depth first to the left finds the due leaves in the order of their slots.
  fixing_.clear();
  fixing_.push_back(1);
  flows_.clear();
  while (!fixing_.empty()) {
    const std::uint32_t node = fixing_.back();
    fixing_.pop_back();
    if (node >= leaves_) {
      flows_.push_back(static_cast<Slot>(node - leaves_));
      continue;
    }
    for (const std::uint32_t child : {2 * node + 1, 2 * node}) {
      if (tree_[child] == kNever) continue;
      if (tree_[child] <= now.ps()) {
        fixing_.push_back(child);
        continue;
      }
      // Not due yet, unless less than a byte is left.
      if (child >= leaves_ && rate_[child - leaves_] * static_cast<double>(tree_[child] - now.ps()) < 1.0)
        fixing_.push_back(child);
      else if (child < leaves_ && tree_[child] - now.ps() < 1000)
        fixing_.push_back(child);
    }
  }
  for (const Slot flow : flows_) {
    detach(flow);
    tags.push_back(tag_[flow]);
    --running_;
    rate_[flow] = 0;
    if (free_.size() <= use_count_[flow]) free_.resize(use_count_[flow] + 1);
    free_[use_count_[flow]].push_back(flow);
    tree_[leaves_ + flow] = kNever;
    rescheduled_.push_back(flow);
  }
  refresh_tree();
}

// Brings the inner nodes of the tournament up to date with the leaves of rescheduled_.
void FlowNetwork::refresh_tree() {
  if (rescheduled_.size() * 8 > leaves_) {
    for (std::size_t i = leaves_ - 1; i > 0; --i) tree_[i] = std::min(tree_[2 * i], tree_[2 * i + 1]);
  } else {
    for (const Slot flow : rescheduled_) {
      for (std::size_t i = (leaves_ + flow) / 2; i > 0; i /= 2) {
        const std::int64_t earliest = std::min(tree_[2 * i], tree_[2 * i + 1]);
        if (tree_[i] == earliest) break;
        tree_[i] = earliest;
      }
    }
  }
  rescheduled_.clear();
}

void FlowNetwork::solve() {
  collect();
  solved_flows_ += flows_.size();
  fill();
  refresh_tree();
}

// Everything that shared links connect to the changes: flows_ and links_.
void FlowNetwork::collect() {
  ++mark_;
  links_.clear();
  flows_.clear();
  const auto reach_link = [this](std::uint32_t link) {
    if (link_mark_[link] == mark_ || users_[link].size() < 2) return;
    link_mark_[link] = mark_;
    links_.push_back(link);
    left_[link] = capacity_[link];
    weight_[link] = 0;
    open_[link] = static_cast<std::uint32_t>(users_[link].size());
  };
  const auto reach_flow = [this](Slot flow) {
    if (flow_mark_[flow] == mark_) return;
    flow_mark_[flow] = mark_;
    flows_.push_back(flow);
  };
  for (const std::uint32_t link : dirty_) {
    reach_link(link);
    // A link that only one flow is left on has become that flow's own.
    if (users_[link].size() == 1) reach_flow(users_[link].front().flow);
  }
  for (const Slot flow : dirty_flows_) reach_flow(flow);
  dirty_.clear();
  dirty_flows_.clear();
  std::size_t next_link = 0, next_flow = 0;
  while (next_link < links_.size() || next_flow < flows_.size()) {
    while (next_flow < flows_.size()) {
      const Slot flow = flows_[next_flow++];
      const std::uint32_t begin = use_begin_[flow], end = begin + use_count_[flow];
      for (std::uint32_t use = begin; use < end; ++use) {
        const std::uint32_t link = use_link_[use];
        reach_link(link);
        weight_[link] += use_factor_[use];
      }
    }
    while (next_link < links_.size() && next_flow == flows_.size())
      for (const LinkEntry& entry : users_[links_[next_link++]]) reach_flow(entry.flow);
  }
}

// Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): the link with the lowest fair share
// bounds all its flows; take them out and go on.
void FlowNetwork::fill() {
  limits_.clear();
  double lowest_limit = kInfinity;
  for (const Slot flow : flows_) {
    const double limit = own_limit(flow);
    lowest_limit = std::min(lowest_limit, limit);
    limits_.emplace_back(limit, flow);
  }
  if (links_.empty()) {
    for (const auto& [limit, flow] : limits_) set_rate(flow, limit);
    return;
  }
  heap_.clear();
  for (const std::uint32_t link : links_) heap_.emplace_back(left_[link] / weight_[link], link);
  const auto later = [](const auto& a, const auto& b) { return a > b; };
  std::make_heap(heap_.begin(), heap_.end(), later);
  ++mark_;  // from here on a flow with the mark has its rate
  std::size_t next_limit = 0;
  bool sorted = false;
  while (!heap_.empty()) {
    const auto [key, link] = heap_.front();
    if (open_[link] == 0) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      heap_.pop_back();
      continue;
    }
    const double level = std::max(left_[link] / weight_[link], key);
    if (level > key * kSameLevel) {  // others took less than their share here: the level has risen since
      std::pop_heap(heap_.begin(), heap_.end(), later);
      heap_.back().first = level;
      std::push_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    if (lowest_limit < level) {
      if (!sorted) {
        std::sort(limits_.begin(), limits_.end());
        sorted = true;
      }
      const bool any = limits_[next_limit].first < level;
      while (next_limit < limits_.size() && limits_[next_limit].first < level) {
        const auto [limit, flow] = limits_[next_limit++];
        if (flow_mark_[flow] != mark_) fix(flow, limit);
      }
      lowest_limit = next_limit < limits_.size() ? limits_[next_limit].first : kInfinity;
      if (any) continue;
    }
    for (const LinkEntry& entry : users_[link])
      if (flow_mark_[entry.flow] != mark_) fix(entry.flow, level);
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
  for (const auto& [limit, flow] : limits_)
    if (flow_mark_[flow] != mark_) set_rate(flow, limit);
}

void FlowNetwork::fix(Slot flow, double rate) {
  flow_mark_[flow] = mark_;
  const std::uint32_t begin = use_begin_[flow], end = begin + use_count_[flow];
  for (std::uint32_t use = begin; use < end; ++use) {
    const std::uint32_t link = use_link_[use];
    left_[link] -= rate * use_factor_[use];
    weight_[link] -= use_factor_[use];
    --open_[link];
  }
  set_rate(flow, rate);
}

void FlowNetwork::set_rate(Slot flow, double rate) {
  if (rate == rate_[flow]) return;
  settle(flow, now_);
  rate_[flow] = rate;
  schedule(flow);
}

void FlowNetwork::settle(Slot flow, Time now) {
  const auto passed = static_cast<double>((now - updated_[flow]).ps());
  remaining_[flow] = std::max(0.0, remaining_[flow] - rate_[flow] * passed);
  updated_[flow] = now;
}

void FlowNetwork::schedule(Slot flow) {
  const double needs = std::ceil(remaining_[flow] / rate_[flow]);
  check(needs < 4e18, "a flow ends within the range of time");
  tree_[leaves_ + flow] = updated_[flow].ps() + static_cast<std::int64_t>(needs);
  rescheduled_.push_back(flow);
}

}  // namespace moesim::sim

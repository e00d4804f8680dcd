#include "sim/network/flows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sim/graph/time.h"

namespace moesim::sim {

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Fair shares closer than this are one bottleneck.
constexpr double kSameLevel = 1.0 + 1e-12;
// A link with less than this share of its capacity free counts as saturated.
constexpr double kFull = 1.0 - 1e-9;
// Scanning all links finds the next bottleneck so many times; if more than kFewLinks are left then, a heap
// does.
constexpr std::size_t kFewRounds = 4;
constexpr std::size_t kFewLinks = 32;
// More limits than this are sorted to find the next one.
constexpr std::size_t kFewLimits = 64;
// Flows that end within this time (ps) are checked for ending together with one that is due.
constexpr std::int64_t kSoon = 1000;

}  // namespace

FlowNetwork::FlowNetwork(std::span<const double> capacities) {
  links_.reserve(capacities.size());
  for (const double capacity : capacities) {
    check(capacity > 0 && std::isfinite(capacity), "a link has a capacity");
    links_.push_back({.capacity = capacity * 1e-12, .users = {}});
  }
}

FlowNetwork::Slot FlowNetwork::take_slot(std::size_t uses) {
  if (uses < free_.size() && !free_[uses].empty()) {
    const Slot slot = free_[uses].back();
    free_[uses].pop_back();
    return slot;
  }
  const auto slot = static_cast<Slot>(flows_.size());
  Flow flow;
  flow.use_begin = static_cast<std::uint32_t>(uses_.size());
  flow.use_end = static_cast<std::uint32_t>(uses_.size() + uses);
  flows_.push_back(flow);
  uses_.resize(uses_.size() + uses);
  if (flows_.size() > leaves_) {
    const std::size_t leaves = std::max<std::size_t>(64, 2 * leaves_);
    std::vector<std::int64_t> tree(2 * leaves, kNever);
    std::copy(tree_.begin() + static_cast<std::ptrdiff_t>(leaves_), tree_.end(),
              tree.begin() + static_cast<std::ptrdiff_t>(leaves));
    leaves_ = leaves;
    tree_ = std::move(tree);
    for (std::size_t i = leaves_ - 1; i > 0; --i) tree_[i] = std::min(tree_[2 * i], tree_[2 * i + 1]);
  }
  return slot;
}

void FlowNetwork::touch(std::uint32_t link) {
  if (links_[link].dirty) return;
  links_[link].dirty = true;
  dirty_links_.push_back(link);
}

FlowNetwork::Slot FlowNetwork::start(Time now, std::span<const LinkShare> shares, double bytes, double cap,
                                     std::uint32_t tag) {
  check(now >= now_, "time does not run backwards");
  check(bytes >= 0 && cap >= 0 && (cap > 0 || !shares.empty()), "a flow has bytes, and a link or a cap");
  now_ = now;
  const Slot slot = take_slot(shares.size());
  Flow& flow = flows_[slot];
  flow.bytes = flow.remaining = bytes;
  flow.cap = cap > 0 ? cap * 1e-12 : kInfinity;
  flow.rate = 0;
  flow.updated = now;
  flow.tag = tag;
  ++running_;
  Use* use = uses_.data() + flow.use_begin;
  for (const LinkShare& share : shares) {
    Link& link = links_[share.link];
    const bool alone = link.users.empty();
    if (link.users.size() == 1) {
      Use& other = uses_[link.users.front().use];
      other.alone = false;
      link.load = flows_[link.users.front().flow].rate * other.factor;
    }
    *use = {share.link, static_cast<std::uint32_t>(link.users.size()), share.factor,
            link.capacity / share.factor, alone};
    link.users.push_back({slot, static_cast<std::uint32_t>(use - uses_.data())});
    ++use;
  }
  dirty_flows_.push_back(slot);
  return slot;
}

void FlowNetwork::detach(Slot slot) {
  const Flow& flow = flows_[slot];
  for (std::uint32_t u = flow.use_begin; u < flow.use_end; ++u) {
    const Use& use = uses_[u];
    Link& link = links_[use.link];
    link.carried += flow.bytes * use.factor;
    if (use.alone) {
      link.users.clear();
      continue;
    }
    if (link.load >= link.capacity * kFull) touch(use.link);
    link.load -= flow.rate * use.factor;
    const User last = link.users.back();
    link.users[use.place] = last;
    uses_[last.use].place = use.place;
    link.users.pop_back();
    if (link.users.size() == 1) uses_[link.users.front().use].alone = true;
  }
}

void FlowNetwork::set_cap(Time now, Slot flow, double cap) {
  check(now >= now_, "time does not run backwards");
  now_ = now;
  flows_[flow].cap = cap > 0 ? cap * 1e-12 : kInfinity;
  dirty_flows_.push_back(flow);
}

Time FlowNetwork::next_end() {
  if (!dirty_links_.empty() || !dirty_flows_.empty()) solve();
  return leaves_ == 0 || tree_[1] == kNever ? Time::kMax : Time::from_ps(tree_[1]);
}

void FlowNetwork::end_due(Time now, std::vector<std::uint32_t>& tags) {
  check(now >= now_, "time does not run backwards");
  next_end();
  now_ = now;
  if (leaves_ == 0 || tree_[1] > now.ps()) return;
  // Depth first to the left finds the due leaves in slot order.
  stack_.clear();
  stack_.push_back(1);
  while (!stack_.empty()) {
    const std::uint32_t node = stack_.back();
    stack_.pop_back();
    if (node < leaves_) {
      for (const std::uint32_t child : {2 * node + 1, 2 * node})
        if (tree_[child] <= now.ps() || tree_[child] - now.ps() < kSoon) stack_.push_back(child);
      continue;
    }
    const auto slot = static_cast<Slot>(node - leaves_);
    Flow& flow = flows_[slot];
    if (tree_[node] > now.ps() && flow.rate * static_cast<double>(tree_[node] - now.ps()) >= 1.0) continue;
    detach(slot);
    tags.push_back(flow.tag);
    --running_;
    const std::size_t uses = flow.use_end - flow.use_begin;
    if (free_.size() <= uses) free_.resize(uses + 1);
    free_[uses].push_back(slot);
    tree_[node] = kNever;
    rescheduled_.push_back(slot);
  }
  refresh_tree();
}

// Updates the inner nodes of the tournament tree from the leaves of rescheduled_.
void FlowNetwork::refresh_tree() {
  if (rescheduled_.size() * 8 > leaves_) {
    for (std::size_t i = leaves_ - 1; i > 0; --i) tree_[i] = std::min(tree_[2 * i], tree_[2 * i + 1]);
  } else {
    for (const Slot slot : rescheduled_) {
      for (std::size_t i = (leaves_ + slot) / 2; i > 0; i /= 2) {
        const std::int64_t earliest = std::min(tree_[2 * i], tree_[2 * i + 1]);
        if (tree_[i] == earliest) break;
        tree_[i] = earliest;
      }
    }
  }
  rescheduled_.clear();
}

void FlowNetwork::solve() {
  ++mark_;
  reached_links_.clear();
  reached_flows_.clear();
  limits_.clear();
  for (const std::uint32_t id : dirty_links_) {
    links_[id].dirty = false;
    if (links_[id].users.size() > 1) reach_link(id, true);
    if (links_[id].users.size() == 1) reach_flow(links_[id].users.front().flow);
  }
  for (const Slot slot : dirty_flows_) reach_flow(slot);
  dirty_links_.clear();
  dirty_flows_.clear();
  do {
    expand();
    fill();
  } while (drag_others());
  for (const Slot slot : reached_flows_) set_rate(flows_[slot], slot, flows_[slot].next_rate);
  refresh_tree();
}

void FlowNetwork::reach_link(std::uint32_t id, bool whole) {
  Link& link = links_[id];
  if (link.mark != mark_) {
    link.mark = mark_;
    link.whole = false;
    link.solved = 0;
    link.weight = 0;
    link.offer = link.capacity - link.load;
    reached_links_.push_back(id);
  }
  if (whole && !link.whole) {
    link.whole = true;
    whole_links_.push_back(id);
  }
}

void FlowNetwork::reach_flow(Slot slot) {
  Flow& flow = flows_[slot];
  if (flow.mark == mark_) return;
  flow.mark = mark_;
  reached_flows_.push_back(slot);
  double limit = flow.cap;
  for (std::uint32_t u = flow.use_begin; u < flow.use_end; ++u) {
    const Use& use = uses_[u];
    if (use.alone) {
      limit = std::min(limit, use.limit);
      continue;
    }
    Link& link = links_[use.link];
    reach_link(use.link, link.load >= link.capacity * kFull);
    ++link.solved;
    link.weight += use.factor;
    link.offer += flow.rate * use.factor;
  }
  limits_.emplace_back(limit, slot);
}

// Reaches all users of whole links.
void FlowNetwork::expand() {
  while (!whole_links_.empty()) {
    const Link& link = links_[whole_links_.back()];
    whole_links_.pop_back();
    for (const User& user : link.users) reach_flow(user.flow);
  }
}

// Where a link now bounds flows to a share that users outside the solution exceed, these must be solved too.
bool FlowNetwork::drag_others() {
  for (const auto& [share, id] : tight_) {
    const Link& link = links_[id];
    if (link.whole || link.solved == link.users.size()) continue;
    for (const User& user : link.users) {
      const Flow& flow = flows_[user.flow];
      if (flow.mark == mark_ || flow.rate <= share * kSameLevel) continue;
      reach_link(id, true);
      break;
    }
  }
  return !whole_links_.empty();
}

// Fixes flows with a limit below `level` at that limit. Returns true when there were any.
bool FlowNetwork::fix_limited(double level) {
  if (lowest_limit_ >= level) return false;
  bool any = false;
  if (limits_.size() <= kFewLimits) {
    lowest_limit_ = kInfinity;
    for (const auto& [limit, slot] : limits_) {
      if (flows_[slot].fixed == filling_) continue;
      if (limit < level) {
        fix(slot, limit);
        any = true;
      } else {
        lowest_limit_ = std::min(lowest_limit_, limit);
      }
    }
    return any;
  }
  if (next_limit_ == 0) std::sort(limits_.begin(), limits_.end());
  for (; next_limit_ < limits_.size() && limits_[next_limit_].first < level; ++next_limit_) {
    const auto [limit, slot] = limits_[next_limit_];
    if (flows_[slot].fixed == filling_) continue;
    fix(slot, limit);
    any = true;
  }
  lowest_limit_ = next_limit_ < limits_.size() ? limits_[next_limit_].first : kInfinity;
  return any;
}

// Fixes the link's open users at `level`.
void FlowNetwork::fix_users(std::uint32_t id, double level) {
  tight_.emplace_back(level, id);
  for (const User& user : links_[id].users) {
    const Flow& flow = flows_[user.flow];
    if (flow.mark == mark_ && flow.fixed != filling_) fix(user.flow, level);
  }
}

// Scans all links for the lowest fair share repeatedly; links with equal shares are fixed in one round. Stops
// after `rounds`, and keeps links with open users in shares_.
void FlowNetwork::fill_by_rounds(std::size_t rounds) {
  while (rounds-- > 0 && !shares_.empty()) {
    double lowest = kInfinity;
    std::size_t kept = 0;
    for (const auto& [key, id] : shares_) {
      const Link& link = links_[id];
      if (link.open == 0) continue;
      const double level = std::max(link.left / link.open_weight, key);  // shares only rise
      lowest = std::min(lowest, level);
      shares_[kept++] = {level, id};
    }
    shares_.resize(kept);
    if (fix_limited(lowest)) continue;
    for (const auto& [level, id] : shares_)
      if (level <= lowest * kSameLevel && links_[id].open > 0) fix_users(id, level);
  }
}

// Fills by a heap, for many links with many different shares.
void FlowNetwork::fill_by_heap() {
  const auto later = [](const auto& a, const auto& b) { return a > b; };
  std::make_heap(shares_.begin(), shares_.end(), later);
  while (!shares_.empty()) {
    std::pop_heap(shares_.begin(), shares_.end(), later);
    const auto [key, id] = shares_.back();
    const Link& link = links_[id];
    if (link.open == 0) {
      shares_.pop_back();
      continue;
    }
    // A share may have risen since it was computed.
    const double level = std::max(link.left / link.open_weight, key);
    if (level > key * kSameLevel || fix_limited(level)) {
      shares_.back().first = level;
      std::push_heap(shares_.begin(), shares_.end(), later);
      continue;
    }
    fix_users(id, level);
    shares_.pop_back();
  }
}

// Progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): the link with the lowest fair share
// bounds all its flows; removes them and repeats.
void FlowNetwork::fill() {
  ++filling_;
  tight_.clear();
  shares_.clear();
  for (const std::uint32_t id : reached_links_) {
    Link& link = links_[id];
    link.open = link.solved;
    link.open_weight = link.weight;
    link.left = link.offer;
    if (link.open > 0) shares_.emplace_back(0.0, id);
  }
  lowest_limit_ = kInfinity;
  next_limit_ = 0;
  for (const auto& [limit, slot] : limits_) lowest_limit_ = std::min(lowest_limit_, limit);
  fill_by_rounds(kFewRounds);
  if (shares_.size() <= kFewLinks)
    fill_by_rounds(std::numeric_limits<std::size_t>::max());
  else
    fill_by_heap();
  for (const auto& [limit, slot] : limits_)
    if (flows_[slot].fixed != filling_) fix(slot, limit);
}

void FlowNetwork::fix(Slot slot, double rate) {
  Flow& flow = flows_[slot];
  flow.fixed = filling_;
  flow.next_rate = rate;
  for (std::uint32_t u = flow.use_begin; u < flow.use_end; ++u) {
    const Use& use = uses_[u];
    if (use.alone) continue;
    Link& link = links_[use.link];
    link.left -= rate * use.factor;
    link.open_weight -= use.factor;
    --link.open;
  }
}

void FlowNetwork::set_rate(Flow& flow, Slot slot, double rate) {
  if (rate == flow.rate) return;
  for (std::uint32_t u = flow.use_begin; u < flow.use_end; ++u)
    if (!uses_[u].alone) links_[uses_[u].link].load += (rate - flow.rate) * uses_[u].factor;
  const auto passed = static_cast<double>((now_ - flow.updated).ps());
  flow.remaining = std::max(0.0, flow.remaining - flow.rate * passed);
  flow.updated = now_;
  flow.rate = rate;
  const double needs = std::ceil(flow.remaining / rate);
  // Out of range, alone or after earlier time.
  check_clock(needs < static_cast<double>(kLastPs) ? now_.ps() + static_cast<std::int64_t>(needs)
                                                   : std::numeric_limits<std::int64_t>::max());
  tree_[leaves_ + slot] = now_.ps() + static_cast<std::int64_t>(needs);
  rescheduled_.push_back(slot);
}

}  // namespace moesim::sim

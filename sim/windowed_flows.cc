#include "sim/windowed_flows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"

namespace moesim::sim {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Relaxation stops when no share moves by more than this fraction, or after so many rounds.
constexpr double kSettled = 0.1;
constexpr int kMostRounds = 3;
// More starts than this fraction of the running flows close a window early.
constexpr double kManyStarts = 0.125;
// A link gives back at most this fraction of its capacity in one window.
constexpr double kMostReturned = 0.5;
constexpr double kSame = 1.0 - 1e-9;

}  // namespace

WindowedFlowNetwork::WindowedFlowNetwork(std::span<const double> capacities, double window)
    : share_(capacities.size()),
      account_(capacities.size()),
      offered_(capacities.size()),
      load_(capacities.size()),
      moment_(capacities.size()),
      bound_(capacities.size()),
      elsewhere_(capacities.size()),
      largest_(capacities.size()),
      carried_(capacities.size()),
      users_(capacities.size()),
      window_(window) {
  check(window > 0 && window < 1, "a window is a fraction of the remaining time");
  for (const double capacity : capacities) {
    check(capacity > 0 && std::isfinite(capacity), "a link has a capacity");
    capacity_.push_back(capacity * 1e-12);
  }
  share_ = offered_ = capacity_;
}

std::uint32_t WindowedFlowNetwork::start(Time now, std::span<const LinkShare> shares, double bytes,
                                         double cap, std::uint32_t tag) {
  check(now >= now_, "time does not run backwards");
  check(bytes >= 0 && cap >= 0 && (cap > 0 || !shares.empty()), "a flow has bytes, and a link or a cap");
  check(shares.size() < 65536, "a flow's links fit in 16 bits");
  now_ = now;
  std::uint32_t flow = 0;
  if (shares.size() < free_.size() && !free_[shares.size()].empty()) {
    flow = free_[shares.size()].back();
    free_[shares.size()].pop_back();
  } else {
    flow = static_cast<std::uint32_t>(rate_.size());
    rate_.push_back(0);
    remaining_.push_back(0);
    bytes_.push_back(0);
    cap_.push_back(0);
    since_.emplace_back();
    tag_.push_back(0);
    use_begin_.push_back(static_cast<std::uint32_t>(uses_.size()));
    use_count_.push_back(static_cast<std::uint16_t>(shares.size()));
    running_.push_back(0);
    uses_.resize(uses_.size() + shares.size());
  }
  bytes_[flow] = remaining_[flow] = bytes;
  cap_[flow] = cap > 0 ? cap * 1e-12 : kInfinity;
  since_[flow] = now;
  tag_[flow] = tag;
  running_[flow] = 1;
  Use* use = uses_.data() + use_begin_[flow];
  double rate = cap_[flow];
  for (const LinkShare& share : shares) {
    *use++ = {share.link, static_cast<float>(share.factor)};
    rate = std::min(rate, share_[share.link] / share.factor);
    ++users_[share.link];
  }
  rate_[flow] = rate;
  change_load(flow, rate);
  active_.push_back(flow);
  ++live_;
  ++started_;
  if (static_cast<double>(started_) > kManyStarts * static_cast<double>(live_)) stale_ = true;
  if (stale_) return flow;
  const Time end = now + Time::from_ps(static_cast<std::int64_t>(std::min(1e18, std::ceil(bytes / rate))));
  if (end <= window_end_) {
    due_.push_back({end, flow});
    std::push_heap(due_.begin(), due_.end(), std::greater<>());
  }
  return flow;
}

void WindowedFlowNetwork::set_cap(Time now, std::uint32_t flow, double cap) {
  check(now >= now_, "time does not run backwards");
  now_ = now;
  cap_[flow] = cap > 0 ? cap * 1e-12 : kInfinity;
  stale_ = true;
}

Time WindowedFlowNetwork::next_end() {
  if (stale_) open_window();
  if (live_ == 0) return Time::kMax;
  return due_.empty() ? window_end_ : std::min(due_.front().when, window_end_);
}

void WindowedFlowNetwork::end_due(Time now, std::vector<std::uint32_t>& tags) {
  check(now >= now_, "time does not run backwards");
  if (stale_) open_window();
  now_ = now;
  while (!due_.empty() && due_.front().when <= now) {
    std::pop_heap(due_.begin(), due_.end(), std::greater<>());
    const std::uint32_t flow = due_.back().flow;
    due_.pop_back();
    running_[flow] = 0;
    --live_;
    tags.push_back(tag_[flow]);
    change_load(flow, -rate_[flow]);
    const Use* use = uses_.data() + use_begin_[flow];
    for (std::uint16_t u = 0; u < use_count_[flow]; ++u) {
      carried_[use[u].link] += bytes_[flow] * use[u].factor;
      --users_[use[u].link];
    }
  }
  if (live_ > 0 && now >= window_end_) stale_ = true;
}

// The flow's links carry `rate` more from now on.
void WindowedFlowNetwork::change_load(std::uint32_t flow, double rate) {
  const auto passed = static_cast<double>((now_ - window_start_).ps());
  const Use* use = uses_.data() + use_begin_[flow];
  for (std::uint16_t u = 0; u < use_count_[flow]; ++u) {
    load_[use[u].link] += rate * use[u].factor;
    moment_[use[u].link] += rate * use[u].factor * passed;
  }
}

// Brings the remaining bytes of the running flows up to now and forgets the ended ones.
void WindowedFlowNetwork::settle() {
  std::size_t kept = 0;
  for (const std::uint32_t flow : active_) {
    if (running_[flow] == 0) {
      if (free_.size() <= use_count_[flow]) free_.resize(use_count_[flow] + std::size_t{1});
      free_[use_count_[flow]].push_back(flow);
      continue;
    }
    remaining_[flow] =
        std::max(0.0, remaining_[flow] - rate_[flow] * static_cast<double>((now_ - since_[flow]).ps()));
    since_[flow] = now_;
    active_[kept++] = flow;
  }
  active_.resize(kept);
}

// One round: rates from shares, then shares from rates. Returns the largest relative change of a share.
double WindowedFlowNetwork::relax() {
  std::fill(load_.begin(), load_.end(), 0.0);
  std::fill(bound_.begin(), bound_.end(), 0.0);
  std::fill(elsewhere_.begin(), elsewhere_.end(), 0.0);
  std::fill(largest_.begin(), largest_.end(), 0.0);
  for (const std::uint32_t flow : active_) {
    const Use* use = uses_.data() + use_begin_[flow];
    const std::uint16_t count = use_count_[flow];
    double rate = cap_[flow];
    for (std::uint16_t u = 0; u < count; ++u) rate = std::min(rate, share_[use[u].link] / use[u].factor);
    rate_[flow] = rate;
    for (std::uint16_t u = 0; u < count; ++u) {
      const std::uint32_t link = use[u].link;
      const double load = rate * use[u].factor;
      load_[link] += load;
      if (load >= share_[link] * kSame) {
        bound_[link] += use[u].factor;
      } else {
        elsewhere_[link] += load;
        largest_[link] = std::max(largest_[link], load);
      }
    }
  }
  double change = 0;
  for (std::size_t link = 0; link < share_.size(); ++link) {
    if (users_[link] == 0) {
      share_[link] = offered_[link];
      continue;
    }
    // Nobody held back here: one flow more or a flow set free elsewhere could have what is left.
    double share = bound_[link] > 0 ? (offered_[link] - elsewhere_[link]) / bound_[link]
                                    : offered_[link] - elsewhere_[link] + largest_[link];
    share = std::max(share, offered_[link] / static_cast<double>(users_[link]));
    if (bound_[link] > 0) change = std::max(change, std::abs(share - share_[link]) / share_[link]);
    change = std::max(change, load_[link] / offered_[link] - 1.0);
    share_[link] = share;
  }
  return change;
}

void WindowedFlowNetwork::open_window() {
  const auto passed = static_cast<double>((now_ - window_start_).ps());
  for (std::size_t link = 0; link < share_.size(); ++link) {
    // load x passed would be right if everything had run since the window opened; the moment takes back the
    // rest.
    const double moved = load_[link] * passed - moment_[link];
    account_[link] = bound_[link] > 0 ? account_[link] + capacity_[link] * passed - moved : 0.0;
    moment_[link] = 0;
  }
  settle();
  stale_ = false;
  started_ = 0;
  due_.clear();
  window_start_ = window_end_ = now_;
  if (live_ == 0) return;
  double remaining_time = 0;
  for (const std::uint32_t flow : active_) remaining_time += remaining_[flow] / rate_[flow];
  const double length = std::max(1.0, window_ * remaining_time / static_cast<double>(live_));
  window_end_ = now_ + Time::from_ps(static_cast<std::int64_t>(length));
  for (std::size_t link = 0; link < share_.size(); ++link) {
    const double most = kMostReturned * capacity_[link];
    offered_[link] = capacity_[link] + std::clamp(account_[link] / length, -most, most);
  }
  int rounds = 0;
  while (relax() > kSettled && ++rounds < kMostRounds) {
  }
  for (const std::uint32_t flow : active_) {
    const double needs = std::ceil(remaining_[flow] / rate_[flow]);
    if (needs <= length) due_.push_back({now_ + Time::from_ps(static_cast<std::int64_t>(needs)), flow});
  }
  std::make_heap(due_.begin(), due_.end(), std::greater<>());
}

}  // namespace moesim::sim

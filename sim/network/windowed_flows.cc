#include "sim/network/windowed_flows.h"

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
// Lower bound of the mean remaining time that sets the windows, as a fraction of the flows' total time.
constexpr double kLeastRemaining = 0.125;
// More starts than this fraction of the running flows close a window early.
constexpr double kManyStarts = 0.125;
// A link returns at most this fraction of its capacity in one window.
constexpr double kMostReturned = 0.5;
constexpr double kSame = 1.0 - 1e-9;

}  // namespace

WindowedFlowNetwork::WindowedFlowNetwork(std::span<const double> capacities, double window)
    : window_(window) {
  check(window > 0 && window < 1, "a window is a fraction of the remaining time");
  for (const double capacity : capacities) {
    check(capacity > 0 && std::isfinite(capacity), "a link has a capacity");
    Link link;
    link.capacity = link.share = link.offered = capacity * 1e-12;
    links_.push_back(link);
  }
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
    rate = std::min(rate, links_[share.link].share / share.factor);
    ++links_[share.link].users;
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
      links_[use[u].link].carried += bytes_[flow] * use[u].factor;
      --links_[use[u].link].users;
    }
  }
  if (live_ > 0 && now >= window_end_) stale_ = true;
}

// Adds `rate` to the load of the flow's links from now on.
void WindowedFlowNetwork::change_load(std::uint32_t flow, double rate) {
  const auto passed = static_cast<double>((now_ - window_start_).ps());
  const Use* use = uses_.data() + use_begin_[flow];
  for (std::uint16_t u = 0; u < use_count_[flow]; ++u) {
    links_[use[u].link].load += rate * use[u].factor;
    links_[use[u].link].moment += rate * use[u].factor * passed;
  }
}

// Updates the remaining bytes of the running flows to now and drops the ended ones.
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
  for (Link& link : links_) link.load = link.bound = link.elsewhere = link.largest = 0;
  for (const std::uint32_t flow : active_) {
    const Use* use = uses_.data() + use_begin_[flow];
    const std::uint16_t count = use_count_[flow];
    double rate = cap_[flow];
    for (std::uint16_t u = 0; u < count; ++u) {
      const double share = links_[use[u].link].share;
      if (share < rate * use[u].factor) rate = share / use[u].factor;
    }
    rate_[flow] = rate;
    for (std::uint16_t u = 0; u < count; ++u) {
      Link& link = links_[use[u].link];
      const double load = rate * use[u].factor;
      link.load += load;
      if (load >= link.share * kSame) {
        link.bound += use[u].factor;
      } else {
        link.elsewhere += load;
        link.largest = std::max(link.largest, load);
      }
    }
  }
  double change = 0;
  for (Link& link : links_) {
    if (link.users == 0) {
      link.share = link.offered;
      continue;
    }
    // Without bound flows, one more flow or a flow released elsewhere could have the rest.
    double share = link.bound > 0 ? (link.offered - link.elsewhere) / link.bound
                                  : link.offered - link.elsewhere + link.largest;
    share = std::max(share, link.offered / static_cast<double>(link.users));
    if (link.bound > 0) change = std::max(change, std::abs(share - link.share) / link.share);
    change = std::max(change, link.load / link.offered - 1.0);
    link.share = share;
  }
  return change;
}

void WindowedFlowNetwork::open_window() {
  const auto passed = static_cast<double>((now_ - window_start_).ps());
  const auto planned = static_cast<double>((window_end_ - window_start_).ps());
  for (Link& link : links_) {
    // load x passed holds if everything had run since the window opened; the moment corrects it.
    const double moved = link.load * passed - link.moment;
    const double balance = link.account + link.capacity * std::min(passed, planned) - moved;
    // Unused capacity is not saved up.
    link.account = link.bound > 0 && link.users > 0 ? balance : std::min(balance, 0.0);
    link.moment = 0;
  }
  settle();
  stale_ = false;
  started_ = 0;
  due_.clear();
  window_start_ = window_end_ = now_;
  if (live_ == 0) return;
  double remaining_time = 0, whole_time = 0;
  for (const std::uint32_t flow : active_) {
    const double per_byte = 1 / rate_[flow];
    remaining_time += remaining_[flow] * per_byte;
    whole_time += bytes_[flow] * per_byte;
  }
  // Windows that shrink with flows that end together would never reach their end.
  const double mean = std::max(remaining_time, kLeastRemaining * whole_time) / static_cast<double>(live_);
  const double length = std::max(1.0, window_ * mean);
  window_end_ = now_ + Time::from_ps(static_cast<std::int64_t>(length));
  for (Link& link : links_) {
    const double most = kMostReturned * link.capacity;
    link.offered = link.capacity + std::clamp(link.account / length, -most, most);
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

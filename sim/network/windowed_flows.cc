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
    flow = static_cast<std::uint32_t>(flows_.size());
    Flow& made = flows_.emplace_back();
    made.use_begin = static_cast<std::uint32_t>(uses_.size());
    made.use_count = static_cast<std::uint16_t>(shares.size());
    uses_.resize(uses_.size() + shares.size());
  }
  Flow& f = flows_[flow];
  f.bytes = f.remaining = bytes;
  f.cap = cap > 0 ? cap * 1e-12 : kInfinity;
  f.since = now;
  f.tag = tag;
  f.running = true;
  Use* use = uses_.data() + f.use_begin;
  double rate = f.cap;
  for (const LinkShare& share : shares) {
    *use++ = {share.link, static_cast<float>(share.factor)};
    rate = std::min(rate, links_[share.link].share / share.factor);
    ++links_[share.link].users;
  }
  f.rate = rate;
  change_load(f, rate);
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
  flows_[flow].cap = cap > 0 ? cap * 1e-12 : kInfinity;
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
    Flow& flow = flows_[due_.back().flow];
    due_.pop_back();
    flow.running = false;
    --live_;
    tags.push_back(flow.tag);
    change_load(flow, -flow.rate);
    for (const Use& use : uses_of(flow)) {
      links_[use.link].carried += flow.bytes * use.factor;
      --links_[use.link].users;
    }
  }
  if (live_ > 0 && now >= window_end_) stale_ = true;
}

// Adds `rate` to the load of the flow's links from now on.
void WindowedFlowNetwork::change_load(const Flow& flow, double rate) {
  const auto passed = static_cast<double>((now_ - window_start_).ps());
  for (const Use& use : uses_of(flow)) {
    links_[use.link].load += rate * use.factor;
    links_[use.link].moment += rate * use.factor * passed;
  }
}

// Updates the remaining bytes of the running flows to now and drops the ended ones.
void WindowedFlowNetwork::settle() {
  std::size_t kept = 0;
  for (const std::uint32_t id : active_) {
    Flow& flow = flows_[id];
    if (!flow.running) {
      if (free_.size() <= flow.use_count) free_.resize(flow.use_count + std::size_t{1});
      free_[flow.use_count].push_back(id);
      continue;
    }
    const auto passed = static_cast<double>((now_ - flow.since).ps());
    flow.remaining = std::max(0.0, flow.remaining - flow.rate * passed);
    flow.since = now_;
    active_[kept++] = id;
  }
  active_.resize(kept);
}

// One round: rates from shares, then shares from rates. Returns the largest relative change of a share.
double WindowedFlowNetwork::relax() {
  for (Link& link : links_) link.load = link.bound = link.elsewhere = link.largest = 0;
  for (const std::uint32_t id : active_) {
    Flow& flow = flows_[id];
    double rate = flow.cap;
    for (const Use& use : uses_of(flow)) {
      const double share = links_[use.link].share;
      if (share < rate * use.factor) rate = share / use.factor;
    }
    flow.rate = rate;
    for (const Use& use : uses_of(flow)) {
      Link& link = links_[use.link];
      const double load = rate * use.factor;
      link.load += load;
      if (load >= link.share * kSame) {
        link.bound += use.factor;
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
    const double per_byte = 1 / flows_[flow].rate;
    remaining_time += flows_[flow].remaining * per_byte;
    whole_time += flows_[flow].bytes * per_byte;
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
    const double needs = std::ceil(flows_[flow].remaining / flows_[flow].rate);
    if (needs <= length) due_.push_back({now_ + Time::from_ps(static_cast<std::int64_t>(needs)), flow});
  }
  std::make_heap(due_.begin(), due_.end(), std::greater<>());
}

}  // namespace moesim::sim

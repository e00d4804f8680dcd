#include "sim/run/flow_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/input_error.h"

namespace moesim::sim {

FlowCollectives::FlowCollectives(const TaskGraph& graph, const Prices& prices, const Fabric& fabric,
                                 double window, Router* router)
    : graph_(graph),
      prices_(prices),
      fabric_(fabric),
      router_(router ? *router : own_router_.emplace(fabric)),
      exact_(fabric.capacities()),
      step_flows_(graph.shape_count()) {
  if (graph.rank_count() > fabric.gpu_count())
    throw InputError(
        fmt::format("the job has {} ranks, the fabric {} GPUs", graph.rank_count(), fabric.gpu_count()));
  if (window > 0) windowed_.emplace(fabric.capacities(), window);
  if (!prices.overlap.empty()) {
    factor_.assign(graph.rank_count(), 1.0);
    flowing_.resize(graph.rank_count());
  }
}

namespace {

// Returns the index of an unused item.
template <class Item>
std::uint32_t take(std::vector<Item>& all, std::vector<std::uint32_t>& unused) {
  if (unused.empty()) {
    all.emplace_back();
    return static_cast<std::uint32_t>(all.size() - 1);
  }
  const std::uint32_t item = unused.back();
  unused.pop_back();
  return item;
}

}  // namespace

void FlowCollectives::begin(CollectiveId collective, Time now) {
  const std::uint32_t id = take(active_, free_active_);
  Active& a = active_[id];
  const std::uint32_t shape = graph_.shape_index(collective);
  a.collective = collective;
  a.shape = graph_.shape(shape);
  a.plan = &prices_.plan[shape];
  a.members_left = static_cast<std::uint32_t>(a.shape.members());
  a.step_flow = nullptr;
  if (a.plan->port_within > 0) {
    std::map<std::uint32_t, double> in_domain;
    for (const RankId rank : a.shape.ranks) in_domain[fabric_.domain(index(rank))] += 1;
    a.neighbours = 1;
    for (const auto& [domain, count] : in_domain) a.neighbours = std::max(a.neighbours, count - 1);
  }
  a.senders.assign(a.plan->port_across > 0 ? a.shape.members() : 0, 0);
  a.receivers = a.senders;
  Time delay = a.plan->launch;
  if (a.shape.op != CollectiveOp::all_to_all) {
    std::optional<StepFlow>& flow = step_flows_[shape];
    if (!flow) {
      flow = step_flow(a.shape, *a.plan, fabric_, router_);
      if (!flow->unreachable.empty())
        throw InputError(fmt::format("the fabric has no way from rank {} to rank {}",
                                     a.shape.ranks[flow->unreachable[0]].value(),
                                     a.shape.ranks[flow->unreachable[1]].value()));
    }
    a.step_flow = &*flow;
    if (a.plan->alone == Time::kZero) {
      const Time latency = a.plan->step > Time::kZero ? a.plan->step : flow->latency;
      delay += latency * static_cast<std::int64_t>(flow->steps);
    } else if (flow->bytes == 0) {
      delay = a.plan->alone;
    }
  }
  delays_.push(now, a.shape.members() == 1 ? Time::kZero : delay, {id, kWhole, 0});
}

Time FlowCollectives::next() {
  return std::min(delays_.next(), windowed_ ? windowed_->next_end() : exact_.next_end());
}

void FlowCollectives::advance(Time now, std::vector<TaskId>& ended) {
  ended_ = &ended;
  due_.clear();
  windowed_ ? windowed_->end_due(now, due_) : exact_.end_due(now, due_);
  for (const std::uint32_t tag : due_) {
    const Part part = parts_[tag];
    if (!factor_.empty()) {
      for_each_rank(part, [&](RankId rank) {
        auto& tags = flowing_[index(rank)];
        tags.erase(std::find(tags.begin(), tags.end(), tag));
      });
    }
    free_parts_.push_back(tag);
    finish(part, now);
  }
  delays_.pop_due(now, [&](const Part& part) {
    if (part.from == kWhole && active_[part.active].step_flow == nullptr)
      launch(part.active, now);
    else
      start_flow(part, now);
  });
  ended_ = nullptr;
}

// The launch latency of an all_to_all is over.
void FlowCollectives::launch(std::uint32_t id, Time now) {
  const auto g = static_cast<std::uint32_t>(active_[id].shape.members());
  if (g == 1) return end_member(id, 0);
  Active& a = active_[id];
  if (a.plan->algorithm == Algorithm::pairwise) {
    a.outstanding.assign(g, 0);
    a.step.assign(g, 0);
    for (std::uint32_t member = 0; member < g; ++member) reach_step(id, member, now);
  } else {
    a.outstanding.assign(g, 2 * (g - 1));
    for (std::uint32_t from = 0; from < g; ++from)
      for (std::uint32_t shift = 1; shift < g; ++shift) send(id, from, (from + shift) % g, now);
  }
}

// Pairwise: `member` enters its next step. A message starts when both its ends are there.
void FlowCollectives::reach_step(std::uint32_t id, std::uint32_t member, Time now) {
  Active& a = active_[id];
  const auto g = static_cast<std::uint32_t>(a.shape.members());
  const std::uint32_t step = ++a.step[member];
  if (step == g) return end_member(id, member);
  a.outstanding[member] = 2;
  const std::uint32_t to = member + step < g ? member + step : member + step - g;
  const std::uint32_t from = member >= step ? member - step : member + g - step;
  if (a.step[to] == step) send(id, member, to, now);
  if (a.step[from] == step) send(id, from, member, now);
}

void FlowCollectives::find_route(const Active& a, std::uint32_t from, std::uint32_t to) {
  const RankId sender = a.shape.ranks[from], receiver = a.shape.ranks[to];
  router_.find(index(sender), index(receiver), route_);
  if (!route_.reaches)
    throw InputError(
        fmt::format("the fabric has no way from rank {} to rank {}", sender.value(), receiver.value()));
}

void FlowCollectives::send(std::uint32_t id, std::uint32_t from, std::uint32_t to, Time now) {
  const Active& a = active_[id];
  Time latency = a.plan->step;
  if (a.plan->alone == Time::kZero) {
    if (latency == Time::kZero) {
      find_route(a, from, to);
      latency = route_.latency;
    }
  } else if (latency > Time::kZero && same_domain(a, from, to)) {
    latency = Time::kZero;
  }
  delays_.push(now, latency, {id, from, to});
}

bool FlowCollectives::same_domain(const Active& a, std::uint32_t from, std::uint32_t to) const {
  return fabric_.domain(index(a.shape.ranks[from])) == fabric_.domain(index(a.shape.ranks[to]));
}

// Returns how much longer a message occupies its links than its bytes alone: the port rate of a GPU is below
// its share of the port's link. Links between switches are no ports: less bandwidth there makes no port better.
double FlowCollectives::occupancy(Active& a, const Part& part) {
  const bool within = same_domain(a, part.from, part.to);
  double port = within ? a.plan->port_within : a.plan->port_across;
  if (port == 0) return 1.0;
  if (within && route_.links.size() == 1) port /= a.neighbours;  // a GPU has a link to each of them
  const auto is_switch = [&](std::uint32_t node) {
    const NodeKind kind = fabric_.nodes()[node].kind;
    return kind == NodeKind::leaf || kind == NodeKind::spine || kind == NodeKind::core;
  };
  std::array<std::optional<std::uint32_t>, 2> port_link;  // the tightest of the sender, of the receiver
  std::size_t side = 0;
  for (const std::uint32_t at : route_.links) {
    const FabricLink& link = fabric_.links()[at];
    if (is_switch(link.from)) side = 1;
    if (is_switch(link.from) && is_switch(link.to)) continue;
    std::optional<std::uint32_t>& tightest = port_link[side];
    if (!tightest || link.capacity < fabric_.links()[*tightest].capacity) tightest = at;
  }
  double rate = std::numeric_limits<double>::infinity();
  for (std::size_t end = 0; end < port_link.size(); ++end)
    if (port_link[end])
      rate = std::min(rate, fabric_.links()[*port_link[end]].capacity /
                                (within ? 1.0 : sharers(a, part, end == 0, *port_link[end])));
  return std::max(1.0, rate / port);
}

// Returns how many members of the sender's (or receiver's) domain send (or receive) through its port's link.
double FlowCollectives::sharers(Active& a, const Part& part, bool sender, std::uint32_t link) {
  const std::uint32_t member = sender ? part.from : part.to, other = sender ? part.to : part.from;
  std::uint32_t& count = (sender ? a.senders : a.receivers)[member];
  if (count > 0) return count;
  const std::size_t peer = index(a.shape.ranks[other]);
  for (std::uint32_t m = 0; m < a.shape.members(); ++m) {
    if (!same_domain(a, m, member)) continue;
    const std::size_t gpu = index(a.shape.ranks[m]);
    sender ? router_.find(gpu, peer, neighbours_route_) : router_.find(peer, gpu, neighbours_route_);
    count += std::ranges::find(neighbours_route_.links, link) != neighbours_route_.links.end() ? 1 : 0;
  }
  return count;
}

std::uint32_t FlowCollectives::start_in_network(Time now, double bytes, double cap, std::uint32_t tag) {
  return windowed_ ? windowed_->start(now, shares_, bytes, cap, tag)
                   : exact_.start(now, shares_, bytes, cap, tag);
}

void FlowCollectives::start_flow(const Part& part, Time now) {
  Active& a = active_[part.active];
  double bytes = 0, cap = 0;
  shares_.clear();
  if (part.from == kWhole) {
    bytes = a.step_flow->bytes;
    cap = a.step_flow->cap;
    shares_ = a.step_flow->shares;
    if (const Time moving = a.plan->alone - a.plan->launch; moving > Time::kZero) {
      const double alone = bytes / moving.seconds();
      cap = cap > 0 ? std::min(cap, alone) : alone;
    }
  } else {
    bytes = static_cast<double>(a.shape.traffic.between(part.from, part.to, a.shape.members())) /
            a.plan->efficiency;
    cap = a.plan->bandwidth;
    if (bytes > 0) {
      find_route(a, part.from, part.to);
      for (const std::uint32_t link : route_.links) shares_.push_back({link, 1.0});
      if (route_.cap > 0) cap = cap > 0 ? std::min(cap, route_.cap) : route_.cap;
      bytes *= occupancy(a, part);
    }
  }
  if (bytes == 0) return finish(part, now);
  const std::uint32_t tag = take(parts_, free_parts_);
  parts_[tag] = part;
  if (factor_.empty()) {
    start_in_network(now, bytes, cap, tag);
    return;
  }
  double most = cap;
  for (const LinkShare& share : shares_) {
    const double alone = fabric_.links()[share.link].capacity / share.factor;
    most = most > 0 ? std::min(most, alone) : alone;
  }
  flow_.resize(parts_.size());
  flow_[tag].most = most;
  flow_[tag].slot = start_in_network(now, bytes, most / slowdown(part), tag);
  for_each_rank(part, [&](RankId rank) { flowing_[index(rank)].push_back(tag); });
}

void FlowCollectives::finish(const Part& part, Time now) {
  Active& a = active_[part.active];
  if (part.from == kWhole) {
    const auto g = static_cast<std::uint32_t>(a.shape.members());
    for (std::uint32_t member = 0; member < g; ++member) end_member(part.active, member);
    return;
  }
  const bool pairwise = a.plan->algorithm == Algorithm::pairwise;
  for (const std::uint32_t member : {part.from, part.to}) {
    if (--a.outstanding[member] > 0) continue;
    pairwise ? reach_step(part.active, member, now) : end_member(part.active, member);
  }
}

void FlowCollectives::end_member(std::uint32_t id, std::uint32_t member) {
  Active& a = active_[id];
  ended_->push_back(graph_.members(a.collective)[member]);
  if (--a.members_left == 0) free_active_.push_back(id);
}

template <class Visit>
void FlowCollectives::for_each_rank(const Part& part, Visit&& visit) const {
  const auto ranks = active_[part.active].shape.ranks;
  if (part.from != kWhole) {
    visit(ranks[part.from]);
    visit(ranks[part.to]);
    return;
  }
  for (const RankId rank : ranks) visit(rank);
}

double FlowCollectives::slowdown(const Part& part) const {
  double result = 1.0;
  for_each_rank(part, [&](RankId rank) { result = std::max(result, factor_[index(rank)]); });
  return result;
}

void FlowCollectives::slow_down(RankId rank, double factor, Time now) {
  if (factor_[index(rank)] == factor) return;
  factor_[index(rank)] = factor;
  for (const std::uint32_t tag : flowing_[index(rank)]) {
    const double cap = flow_[tag].most / slowdown(parts_[tag]);
    windowed_ ? windowed_->set_cap(now, flow_[tag].slot, cap) : exact_.set_cap(now, flow_[tag].slot, cap);
  }
}

std::vector<LinkUse> FlowCollectives::link_use() const {
  std::vector<LinkUse> result;
  for (std::uint32_t link = 0; link < fabric_.links().size(); ++link)
    if (const double bytes = windowed_ ? windowed_->carried(link) : exact_.carried(link); bytes > 0)
      result.push_back({LinkId(link), bytes, 0});
  return result;
}

}  // namespace moesim::sim

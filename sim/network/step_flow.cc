#include "sim/network/step_flow.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "base/check.h"

namespace moesim::sim {

namespace {

class Load {
 public:
  Load(const CollectiveShape& shape, Router& router, StepFlow& flow)
      : shape_(shape), router_(router), flow_(flow) {}

  // Adds `bytes` from one member to another.
  void connect(std::size_t from, std::size_t to, double bytes) {
    if (bytes == 0) return;
    find(from, to);
    for (const std::uint32_t link : route_.links) bytes_[link] += bytes;
    note(bytes);
  }

  // Returns whether one link leads from a member to another, without a switch.
  bool linked_directly(std::size_t from, std::size_t to) {
    router_.find(index(shape_.ranks[from]), index(shape_.ranks[to]), route_);
    return route_.links.size() == 1;
  }

  // Adds `out` bytes from a member to the first switch towards `peer`, `in` bytes from that switch.
  void to_switch(std::size_t member, std::size_t peer, double out, double in) {
    find(member, peer);
    if (!route_.links.empty()) bytes_[route_.links.front()] += out;
    find(peer, member);
    if (!route_.links.empty()) bytes_[route_.links.back()] += in;
    note(std::max(out, in));
  }

  void finish(const FlowParameters& plan, const Fabric& fabric) {
    if (most_ == 0) return;
    double efficiency = plan.efficiency;
    if (plan.ports_busy > Time::kZero)
      efficiency = std::min(1.0, seconds_of_ports(fabric) / plan.ports_busy.seconds());
    flow_.bytes = most_ / efficiency;
    flow_.shares.reserve(bytes_.size());
    for (const auto& [link, bytes] : bytes_)
      if (bytes > 0) flow_.shares.push_back({link, bytes / most_});
  }

 private:
  void find(std::size_t from, std::size_t to) {
    router_.find(index(shape_.ranks[from]), index(shape_.ranks[to]), route_);
    if (!route_.reaches && flow_.unreachable.empty())
      flow_.unreachable = {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)};
    flow_.latency = std::max(flow_.latency, route_.latency);
    if (route_.cap > 0) flow_.cap = flow_.cap > 0 ? std::min(flow_.cap, route_.cap) : route_.cap;
  }

  // Returns the seconds that the bytes take on the busiest link of a GPU or of a NIC.
  double seconds_of_ports(const Fabric& fabric) const {
    const auto ends = [&](std::uint32_t node) {
      const NodeKind kind = fabric.nodes()[node].kind;
      return kind == NodeKind::gpu || kind == NodeKind::nic;
    };
    double longest = 0;
    for (const auto& [id, bytes] : bytes_) {
      const FabricLink& link = fabric.links()[id];
      if (ends(link.from) || ends(link.to)) longest = std::max(longest, bytes / link.capacity);
    }
    return longest;
  }

  void note(double bytes) { most_ = std::max(most_, bytes); }

  const CollectiveShape& shape_;
  Router& router_;
  StepFlow& flow_;
  Route route_;
  std::map<std::uint32_t, double> bytes_;  // by link
  double most_ = 0;                        // over one connection
};

using Domains = std::vector<std::vector<std::size_t>>;  // members by domain, in group order

Domains domains_of(const CollectiveShape& shape, const Fabric& fabric) {
  Domains domains;
  std::map<std::uint32_t, std::size_t> place;
  for (std::size_t i = 0; i < shape.members(); ++i) {
    const auto [entry, is_new] = place.try_emplace(fabric.domain(index(shape.ranks[i])), domains.size());
    if (is_new) domains.emplace_back();
    domains[entry->second].push_back(i);
  }
  return domains;
}

std::size_t smallest(const Domains& domains) {
  return std::ranges::min_element(domains, {}, &Domains::value_type::size)->size();
}

// Returns the order of ring `channel`: through each domain from its channel-th member on, through every other
// one in reverse, so that a ring enters a domain at the position where it left the previous one (the same
// rail).
std::vector<std::size_t> ring_order(const Domains& domains, std::size_t channel) {
  std::vector<std::size_t> order;
  bool forwards = true;
  for (const auto& domain : domains) {
    const std::size_t k = domain.size();
    for (std::size_t i = 0; i < k; ++i) order.push_back(domain[(channel + (forwards ? i : k - 1 - i)) % k]);
    forwards = !forwards;
  }
  return order;
}

// Returns the bytes that a ring over `order` carries from one member to the next, in all its steps together.
double ring_bytes(const CollectiveShape& shape, const std::vector<std::size_t>& order, std::size_t i) {
  const auto g = static_cast<double>(shape.members());
  const auto& traffic = shape.traffic;
  if (traffic.kind == Traffic::Kind::pieces) {
    double sum = 0;
    for (const std::uint64_t piece : traffic.pieces) sum += static_cast<double>(piece);
    // All-gather: everything but the successor's piece; reduce-scatter: everything but its own piece.
    const std::size_t without =
        shape.op == CollectiveOp::all_gather ? order[(i + 1) % order.size()] : order[i];
    return sum - static_cast<double>(traffic.pieces[without]);
  }
  const auto bytes = static_cast<double>(traffic.bytes);
  // A broadcast goes round once; nothing returns to its root, member 0.
  if (shape.op == CollectiveOp::broadcast) return order[(i + 1) % order.size()] == 0 ? 0 : bytes;
  return shape.op == CollectiveOp::all_reduce ? 2 * (g - 1) / g * bytes : (g - 1) * bytes;
}

// Adds a ring's hop inside a domain. Where GPUs are linked to each other there are as many rings as links per
// GPU, and together they load all links equally (a complete directed graph decomposes into Hamiltonian
// cycles).
void hop(const Domains& domains, std::size_t domain, std::size_t from, std::size_t to, double bytes,
         Load& load) {
  const auto& members = domains[domain];
  if (members.size() < 3 || !load.linked_directly(from, to)) return load.connect(from, to, bytes);
  const double share = bytes / static_cast<double>(members.size() - 1);
  for (const std::size_t other : members)
    if (other != from) load.connect(from, other, share);
}

void rings(const CollectiveShape& shape, const Domains& domains, Load& load) {
  const std::size_t channels = domains.size() > 1 ? smallest(domains) : 1;
  std::vector<std::size_t> domain_of(shape.members());
  for (std::size_t d = 0; d < domains.size(); ++d)
    for (const std::size_t member : domains[d]) domain_of[member] = d;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const std::vector<std::size_t> order = ring_order(domains, channel);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t from = order[i], to = order[(i + 1) % order.size()];
      const double bytes = ring_bytes(shape, order, i) / static_cast<double>(channels);
      if (domain_of[from] == domain_of[to])
        hop(domains, domain_of[from], from, to, bytes, load);
      else
        load.connect(from, to, bytes);
    }
  }
}

// Adds chains inside the domains and, between their heads, two binary trees with half the bytes each, so that
// every head is a leaf of one and an inner node of the other (Sanders, Speck, Traeff 2009; NCCL since 2.4).
void trees(const CollectiveShape& shape, const Domains& domains, Load& load) {
  const std::size_t channels = domains.size() > 1 ? smallest(domains) : 1;
  const double bytes = static_cast<double>(shape.traffic.bytes) / static_cast<double>(channels);
  const auto both_ways = [&](std::size_t a, std::size_t b, double each) {
    load.connect(a, b, each);
    load.connect(b, a, each);
  };
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (const auto& domain : domains)
      for (std::size_t i = 0; i + 1 < domain.size(); ++i)
        both_ways(domain[(channel + i) % domain.size()], domain[(channel + i + 1) % domain.size()], bytes);
    const std::size_t heads = domains.size();
    for (std::size_t shift = 0; shift < 2; ++shift) {
      const auto head = [&](std::size_t i) {
        const auto& domain = domains[(i + shift) % heads];
        return domain[channel % domain.size()];
      };
      // In-order binary tree: the parent of i flips its lowest set bit and sets the next one, root 0.
      for (std::size_t i = 1; i < heads; ++i) {
        const std::size_t low = i & (~i + 1);
        std::size_t parent = (i ^ low) | (low << 1);
        if (parent >= heads) parent = i ^ low;
        both_ways(head(i), head(parent), bytes / 2);
      }
    }
  }
}

void between_domains(const CollectiveShape& shape, const Domains& domains, Load& load) {
  const auto m = static_cast<double>(domains.size());
  const auto k = static_cast<double>(domains.front().size());
  const auto bytes = static_cast<double>(shape.traffic.bytes);
  const double edge = shape.op == CollectiveOp::all_reduce ? 2 * (m - 1) / m * bytes / k : (m - 1) * bytes;
  for (std::size_t rail = 0; rail < domains.front().size(); ++rail)
    for (std::size_t d = 0; d < domains.size(); ++d)
      load.connect(domains[d][rail], domains[(d + 1) % domains.size()][rail], edge);
}

void inside_domains(const CollectiveShape& shape, const Domains& domains, bool by_switch, Load& load) {
  const auto m = static_cast<double>(domains.size());
  const auto k = static_cast<double>(domains.front().size());
  const auto bytes = static_cast<double>(shape.traffic.bytes);
  for (const auto& domain : domains) {
    if (domain.size() < 2) continue;
    for (std::size_t i = 0; i < domain.size(); ++i) {
      const std::size_t next = domain[(i + 1) % domain.size()];
      if (!by_switch) {
        load.connect(domain[i], next,
                     shape.op == CollectiveOp::all_reduce ? 2 * (k - 1) / k * bytes : (k - 1) * m * bytes);
      } else if (shape.op == CollectiveOp::all_gather) {
        load.to_switch(domain[i], next, m * bytes, k * m * bytes);
      } else if (shape.op == CollectiveOp::reduce_scatter) {
        load.to_switch(domain[i], next, k * m * bytes, m * bytes);
      } else {
        // The switch reduces each member's 1/k of all buffers and multicasts the result.
        load.to_switch(domain[i], next, (1 + 1 / k) * bytes, (1 + 1 / k) * bytes);
      }
    }
  }
}

}  // namespace

StepFlow step_flow(const CollectiveShape& shape, const FlowParameters& plan, const Fabric& fabric,
                   Router& router) {
  check(shape.op != CollectiveOp::all_to_all, "an all_to_all is not a step flow");
  StepFlow flow;
  const std::size_t g = shape.members();
  if (g < 2) return flow;
  const auto depth = static_cast<std::uint32_t>(std::bit_width(g - 1));
  if (shape.op == CollectiveOp::barrier) {
    flow.steps = 2 * depth;
    return flow;
  }
  Load load(shape, router, flow);
  const Domains domains = domains_of(shape, fabric);
  const bool reduces_both_ways = shape.op == CollectiveOp::all_reduce;
  const bool equal_domains = std::all_of(domains.begin(), domains.end(), [&](const auto& domain) {
    return domain.size() == domains.front().size();
  });
  const bool layered = (plan.algorithm == Algorithm::hierarchical || plan.algorithm == Algorithm::nvls) &&
                       equal_domains && shape.traffic.kind == Traffic::Kind::uniform;
  if (shape.op == CollectiveOp::send_recv) {
    load.connect(0, 1, static_cast<double>(shape.traffic.bytes));
    flow.steps = 1;
  } else if (shape.op == CollectiveOp::broadcast) {
    rings(shape, domains, load);
    flow.steps = static_cast<std::uint32_t>(g - 1);
  } else if (layered) {
    const auto m = static_cast<std::uint32_t>(domains.size()), k = static_cast<std::uint32_t>(g) / m;
    const bool by_switch = plan.algorithm == Algorithm::nvls;
    inside_domains(shape, domains, by_switch, load);
    if (m > 1) between_domains(shape, domains, load);
    flow.steps = (reduces_both_ways ? 2 : 1) * ((m - 1) + (by_switch ? 1 : k - 1));
  } else if (plan.algorithm == Algorithm::tree && reduces_both_ways) {
    trees(shape, domains, load);
    flow.steps = 2 * depth;
  } else {
    rings(shape, domains, load);
    flow.steps = static_cast<std::uint32_t>((reduces_both_ways ? 2 : 1) * (g - 1));
  }
  load.finish(plan, fabric);
  if (plan.bandwidth > 0) flow.cap = flow.cap > 0 ? std::min(flow.cap, plan.bandwidth) : plan.bandwidth;
  return flow;
}

}  // namespace moesim::sim

#include "sim/network/router.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace moesim::sim {

namespace {

std::uint64_t mix(std::uint64_t x) {  // finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Router::Router(const Fabric& fabric)
    : fabric_(fabric), multipath_(fabric.multipath()), posts_(fabric.nodes().size()) {
  std::uint32_t forwarders = 0;
  for (const FabricNode& node : fabric.nodes()) forwarder_.push_back(node.forwards ? forwarders++ : kNoLink);
  for (const FabricLink& link : fabric.links()) {
    link_to_.push_back(link.to);
    link_latency_.push_back(link.latency);
    capped_ = capped_ || link.connection_cap > 0;
  }
  for (std::size_t i = 0; i < fabric.gpu_count(); ++i) {
    Gpu gpu;
    gpu.node = gpu.target = fabric.gpu_node(i);
    if (!fabric.nodes()[gpu.node].forwards) {
      const auto in = fabric.links_to(gpu.node), out = fabric.links_from(gpu.node);
      if (in.size() == 1 && fabric.nodes()[fabric.links()[in.front()].from].forwards) {
        gpu.last_link = in.front();
        gpu.target = fabric.links()[in.front()].from;
      }
      if (out.size() == 1) gpu.first_link = out.front();
    }
    gpus_.push_back(gpu);
  }
}

const Router::Signposts& Router::signposts_to(std::uint32_t target) {
  std::unique_ptr<Signposts>& posts = posts_[target];
  if (posts) return *posts;
  posts = std::make_unique<Signposts>();
  const std::vector<std::uint32_t> distance = fabric_.distances_to(target);
  for (std::uint32_t node = 0; node < distance.size(); ++node) {
    if (forwarder_[node] == kNoLink) continue;
    posts->distance.push_back(distance[node]);
    nearest_.clear();
    if (distance[node] != Fabric::kNoWay && node != target) {
      for (const std::uint32_t link : fabric_.links_from(node)) {
        const std::uint32_t to = link_to_[link];
        if (distance[to] + 1 == distance[node] && (to == target || forwarder_[to] != kNoLink))
          nearest_.push_back(link);
      }
    }
    if (nearest_.size() == 1) {
      posts->next.push_back(nearest_.front());
      continue;
    }
    posts->next.push_back(nearest_.empty() ? kNoLink
                                           : kSeveral | static_cast<std::uint32_t>(posts->several.size()));
    if (nearest_.empty()) continue;
    posts->several.push_back(static_cast<std::uint32_t>(nearest_.size()));
    posts->several.insert(posts->several.end(), nearest_.begin(), nearest_.end());
  }
  return *posts;
}

std::uint32_t Router::choose(const std::uint32_t* links, std::uint32_t count, std::size_t from_gpu,
                             std::size_t to_gpu, std::uint32_t node) const {
  if (multipath_ == Multipath::destination)
    return links[std::has_single_bit(count) ? to_gpu & (count - 1) : to_gpu % count];
  const std::uint64_t pair = (std::uint64_t{from_gpu} << 32) ^ to_gpu;
  return links[mix(mix(pair + 0x9e3779b97f4a7c15u) + node) % count];
}

// Chooses the first link of a GPU with several links.
std::uint32_t Router::first_link(const Signposts& posts, std::size_t from_gpu, std::size_t to_gpu) {
  const std::uint32_t target = gpus_[to_gpu].target;
  std::uint32_t best = Fabric::kNoWay;
  nearest_.clear();
  for (const std::uint32_t link : fabric_.links_from(gpus_[from_gpu].node)) {
    const std::uint32_t to = link_to_[link];
    std::uint32_t distance = Fabric::kNoWay;
    if (to == target)
      distance = 0;
    else if (forwarder_[to] != kNoLink)
      distance = posts.distance[forwarder_[to]];
    if (distance < best) nearest_.clear();
    best = std::min(best, distance);
    if (distance == best && distance != Fabric::kNoWay) nearest_.push_back(link);
  }
  if (nearest_.empty()) return kNoLink;
  return choose(nearest_.data(), static_cast<std::uint32_t>(nearest_.size()), from_gpu, to_gpu,
                gpus_[from_gpu].node);
}

void Router::add(std::uint32_t link, Route& route) const {
  route.links.push_back(link);
  route.latency += link_latency_[link];
  if (!capped_) return;
  const double cap = fabric_.links()[link].connection_cap;
  if (cap > 0) route.cap = route.cap > 0 ? std::min(route.cap, cap) : cap;
}

void Router::find(std::size_t from_gpu, std::size_t to_gpu, Route& route) {
  check(from_gpu < gpus_.size() && to_gpu < gpus_.size(), "a route joins two GPUs of the fabric");
  route.links.clear();
  route.latency = Time::kZero;
  route.cap = 0;
  route.reaches = true;
  const Gpu& from = gpus_[from_gpu];
  const Gpu& to = gpus_[to_gpu];
  if (from.node == to.node) return;
  const Signposts& posts = signposts_to(to.target);
  std::uint32_t node = from.node;
  while (node != to.target) {
    std::uint32_t link = kNoLink;
    if (forwarder_[node] != kNoLink) {
      link = posts.next[forwarder_[node]];
      if (link != kNoLink && (link & kSeveral) != 0) {
        const std::uint32_t* several = posts.several.data() + (link & ~kSeveral);
        link = choose(several + 1, several[0], from_gpu, to_gpu, node);
      }
    } else {
      link = from.first_link != kNoLink ? from.first_link : first_link(posts, from_gpu, to_gpu);
      // The only link of a GPU may lead to a node that does not forward.
      if (link != kNoLink && link_to_[link] != to.target && forwarder_[link_to_[link]] == kNoLink)
        link = kNoLink;
    }
    if (link == kNoLink) {
      route.reaches = false;
      return;
    }
    add(link, route);
    node = link_to_[link];
  }
  if (to.last_link != kNoLink) add(to.last_link, route);
}

}  // namespace moesim::sim

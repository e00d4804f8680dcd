// Routes between all pairs of GPUs through a fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/graph/time.h"
#include "sim/network/fabric.h"

namespace moesim::sim {

struct Route {
  std::vector<std::uint32_t> links;
  Time latency;
  double cap = 0;        // of a flow: the smallest connection cap on the route; 0: none
  bool reaches = false;  // false: no route exists
};

// Finds the route with the fewest links through forwarding nodes, deterministically. The fabric's Multipath
// decides between equally short routes. Routing tables of a destination are kept after the first query (GPUs
// on one switch share them), so a router belongs to one thread, and the fabric must not change meanwhile.
class Router {
 public:
  explicit Router(const Fabric& fabric);

  // Writes to `route`; no links for from == to. `reaches` is false without a route.
  void find(std::size_t from_gpu, std::size_t to_gpu, Route& route);

 private:
  // Next hops from every forwarding node to one destination node.
  struct Signposts {
    std::vector<std::uint32_t> next;      // by forwarding node: a link, or kSeveral | index into `several`
    std::vector<std::uint32_t> several;   // a count, then that many links
    std::vector<std::uint32_t> distance;  // by forwarding node
  };
  struct Gpu {
    std::uint32_t node = 0;
    std::uint32_t target = 0;            // destination of the table to use: its own node, or its switch
    std::uint32_t last_link = kNoLink;   // from that switch
    std::uint32_t first_link = kNoLink;  // when there is only one
  };
  static constexpr std::uint32_t kNoLink = 0xffffffff;
  static constexpr std::uint32_t kSeveral = 0x80000000;

  const Signposts& signposts_to(std::uint32_t target);
  std::uint32_t choose(const std::uint32_t* links, std::uint32_t count, std::size_t from_gpu,
                       std::size_t to_gpu, std::uint32_t node) const;
  std::uint32_t first_link(const Signposts& posts, std::size_t from_gpu, std::size_t to_gpu);
  void add(std::uint32_t link, Route& route) const;

  const Fabric& fabric_;
  Multipath multipath_;
  std::vector<Gpu> gpus_;
  std::vector<std::uint32_t> forwarder_;  // by node: its index among forwarding nodes; kNoLink for others
  std::vector<std::uint32_t> link_to_;
  std::vector<Time> link_latency_;
  bool capped_ = false;
  std::vector<std::unique_ptr<Signposts>> posts_;  // by node
  std::vector<std::uint32_t> nearest_;
};

}  // namespace moesim::sim

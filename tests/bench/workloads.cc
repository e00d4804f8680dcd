#include "tests/bench/workloads.h"

#include <vector>

namespace moesim::bench {

using sim::Fabric;
using sim::NodeKind;
using sim::Time;

std::uint64_t unequal_bytes(std::uint32_t from, std::uint32_t to) {
  std::uint64_t x = (std::uint64_t{from} << 32 | to) + 0x9e3779b97f4a7c15u;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const double uniform = static_cast<double>(x >> 11) * 0x1.0p-53;
  return static_cast<std::uint64_t>((0.01 + 1.99 * uniform) * static_cast<double>(kMessage));
}

namespace {

sim::TaskGraph all_to_all(std::uint32_t ranks, bool unequal, std::uint64_t bytes) {
  sim::TaskGraphBuilder b;
  b.add_ranks(ranks);
  std::vector<sim::RankId> all;
  for (std::uint32_t r = 0; r < ranks; ++r) all.emplace_back(r);
  sim::TrafficRef traffic = sim::uniform_traffic(bytes);
  if (unequal) {
    std::vector<std::uint32_t> rows(std::size_t{ranks} * ranks);
    for (std::uint32_t from = 0; from < ranks; ++from)
      for (std::uint32_t to = 0; to < ranks; ++to)
        rows[std::size_t{from} * ranks + to] = static_cast<std::uint32_t>(unequal_bytes(from, to));
    traffic = sim::matrix_traffic(b.add_matrix(ranks, rows), 1);
  }
  const sim::CollectiveId c = b.add_collective(sim::CollectiveOp::all_to_all, b.add_group(all), traffic,
                                               b.add_label("messages", sim::Category::dispatch));
  for (std::uint32_t r = 0; r < ranks; ++r) b.add_member(b.add_stream(all[r], sim::StreamKind::comm), c, r);
  return b.finalize();
}

}  // namespace

sim::TaskGraph all_to_all_equal(std::uint32_t ranks) { return all_to_all(ranks, false, kMessage * ranks); }

sim::TaskGraph all_to_all_unequal(std::uint32_t ranks) { return all_to_all(ranks, true, 0); }

sim::FlowParameters plan(sim::Algorithm algorithm) {
  sim::FlowParameters plan;
  plan.algorithm = algorithm;
  plan.step = Time::from_us(kLatencyUs);
  return plan;
}

Fabric flat(std::uint32_t ranks) {
  Fabric fabric;
  const std::uint32_t hub = fabric.add_node(NodeKind::leaf, "switch");
  for (std::uint32_t r = 0; r < ranks; ++r)
    fabric.add_cable(fabric.add_gpu("gpu" + std::to_string(r), r), hub, kPort, Time::from_us(kLatencyUs / 2));
  return fabric;
}

Fabric island(std::uint32_t ranks) {
  Fabric fabric;
  const std::uint32_t spine = fabric.add_node(NodeKind::spine, "spine");
  std::uint32_t node = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r % 8 == 0) {
      node = fabric.add_node(NodeKind::nvswitch, "node" + std::to_string(r / 8));
      fabric.add_cable(node, spine, 400e9, Time::kZero);
    }
    fabric.add_cable(fabric.add_gpu("gpu" + std::to_string(r), r / 8), node, 450e9,
                     Time::from_us(kLatencyUs / 2));
  }
  return fabric;
}

Fabric fat_tree(std::uint32_t ranks) {
  Fabric fabric;
  fabric.set_multipath(sim::Multipath::destination);
  std::vector<std::uint32_t> spines;
  for (int s = 0; s < 4; ++s) spines.push_back(fabric.add_node(NodeKind::spine, "spine" + std::to_string(s)));
  std::uint32_t leaf = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r % 8 == 0) {
      leaf = fabric.add_node(NodeKind::leaf, "leaf" + std::to_string(r / 8));
      for (const std::uint32_t spine : spines) fabric.add_cable(leaf, spine, kPort, Time::kZero);
    }
    fabric.add_cable(fabric.add_gpu("gpu" + std::to_string(r), r), leaf, kPort,
                     Time::from_us(kLatencyUs / 2));
  }
  return fabric;
}

}  // namespace moesim::bench

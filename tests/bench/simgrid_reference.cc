// The workloads of workloads.h on SimGrid's S4U interface, as the reference of the benchmarks: the same
// messages, the same links, its flow-level network model without TCP corrections. Prints "SECONDS PEAK_BYTES
// SIMULATED_US".
//
// simgrid_reference w1|w1s|w1n|w1n-unequal flat|island|2:1 RANKS
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "tests/bench/workloads.h"

namespace {

namespace s4u = simgrid::s4u;

constexpr double kHalfLatency = moesim::bench::kLatencyUs * 1e-6 / 2;

std::vector<s4u::Host*> flat(s4u::NetZone* root, int ranks) {
  std::vector<s4u::Host*> hosts;
  for (int r = 0; r < ranks; ++r) {
    s4u::Host* host = root->create_host("h" + std::to_string(r), 1e9);
    s4u::Link* link = root->create_split_duplex_link("l" + std::to_string(r), moesim::bench::kPort)
                          ->set_latency(kHalfLatency)
                          ->seal();
    root->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                    {{link, s4u::LinkInRoute::Direction::UP}}, true);
    hosts.push_back(host);
  }
  return hosts;
}

std::vector<s4u::Host*> island(s4u::NetZone* root, int ranks) {
  std::vector<s4u::Host*> hosts;
  for (int n = 0; n < ranks / 8; ++n) {
    s4u::NetZone* node = s4u::create_star_zone("n" + std::to_string(n))->set_parent(root);
    simgrid::kernel::routing::NetPoint* gateway = node->create_router("g" + std::to_string(n));
    node->add_route(gateway, nullptr, nullptr, nullptr, std::vector<s4u::LinkInRoute>(), true);
    for (int r = 8 * n; r < 8 * n + 8; ++r) {
      s4u::Host* host = node->create_host("h" + std::to_string(r), 1e9);
      s4u::Link* link =
          node->create_split_duplex_link("l" + std::to_string(r), 450e9)->set_latency(kHalfLatency)->seal();
      node->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                      {{link, s4u::LinkInRoute::Direction::UP}}, true);
      hosts.push_back(host);
    }
    s4u::Link* uplink =
        root->create_split_duplex_link("u" + std::to_string(n), 400e9)->set_latency(0.0)->seal();
    node->seal();
    root->add_route(node->get_netpoint(), nullptr, gateway, nullptr,
                    {{uplink, s4u::LinkInRoute::Direction::UP}}, true);
  }
  return hosts;
}

// A tree of our own links: the routes of SimGrid's fat tree zone, made explicit, so that uplinks are chosen
// by destination and cost no latency, as in workloads.cc. `root` is a full zone.
std::vector<s4u::Host*> fat_tree(s4u::NetZone* root, int ranks) {
  std::vector<s4u::Host*> hosts;
  std::vector<s4u::SplitDuplexLink*> ports, uplinks;
  for (int r = 0; r < ranks; ++r) {
    hosts.push_back(root->create_host("h" + std::to_string(r), 1e9));
    ports.push_back(root->create_split_duplex_link("l" + std::to_string(r), moesim::bench::kPort));
    ports.back()->set_latency(kHalfLatency)->seal();
  }
  for (int u = 0; u < ranks / 8 * 4; ++u) {
    uplinks.push_back(root->create_split_duplex_link("u" + std::to_string(u), moesim::bench::kPort));
    uplinks.back()->set_latency(0.0)->seal();
  }
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      std::vector<s4u::LinkInRoute> way{{ports[from], s4u::LinkInRoute::Direction::UP}};
      if (from / 8 != to / 8) {
        way.emplace_back(uplinks[from / 8 * 4 + to % 4], s4u::LinkInRoute::Direction::UP);
        way.emplace_back(uplinks[to / 8 * 4 + to % 4], s4u::LinkInRoute::Direction::DOWN);
      }
      way.emplace_back(ports[to], s4u::LinkInRoute::Direction::DOWN);
      root->add_route(hosts[from]->get_netpoint(), hosts[to]->get_netpoint(), nullptr, nullptr, way, false);
    }
  }
  return hosts;
}

s4u::Mailbox* box(int from, int to) {
  return s4u::Mailbox::by_name(std::to_string(from) + ">" + std::to_string(to));
}

int payload = 0;  // SimGrid wants something to hand over

void exchange(int rank, int ranks, const std::string& workload) {
  const auto bytes = [&](int from, int to) -> std::uint64_t {
    return workload == "w1s" || workload == "w1n-unequal" ? moesim::bench::unequal_bytes(from, to)
                                                          : moesim::bench::kMessage;
  };
  if (workload == "w1n" || workload == "w1n-unequal") {
    std::vector<s4u::CommPtr> pending;
    std::vector<int*> received(ranks);
    for (int shift = 1; shift < ranks; ++shift) {
      const int to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
      pending.push_back(box(rank, to)->put_async(&payload, bytes(rank, to)));
      pending.push_back(box(from, rank)->get_async<int>(&received[from]));
    }
    for (const s4u::CommPtr& comm : pending) comm->wait();
    return;
  }
  for (int step = 1; step < ranks; ++step) {
    const int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks;
    int* received = nullptr;
    s4u::CommPtr send = box(rank, to)->put_async(&payload, bytes(rank, to));
    s4u::CommPtr receive = box(from, rank)->get_async<int>(&received);
    send->wait();
    receive->wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);
  if (argc != 4) {
    std::fprintf(stderr, "usage: simgrid_reference w1|w1s|w1n|w1n-unequal flat|island|2:1 RANKS\n");
    return 2;
  }
  const std::string workload = argv[1], network = argv[2];
  const int ranks = std::atoi(argv[3]);
  for (const char* setting :
       {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/bandwidth-factor:1",
        "network/latency-factor:1", "network/weight-S:0", "surf/precision:1e-12", "contexts/stack-size:64"})
    s4u::Engine::set_config(setting);
  s4u::NetZone* root = network == "2:1" ? s4u::create_full_zone("root") : s4u::create_star_zone("root");
  const std::vector<s4u::Host*> hosts = network == "flat"     ? flat(root, ranks)
                                        : network == "island" ? island(root, ranks)
                                                              : fat_tree(root, ranks);
  root->seal();
  for (int rank = 0; rank < ranks; ++rank)
    s4u::Actor::create("r" + std::to_string(rank), hosts[rank], exchange, rank, ranks, workload);
  const std::clock_t start = std::clock();
  engine.run();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%.6f %ld %.6f\n", seconds, usage.ru_maxrss * 1024L, s4u::Engine::get_clock() * 1e6);
  return 0;
}

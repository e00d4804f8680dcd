// Layers and routings that the tests of dispatchers share: the worked example of docs/spec.md 6.3, and
// random ones; what they look up in programs.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/dispatchers/dispatcher.h"
#include "tests/message_of.h"

namespace moesim::models::testing {

using Numbers = std::vector<std::int64_t>;

// Token -> experts of example 1.
inline Routing example_1() {
  return Routing::from_choices(8, 2,
                               {{0, 1, 0, 2, 0, 3, 1, 4, 0, 5, 2, 6, 0, 7, 1, 3},
                                {0, 1, 0, 2, 4, 5, 0, 1, 2, 3, 0, 6, 0, 7, 1, 2},
                                {0, 4, 0, 1, 4, 6, 5, 7, 0, 2, 3, 6, 0, 1, 2, 5},
                                {0, 1, 1, 2, 2, 4, 0, 6, 0, 3, 5, 7, 0, 1, 0, 4}});
}

// Every token of every rank to experts 0 and 1.
inline Routing example_2() {
  std::vector<std::int32_t> all;
  for (int t = 0; t < 8; ++t) all.insert(all.end(), {0, 1});
  return Routing::from_choices(8, 2, {all, all, all, all});
}

inline Routing example_3() {
  RoutingSpec spec;
  spec.kind = RoutingSpec::Kind::kRoundRobin;
  return make_routing(spec, 4, 8, 8, 2, 1);
}

// H=16, F=32 gated, bf16: a row has 32 bytes.
inline MoeLayer example_layer(const Routing& routing, int ep = 4, int etp = 1, DType router = DType::kFp32) {
  MoeLayer layer;
  layer.hidden = 16;
  layer.expert_ffn = 32;
  layer.ep = ep;
  layer.etp = etp;
  layer.router = router;
  layer.routing = &routing;
  return layer;
}

// One of the examples with a layer of the usual sizes; a test changes what it is about.
struct Example {
  explicit Example(Routing given = example_1(), int ep = 4, int etp = 1)
      : routing(std::move(given)), layer(example_layer(routing, ep, etp)) {}
  Example(const Example&) = delete;
  Example& operator=(const Example&) = delete;
  Routing routing;
  MoeLayer layer;
};

inline Program build(const std::string& dispatcher, const MoeLayer& layer) {
  const auto made = make_dispatcher(DispatcherSpec::parse(dispatcher));
  const auto rule = made->illegal(layer);
  if (rule) throw std::runtime_error(*rule);
  return made->build(layer);
}

inline Numbers numbers(const Program& program, PerRank value) {
  Numbers n;
  for (int r = 0; r < program.ranks(); ++r) n.push_back(program.value(value, r));
  return n;
}

// The rule that forbids it on this layer; empty where it is legal.
inline std::string rule(const std::string& dispatcher, const MoeLayer& layer) {
  return rule_against(*make_dispatcher(DispatcherSpec::parse(dispatcher)), layer).value_or("");
}

// Returns the message that refuses a dispatcher with these options; empty where it exists.
inline std::string refusal(const std::string& dispatcher) {
  return moesim::testing::message_of([&] { make_dispatcher(DispatcherSpec::parse(dispatcher)); });
}

// The collectives of a pass, in order.
inline std::vector<Op> messages(const std::vector<Op>& pass) {
  std::vector<Op> all;
  for (const Op& op : pass)
    if (op.kind == OpKind::kCollective) all.push_back(op);
  return all;
}

inline Numbers total_tx(const Program& program, const std::vector<Op>& pass) {
  Numbers sum(program.ranks());
  for (const Op& op : messages(pass))
    for (int r = 0; r < program.ranks(); ++r) sum[r] += program.value(op.tx, r);
  return sum;
}

inline Numbers total_rx(const Program& program, const std::vector<Op>& pass) {
  Numbers sum(program.ranks());
  for (const Op& op : messages(pass))
    for (int r = 0; r < program.ranks(); ++r) sum[r] += program.value(op.rx, r);
  return sum;
}

// One collective by hand; a single number stands for all ranks.
struct Expected {
  std::string_view what;
  Numbers in, out, tx, rx;
};

inline void expect_messages(const Program& program, const std::vector<Op>& pass,
                            const std::vector<Expected>& expected) {
  const std::vector<Op> all = messages(pass);
  ASSERT_EQ(all.size(), expected.size());
  const auto each = [&](Numbers n) { return n.size() == 1 ? Numbers(program.ranks(), n[0]) : n; };
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(std::string(expected[i].what));
    EXPECT_EQ(all[i].name, expected[i].what);
    EXPECT_EQ(numbers(program, all[i].in), each(expected[i].in));
    EXPECT_EQ(numbers(program, all[i].out), each(expected[i].out));
    EXPECT_EQ(numbers(program, all[i].tx), each(expected[i].tx));
    EXPECT_EQ(numbers(program, all[i].rx), each(expected[i].rx));
  }
}

// All operations of one name, in order, without memory.
inline std::vector<Op> named(const std::vector<Op>& pass, std::string_view name) {
  std::vector<Op> all;
  for (const Op& op : pass)
    if (op.name == name && op.kind != OpKind::kAllocate && op.kind != OpKind::kFree) all.push_back(op);
  return all;
}

inline bool has(const std::vector<Op>& pass, std::string_view name) { return !named(pass, name).empty(); }

// The only operation of this name.
inline Op the(const std::vector<Op>& pass, std::string_view name) {
  const std::vector<Op> all = named(pass, name);
  if (all.size() != 1) throw std::runtime_error("one operation expected: " + std::string(name));
  return all.front();
}

// Kernels that the products of a pass are launched as.
inline int product_launches(const std::vector<Op>& pass) {
  int launches = 0;
  for (const Op& op : pass)
    if (op.kind == OpKind::kGemm) launches += op.launches;
  return launches;
}

// Rows of each local expert, as the products of this name compute them.
inline Numbers product_rows(const Program& program, std::string_view name, int rank) {
  const auto rows = program.expert_rows(the(program.forward(), name).table, rank);
  return {rows.begin(), rows.end()};
}

// A random layer with known choices; the routing lives beside it.
struct RandomLayer {
  Routing routing;
  MoeLayer layer;
};

inline RandomLayer random_layer(bool allow_etp, bool equal_tokens = true) {
  const int ep = *rc::gen::inRange(1, 7);
  const int etp = allow_etp ? *rc::gen::inRange(1, 4) : 1;
  const int local = *rc::gen::inRange(1, 5);
  const int experts = ep * local;
  const int topk = *rc::gen::inRange(1, std::min(experts, 4) + 1);
  const int tokens = *rc::gen::inRange(1, 12);
  const int skew = *rc::gen::inRange(1, 4);
  std::vector<std::vector<std::int32_t>> choices(ep * etp);
  for (auto& rank : choices) {
    const int own = equal_tokens ? tokens : *rc::gen::inRange(0, 12);
    for (int t = 0; t < own; ++t) {
      std::vector<std::int32_t> pool(experts);
      for (int e = 0; e < experts; ++e) pool[e] = e;
      for (int k = 0; k < topk; ++k) {
        // The smaller of several draws: low experts are popular.
        int at = experts - k - 1;
        for (int s = 0; s < skew; ++s) at = std::min(at, *rc::gen::inRange(0, experts - k));
        rank.push_back(pool[at]);
        pool.erase(pool.begin() + at);
      }
    }
  }
  RandomLayer random{Routing::from_choices(experts, topk, std::move(choices)), {}};
  random.layer = example_layer(random.routing, ep, etp);
  random.layer.hidden = 8 * *rc::gen::inRange(1, 5);
  random.layer.expert_ffn = 12 * *rc::gen::inRange(1, 5);
  random.layer.router = *rc::gen::element(DType::kBf16, DType::kFp32, DType::kFp64);
  random.layer.gated = *rc::gen::arbitrary<bool>();
  return random;
}

}  // namespace moesim::models::testing

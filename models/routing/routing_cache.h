// Routings of scenarios that differ in other things, drawn once: a sweep asks for the same one again and
// again.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "models/routing/routing.h"

namespace moesim::models {

// Popularity of experts by place (a power law, within one row per token and expert; sum topk) whose Gini
// coefficient is `target`.
std::vector<double> popularity_with_gini(int experts, int topk, double target);
// How likely a token meets each expert of one layer (they sum to the top-k), and the seed of its
// microbatches.
struct Popularity {
  std::vector<double> inclusion;
  std::uint64_t seed = 0;
};
// `by_gini`: popularity_with_gini() of a spec of kind kGini at hand; empty: computed.
Popularity draw_popularity(const RoutingSpec& spec, int experts, int topk, std::uint64_t seed, int layer,
                           std::span<const double> by_gini = {});
// Rows of every rank to every expert, tokens x topk on each.
Routing draw_rows(const Popularity& popularity, int ranks, std::int64_t tokens, int topk, int microbatch);

// make_routing() with popularity_with_gini() of a spec of kind kGini at hand; empty: computed.
Routing make_routing(std::span<const double> by_gini, const RoutingSpec& spec, int ranks, std::int64_t tokens,
                     int experts, int topk, std::uint64_t seed, int layer, int microbatch);

// Not for several threads at a time. Holds 128 MiB at most.
class RoutingCache {
 public:
  // As make_routing() of layer 0, microbatch 0. The reference is good until the next call.
  const Routing& draw(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                      std::uint64_t seed);

 private:
  struct Key {
    RoutingSpec::Kind kind;
    double parameter;
    int ranks;
    std::int64_t tokens;
    int experts, topk;
    std::uint64_t seed;
    auto operator<=>(const Key&) const = default;
  };

  std::map<Key, Routing> drawn_;
  std::size_t held_ = 0, popularities_held_ = 0;  // counts in drawn_, numbers in popularity_
  std::map<std::tuple<int, int, double>, std::vector<double>> popularity_;  // experts, topk, target Gini
};

}  // namespace moesim::models

// Cache of routings for sweeps, whose scenarios often share one.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "models/routing/routing.h"

namespace moesim::models {

// Returns expert popularities (a power law, at most one row per token and expert, with sum topk) whose Gini
// coefficient is `target`.
std::vector<double> popularity_with_gini(int experts, int topk, double target);
// Probability that a token chooses each expert of one layer (their sum is the top-k), and the seed of the
// microbatches.
struct Popularity {
  std::vector<double> inclusion;
  std::uint64_t seed = 0;
};
// `by_gini`: precomputed popularity_with_gini() of a spec of kind kGini; empty: computed.
Popularity draw_popularity(const RoutingSpec& spec, int experts, int topk, std::uint64_t seed, int layer,
                           std::span<const double> by_gini = {});
// Draws the rows of every rank to every expert, tokens x topk per rank.
Routing draw_rows(const Popularity& popularity, int ranks, std::int64_t tokens, int topk, int microbatch);

// make_routing() with popularities of one's own, which are asked for where rows are drawn from them.
Routing make_routing(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                     int microbatch, const std::function<Popularity()>& popularity);

// Not thread-safe. Holds at most 64 MiB.
class RoutingCache {
 public:
  // make_routing() of the same arguments. The reference is valid until the next call.
  const Routing& draw(const RoutingSpec& spec, int ranks, std::int64_t tokens, int experts, int topk,
                      std::uint64_t seed, int layer = 0, int microbatch = 0);

 private:
  struct Layer {
    RoutingSpec::Kind kind;
    double parameter;
    int experts, topk;
    std::uint64_t seed;
    int layer;
    auto operator<=>(const Layer&) const = default;
  };
  struct Key {
    Layer layer;
    int ranks;
    std::int64_t tokens;
    int microbatch;
    auto operator<=>(const Key&) const = default;
  };

  std::map<Key, Routing> drawn_;
  std::map<Layer, Popularity> popularity_;
  std::map<std::tuple<int, int, double>, std::vector<double>> by_gini_;  // experts, topk, target Gini
  std::size_t held_ = 0;                                                 // numbers in all of them
  Routing last_;                                                         // the last that found no room
};

}  // namespace moesim::models

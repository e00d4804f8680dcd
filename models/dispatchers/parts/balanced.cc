#include "models/dispatchers/parts/balanced.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/routing/expert_placement.h"

namespace moesim::models {

namespace {

// Rows of an expert, in rank order, that one rank computes.
struct Share {
  std::size_t rank = 0;
  std::int64_t rows = 0;
};

// Returns for every expert the rows that each rank computes.
std::vector<std::vector<Share>> shares_of(const std::vector<std::int64_t>& totals, std::size_t ranks,
                                          const RedirectionLimits& limits) {
  const std::size_t local = totals.size() / ranks;
  std::vector<std::int64_t> load(ranks, 0);  // of assigned rows, and of its own experts not yet assigned
  for (std::size_t e = 0; e < totals.size(); ++e) load[e / local] += totals[e];
  const std::int64_t all = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  const double mean = static_cast<double>(all) / static_cast<double>(ranks);
  const auto most = static_cast<std::int64_t>(limits.limit * mean);
  const bool moves =
      static_cast<double>(*std::max_element(load.begin(), load.end())) > limits.threshold * mean;
  std::vector<std::size_t> order(totals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return totals[a] > totals[b]; });
  std::vector<std::vector<Share>> shares(totals.size());
  for (const std::size_t e : order) {
    const std::size_t home = e / local;
    load[home] -= totals[e];
    std::int64_t stays = moves ? std::clamp<std::int64_t>(most - load[home], 0, totals[e]) : totals[e];
    std::int64_t left = totals[e] - stays;
    std::vector<Share> elsewhere;
    while (left > 0) {
      std::size_t helper = ranks;
      for (std::size_t r = 0; r < ranks; ++r)
        if (r != home && (helper == ranks || load[r] < load[helper])) helper = r;
      const std::int64_t rows = helper == ranks ? 0 : std::min(left, most - load[helper]);
      if (rows < std::max<std::int64_t>(1, limits.min_rows)) break;
      elsewhere.push_back({helper, rows});
      load[helper] += rows;
      left -= rows;
    }
    stays += left;
    load[home] += stays;
    shares[e].push_back({home, stays});
    shares[e].insert(shares[e].end(), elsewhere.begin(), elsewhere.end());
  }
  return shares;
}

}  // namespace

Redirection least_loaded(const Routing& routing, int ranks, const RedirectionLimits& limits) {
  check(routing.ranks() == ranks && routing.experts() % ranks == 0, "whole experts on every rank");
  const auto n = static_cast<std::size_t>(ranks), experts = static_cast<std::size_t>(routing.experts()),
             local = experts / n;
  const std::vector<std::vector<Share>> shares = shares_of(routing.expert_totals(), n, limits);
  Redirection out;
  out.copies.assign(n * n, 0);
  out.foreign.assign(n, 0);
  for (std::size_t e = 0; e < experts; ++e)
    for (std::size_t i = 1; i < shares[e].size(); ++i) {
      ++out.copies[e / local * n + shares[e][i].rank];
      ++out.foreign[shares[e][i].rank];
    }
  const std::size_t more =
      static_cast<std::size_t>(*std::max_element(out.foreign.begin(), out.foreign.end()));
  out.slots = static_cast<int>(local + more);
  const std::size_t slots = local + more;
  // The slots of an expert with the end of their rows.
  struct Slot {
    std::size_t slot = 0;
    std::int64_t end = 0;
  };
  std::vector<std::vector<Slot>> slots_of(experts);
  std::vector<std::size_t> next(n, local);
  for (std::size_t e = 0; e < experts; ++e) {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < shares[e].size(); ++i) {
      const std::size_t rank = shares[e][i].rank, at = i == 0 ? e % local : next[rank]++;
      slots_of[e].push_back({rank * slots + at, end += shares[e][i].rows});
    }
  }
  std::vector<std::int64_t> place(experts, 0);  // rows of an expert so far
  const auto all = static_cast<int>(n * slots);
  if (routing.has_choices()) {
    std::vector<std::vector<std::int32_t>> choices;
    for (int r = 0; r < ranks; ++r) {
      std::vector<std::int32_t> mapped(routing.choices(r).begin(), routing.choices(r).end());
      for (std::int32_t& e : mapped) {
        if (e < 0) continue;
        const auto expert = static_cast<std::size_t>(e);
        const std::int64_t row = place[expert]++;
        const auto slot = std::find_if(slots_of[expert].begin(), slots_of[expert].end(),
                                       [&](const Slot& s) { return row < s.end; });
        e = static_cast<std::int32_t>(slot->slot);
      }
      choices.push_back(std::move(mapped));
    }
    out.routing = Routing::from_choices(all, routing.topk(), std::move(choices));
    return out;
  }
  std::vector<std::int64_t> tokens, counts(n * n * slots, 0);
  for (int r = 0; r < ranks; ++r) {
    tokens.push_back(routing.tokens(r));
    for (std::size_t e = 0; e < experts; ++e) {
      const std::int64_t begin = place[e], end = begin + routing.count(r, static_cast<int>(e));
      place[e] = end;
      std::int64_t from = 0;
      for (const Slot& s : slots_of[e]) {
        counts[static_cast<std::size_t>(r) * n * slots + s.slot] +=
            std::max<std::int64_t>(0, std::min(end, s.end) - std::max(begin, from));
        from = s.end;
      }
    }
  }
  out.routing = Routing::from_counts(ranks, all, routing.topk(), std::move(tokens), std::move(counts));
  return out;
}

namespace {

constexpr std::array<std::string_view, 3> kKinds{"none", "eplb", "least-loaded"};
constexpr std::array<std::string_view, 4> kOwnOptions{"slots", "limit", "min_rows", "threshold"};
// Names of operations in models/dispatchers/parts/common.cc.
constexpr std::array<std::string_view, 3> kPaid{"weights of moved experts", "gradients of copies",
                                                "summed gradients"};

// A routing over slots, and the copies of experts that it needs.
struct Moved {
  Routing routing;
  ExpertMoves moves;
};

class Balanced final : public Dispatcher {
 public:
  Balanced(std::unique_ptr<Dispatcher> inner, DispatcherOptions& options, bool eplb)
      : inner_(std::move(inner)), eplb_(eplb) {
    if (eplb_) {
      slots_ = static_cast<int>(options.integer("slots", 0, 1, kMostSlots));
      if (slots_ == 0) options.fail("found balance=eplb without slots, expected slots=N: experts and copies");
    } else {
      const RedirectionLimits usual;
      limits_.limit = options.number("limit", usual.limit, 1, 1e3);
      limits_.min_rows = options.integer("min_rows", usual.min_rows, 1, std::int64_t{1} << 40);
      limits_.threshold = options.number("threshold", usual.threshold, 0, 1e3);
    }
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "balance moves whole experts: etp must be 1";
    if (layer.ep == 1) return "with ep 1 a rank has every expert: there is nothing to balance";
    if (layer.placed) return "balance deals experts out itself: it goes without --placement";
    if (eplb_ && (slots_ % layer.ep != 0 || slots_ < layer.experts()))
      return fmt::format("slots must be a multiple of ep {} and at least the {} experts, {} are not",
                         layer.ep, layer.experts(), slots_);
    if (auto rule = inner_->illegal(layer)) return rule;
    const Moved moved = moved_of(layer);
    return inner_->illegal(on(layer, moved));
  }

  bool balances() const override { return true; }
  int expert_slots(const MoeLayer& layer) const override { return eplb_ ? slots_ : layer.experts(); }

  Program build(const MoeLayer& layer) const override {
    const Moved moved = moved_of(layer);
    Program program = inner_->build(on(layer, moved));
    program.warnings.emplace_back(
        eplb_ ? "balance=eplb: experts lie as the load of the step's first microbatch has it; moving them "
                "between steps is not counted"
              : "balance=least-loaded: what the host takes to plan was not measured and is not counted");
    return program;
  }

 private:
  static MoeLayer on(const MoeLayer& layer, const Moved& moved) {
    MoeLayer there = layer;
    there.routing = &moved.routing;
    there.moves = &moved.moves;
    return there;
  }

  Moved moved_of(const MoeLayer& layer) const { return eplb_ ? copied(layer) : redirected(layer); }

  Moved redirected(const MoeLayer& layer) const {
    Redirection r = least_loaded(*layer.routing, layer.ep, limits_);
    return {std::move(r.routing), {std::move(r.copies), std::move(r.foreign), true}};
  }

  Moved copied(const MoeLayer& layer) const {
    // None where groups lie unequally on nodes.
    const bool even = layer.ranks_per_node > 0 && layer.ep % layer.ranks_per_node == 0;
    const int nodes = even && layer.ep > layer.ranks_per_node ? layer.ep / layer.ranks_per_node : 1;
    const ExpertPlacement placement =
        hierarchical_placement(layer.load ? *layer.load : layer.routing->expert_totals(), layer.ep, slots_,
                               layer.routing_groups, nodes);
    Moved moved{placed(*layer.routing, placement), {}};
    // A node that holds one group whole takes the role of that group.
    if (nodes > 1 && layer.routing_groups == nodes)
      moved.routing.set_group_limit(layer.routing_groups, layer.routing_topk_groups);
    ExpertMoves& moves = moved.moves;
    const auto ranks = static_cast<std::size_t>(layer.ep),
               per_rank = static_cast<std::size_t>(slots_) / ranks;
    moves.every_pass = false;
    moves.copies.assign(ranks * ranks, 0);
    moves.foreign.assign(ranks, 0);
    std::vector<std::size_t> home(static_cast<std::size_t>(layer.experts()), ranks);
    std::vector<bool> counted(home.size() * ranks, false);
    for (std::size_t s = 0; s < placement.expert_of.size(); ++s) {
      const auto e = static_cast<std::size_t>(placement.expert_of[s]);
      const std::size_t rank = s / per_rank;
      if (home[e] == ranks) home[e] = rank;  // the first copy adds up the others' gradients
      if (home[e] == rank || counted[e * ranks + rank]) continue;
      counted[e * ranks + rank] = true;
      ++moves.copies[home[e] * ranks + rank];
      ++moves.foreign[rank];
    }
    return moved;
  }

  std::unique_ptr<Dispatcher> inner_;
  bool eplb_;
  int slots_ = 0;
  RedirectionLimits limits_;
};

}  // namespace

std::unique_ptr<Dispatcher> balanced(std::unique_ptr<Dispatcher> inner, DispatcherOptions& options) {
  if (!options.given(kBalanceOption) && !inner->balances()) return inner;
  const std::size_t kind = options.choice(kBalanceOption, 0, kKinds);
  if (kind == 0) return inner;
  if (!inner->balances())
    options.fail(
        fmt::format("found {}={}, expected it with alltoall, flex-deepep, flex-hybridep, nccl-ep or "
                    "torchtitan-alltoall without a capacity: their rows go to whole experts",
                    kBalanceOption, kKinds[kind]));
  return std::make_unique<Balanced>(std::move(inner), options, kind == 1);
}

std::optional<DispatcherSpec> without_balance(const DispatcherSpec& spec) {
  const auto found = spec.options.find(kBalanceOption);
  if (found == spec.options.end() || found->second == kKinds[0]) return std::nullopt;
  DispatcherSpec plain = spec;
  plain.options.erase(std::string(kBalanceOption));
  for (const std::string_view key : kOwnOptions) plain.options.erase(std::string(key));
  return plain;
}

bool pays_for_balance(const Op& op) { return std::find(kPaid.begin(), kPaid.end(), op.name) != kPaid.end(); }

}  // namespace moesim::models

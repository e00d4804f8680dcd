#include "models/dispatchers/parts/balanced.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "models/routing/expert_placement.h"
#include "models/routing/redirection.h"

namespace moesim::models {

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
    const int nodes = layer.ep > layer.ranks_per_node && layer.ep % layer.ranks_per_node == 0
                          ? layer.ep / layer.ranks_per_node
                          : 1;
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

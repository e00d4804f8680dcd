// torchtitan fork: forced load balance (docs/spec.md 2.8). The router's debug mode sends slot f to expert f
// mod E, so that every rank knows all splits without asking: no counts, no host sync, cached sort indices.
#include <fmt/format.h>

#include <algorithm>

#include "models/dispatchers/parts/capacity.h"
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

namespace {

class TorchtitanForceBalance final : public Dispatcher {
 public:
  TorchtitanForceBalance(DispatcherOptions& options, Torchtitan source)
      : o_(options, source),
        whole_(source == Torchtitan::kWholeFork),
        direct_(options.flag("direct", false)),
        pad_(options.flag("pad", true)),
        compiled_(options.flag("compiled", false)),
        padding_(padding_option(options)) {
    if (options.given("pad_with") && !pad_)
      options.fail("found pad_with with pad=false, expected pad=true: nothing is padded");
    if (compiled_)
      for (const std::string_view key : {"direct", "pad", "pad_with"})
        if (options.given(key))
          options.fail(fmt::format(
              "found compiled with {}, expected one of them: torch.compile takes no fast path", key));
    chooses_direct_ = whole_ && !options.given("direct");
    if (whole_)
      for (const std::string_view key : {"policy", "threshold"})
        if (options.given(key))
          options.fail(
              fmt::format("found {} with force_load_balance, expected it without: it is of the "
                          "normal path",
                          key));
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    if (layer.ep == 1 && !whole_) return "the fast path needs ep > 1";
    if (layer.tp > 1 && !whole_)
      return "the fast path needs sp 1: rows are not split over a sequence-parallel group";
    if (!layer.routing->equal_tokens())
      return "it needs the same number of tokens on every rank: split lists are computed, not exchanged";
    if (o_.asked_counted && takes_fast_path(layer))
      return "counts=router has no effect here: counts follow from T, K and E";
    if (o_.contiguous) return "contiguous has no effect here: the permutation writes its rows anew";
    const Routing balanced = forced(layer);
    const LayerSizes f(layer, balanced);
    if (direct_ && layer.topk() != layer.local_experts())
      return fmt::format("direct needs K = local experts (E = K*EP), here K = {} and {} local experts",
                         layer.topk(), layer.local_experts());
    if (direct_ && o_.score_before)
      return "direct cannot be used with score_before_experts: rows are not sorted";
    // Every chunk is a stride of tokens, once for each local expert.
    if (direct_)
      for (const std::int64_t rows : f.splits)
        if (rows % f.E_l != 0)
          return fmt::format("direct needs splits that the {} local experts divide, found {} rows", f.E_l,
                             rows);
    if (direct_ && !pad_ && !equal_splits(f))
      return "direct feeds an equal exchange, which pad=false does without where splits differ";
    return o_.illegal(layer, f);
  }

  Program build(const MoeLayer& layer) const override {
    const Routing balanced = forced(layer);
    const LayerSizes f(layer, balanced);
    if (!takes_fast_path(layer)) {
      Program program = layer.ep == 1 ? torchtitan_local_program(on(layer, balanced), o_)
                                      : torchtitan_normal_program(layer, f, o_);
      program.forces_routing = true;
      return program;
    }
    const bool equal = equal_splits(f);
    const bool direct = direct_ || (chooses_direct_ && direct_serves(layer, f));
    const EqualSplit split(f);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const int matrix = b.matrix(GroupKind::kEp, f.splits);
    TorchtitanSteps steps(b, layer, f, o_);
    steps.set_counts_on_host();
    const auto exchange = [&](std::string_view name, Category category, bool there) {
      if (equal) {
        b.all_to_all(GroupKind::kEp, name, category, layer.activation, f.sent[0] * f.w);
      } else if (pad_) {
        split.exchange(b, name, category, layer.activation, f, there, padding_);
      } else {
        b.all_to_all_v(name, category, layer.activation, matrix, !there, f.w);
      }
    };
    const PerRank received = b.scaled(f.computed, f.w), sent = b.scaled(f.sent, f.w);
    if (!equal && pad_)
      b.program().warnings.push_back(
          "its tokens x top-k are no multiple of the experts: the fork pads every chunk to the largest for an equal exchange, "
          "which copies all rows once more each way (pad=false sends them uneven)");
    b.begin(ProgramBuilder::Pass::kForward);
    steps.save_input();
    if (direct) {
      // Chunk d is x[d::EP] repeated: strided copies without an index tensor.
      b.allocate("sorted rows", sent);
      b.kernel("strided chunks", Category::permute, KernelClass::kCopy, sent, sent);
    } else {
      steps.sort_and_gather(true);
    }
    steps.score(true);
    b.allocate("received rows", received);
    exchange("tokens", Category::dispatch, true);
    steps.view_or_gather();
    b.free("received rows", received);
    steps.run_experts();
    steps.inverse_view_or_scatter();
    steps.return_rows(exchange);
    auto& counters = b.program().counters;
    // Rows of one sender for each local expert, from the first rank with equally many for all of them.
    for (int r = 0; r < f.R; ++r)
      if (uniform_on(f, r)) {
        counters.emplace_back("uniform_local_count", f.experts[static_cast<std::size_t>(r) * f.E_l] / f.ep);
        break;
      }
    if (direct) counters.emplace_back("direct_equal_split_input", 1);
    if (pad_ && !equal) {
      counters.emplace_back("equal_a2a_padding_dispatch", 1);
      counters.emplace_back("equal_a2a_padding_combine", 1);
    }
    b.program().forces_routing = true;
    return finish(b, layer, f, steps.computed_rows());
  }

 private:
  // Several ranks, no sequence-parallel split, eager mode; the whole fork falls back to its normal path.
  bool takes_fast_path(const MoeLayer& layer) const { return !compiled_ && layer.ep > 1 && layer.tp == 1; }

  static bool equal_splits(const LayerSizes& f) {
    return std::all_of(f.splits.begin(), f.splits.end(),
                       [&](std::int64_t s) { return s == f.splits.front(); });
  }

  bool direct_serves(const MoeLayer& layer, const LayerSizes& f) const {
    return layer.topk() == layer.local_experts() && !o_.score_before && (pad_ || equal_splits(f)) &&
           std::all_of(f.splits.begin(), f.splits.end(), [&](std::int64_t s) { return s % f.E_l == 0; });
  }

  static MoeLayer on(const MoeLayer& layer, const Routing& routing) {
    MoeLayer there = layer;
    there.routing = &routing;
    return there;
  }

  // The router's debug mode: flat slot f goes to expert f mod E, on every rank.
  static Routing forced(const MoeLayer& layer) {
    RoutingSpec spec;
    spec.kind = RoutingSpec::Kind::kRoundRobin;
    return make_routing(spec, layer.ranks(), layer.routing->tokens(0), layer.experts(), layer.topk(), 0);
  }

  TorchtitanOptions o_;
  bool whole_, direct_, pad_, compiled_;
  bool chooses_direct_ = false;  // used where possible
  Padding padding_;
};

}  // namespace

std::unique_ptr<Dispatcher> torchtitan_forced_path(DispatcherOptions& options, Torchtitan source) {
  return std::make_unique<TorchtitanForceBalance>(options, source);
}

DispatcherEntry torchtitan_force_balance() {
  return {"torchtitan-force-balance",
          "torchtitan fork, router in debug mode: balanced by force, no counts, no syncs",
          [](DispatcherOptions& o) { return torchtitan_forced_path(o, Torchtitan::kFork); }};
}

}  // namespace moesim::models

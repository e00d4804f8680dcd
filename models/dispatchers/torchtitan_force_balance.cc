// torchtitan fork: forced load balance (docs/spec.md 2.8). The router's debug mode sends slot f to expert f
// mod E, so that every rank knows all splits without asking: no counts, no host sync, cached sort indices.
#include <fmt/format.h>

#include <algorithm>

#include "models/dispatchers/parts/equal_split.h"
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

namespace {

class TorchtitanForceBalance final : public Dispatcher {
 public:
  explicit TorchtitanForceBalance(DispatcherOptions& options)
      : o_(options),
        direct_(options.flag("direct", false)),
        pad_(options.flag("pad", false)),
        compiled_(options.flag("compiled", false)),
        padding_(padding_option(options)) {
    if (options.given("pad_with") && !pad_)
      options.fail("found pad_with without pad, expected pad=true: nothing is padded");
    if (compiled_ && (direct_ || pad_))
      options.fail(
          "found compiled with direct or pad, expected one of them: torch.compile takes no fast path");
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    if (layer.ep == 1) return "the fast path needs ep > 1";
    if (layer.tp > 1) return "the fast path needs sp 1: rows are not split over a sequence-parallel group";
    if (!layer.routing->equal_tokens())
      return "it needs the same number of tokens on every rank: split lists are computed, not exchanged";
    if (o_.counted && !compiled_) return "counts=router has no effect here: counts follow from T, K and E";
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
    return o_.illegal(layer, f);
  }

  Program build(const MoeLayer& layer) const override {
    const Routing balanced = forced(layer);
    const LayerSizes f(layer, balanced);
    if (compiled_) {
      Program program = torchtitan_normal_program(layer, f, o_);
      program.forces_routing = true;
      return program;
    }
    const bool equal =
        std::all_of(f.splits.begin(), f.splits.end(), [&](std::int64_t s) { return s == f.splits[0]; });
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
    b.begin(ProgramBuilder::Pass::kForward);
    steps.save_input();
    if (direct_) {
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
    if (uniform_on_every_rank(f)) counters.emplace_back("uniform_local_count", f.experts[0]);
    if (direct_) counters.emplace_back("direct_equal_split_input", 1);
    if (pad_ && !equal) {
      counters.emplace_back("equal_a2a_padding_dispatch", 1);
      counters.emplace_back("equal_a2a_padding_combine", 1);
    }
    b.program().forces_routing = true;
    return finish(b, layer, f, steps.computed_rows());
  }

 private:
  // The router's debug mode: flat slot f goes to expert f mod E, on every rank.
  static Routing forced(const MoeLayer& layer) {
    RoutingSpec spec;
    spec.kind = RoutingSpec::Kind::kRoundRobin;
    return make_routing(spec, layer.ranks(), layer.routing->tokens(0), layer.experts(), layer.topk(), 0);
  }

  TorchtitanOptions o_;
  bool direct_, pad_, compiled_;
  Padding padding_;
};

}  // namespace

DispatcherEntry torchtitan_force_balance() {
  return {"torchtitan-force-balance",
          "torchtitan fork, router in debug mode: balanced by force, no counts, no syncs",
          make_dispatcher_of<TorchtitanForceBalance>};
}

}  // namespace moesim::models

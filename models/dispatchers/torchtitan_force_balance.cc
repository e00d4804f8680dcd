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
      : o_(options), direct_(options.flag("direct", false)), pad_(options.flag("pad", false)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    if (layer.ep == 1) return "the fast path needs ep > 1";
    if (layer.tp > 1) return "the fast path needs sp 1: rows are not split over a sequence-parallel group";
    if (!layer.routing->equal_tokens())
      return "it needs the same number of tokens on every rank: split lists are computed, not exchanged";
    if (direct_ && layer.topk() != layer.local_experts())
      return fmt::format("direct needs K = local experts (E = K*EP), here K = {} and {} local experts",
                         layer.topk(), layer.local_experts());
    if (direct_ && o_.score_before)
      return "direct cannot be used with score_before_experts: rows are not sorted";
    if (direct_ && layer.routing->tokens(0) * layer.topk() % layer.experts() != 0)
      return fmt::format(
          "direct needs equal splits that local experts divide: {} rows over {} experts leave a rest",
          layer.routing->tokens(0) * layer.topk(), layer.experts());
    return o_.illegal(layer);
  }

  Program build(const MoeLayer& layer) const override {
    RoutingSpec spec;
    spec.kind = RoutingSpec::Kind::kRoundRobin;
    const Routing balanced =
        make_routing(spec, layer.ranks(), layer.routing->tokens(0), layer.experts(), layer.topk(), 0);
    const LayerSizes f(layer, balanced);
    const bool equal =
        std::all_of(f.splits.begin(), f.splits.end(), [&](std::int64_t s) { return s == f.splits[0]; });
    const bool uniform =
        std::all_of(f.experts.begin(), f.experts.end(), [&](std::int64_t n) { return n == f.experts[0]; });
    const EqualSplit split(f);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const int matrix = b.matrix(GroupKind::kEp, f.splits);
    TorchtitanSteps steps(b, layer, f, o_);
    const auto exchange = [&](std::string_view name, Category category, bool there) {
      if (equal) {
        b.all_to_all(GroupKind::kEp, name, category, layer.activation, f.sent[0] * f.w);
      } else if (pad_) {
        split.exchange(b, name, category, layer.activation, f, there);
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
    if (uniform) {
      steps.transpose_copy();
    } else {
      steps.index_and_gather();
    }
    b.free("received rows", received);
    steps.run_experts();
    steps.inverse_permute();
    exchange("tokens", Category::combine, false);
    steps.score(false);
    steps.scatter_add_back();
    steps.free_experts();
    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      steps.gather_gradient();
      exchange("output gradient", Category::combine, true);
      steps.inverse_permute_backward();
      steps.experts_backward_pass();
      steps.index_backward();
      exchange("hidden gradient", Category::dispatch, false);
      steps.input_gradient();
    }
    if (uniform) b.program().counters.emplace_back("uniform_local_count", f.experts[0]);
    if (direct_) b.program().counters.emplace_back("direct_equal_split_input", 1);
    b.program().forces_routing = true;
    return finish(b, layer, f, steps.computed_rows());
  }

 private:
  TorchtitanOptions o_;
  bool direct_, pad_;
};

}  // namespace

DispatcherEntry torchtitan_force_balance() {
  return {"torchtitan-force-balance",
          "torchtitan fork, router in debug mode: balanced by force, no counts, no syncs",
          make_dispatcher_of<TorchtitanForceBalance>};
}

}  // namespace moesim::models

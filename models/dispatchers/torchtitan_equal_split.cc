// torchtitan fork: equal-split padded all-to-all (docs/spec.md 2.7), for back ends where an equal
// all-to-all is faster than one with split lists. All ranks take the same decision; the largest chunk is
// reduced over the group.
#include <fmt/format.h>

#include "models/dispatchers/parts/capacity.h"
#include "models/dispatchers/parts/torchtitan.h"

namespace moesim::models {

namespace {

enum Policy : std::size_t { kForce, kAdaptive, kOff };
constexpr std::array<std::string_view, 3> kPolicies{"force", "adaptive", "off"};

class TorchtitanEqualSplit final : public Dispatcher {
 public:
  TorchtitanEqualSplit(DispatcherOptions& options, Torchtitan source)
      : o_(options, source),
        whole_(source == Torchtitan::kWholeFork),
        policy_(options.choice("policy", whole_ ? kOff : kForce, kPolicies)),
        threshold_(options.number("threshold", 0.10, 0, 1e6)),
        direct_(options.flag("direct", false)),
        padding_(padding_option(options)) {
    if (policy_ == kOff && options.given("pad_with"))
      options.fail("found pad_with with policy=off, expected policy=force or adaptive: nothing is padded");
    if (whole_)
      for (const std::string_view key : {"direct", "pad", "compiled"})
        if (options.given(key))
          options.fail(fmt::format("found {} without force_load_balance, whose path it belongs to", key));
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.etp > 1) return "torchtitan does not split experts over etp";
    if (layer.ep == 1 && whole_) return o_.illegal(layer, LayerSizes(layer));
    if (layer.ep == 1) return "it needs ep > 1: there is nothing to pad without an exchange";
    if (direct_ && layer.topk() != layer.local_experts())
      return fmt::format("direct needs K = local experts (E = K*EP), here K = {} and {} local experts",
                         layer.topk(), layer.local_experts());
    if (direct_) return "direct needs forced balance, use torchtitan-force-balance:direct=true";
    if (o_.contiguous) return "contiguous has no effect here: the permutation writes its rows anew";
    return o_.illegal(layer, LayerSizes(layer));
  }

  Program build(const MoeLayer& layer) const override {
    if (layer.ep == 1) return torchtitan_local_program(layer, o_);
    const LayerSizes f(layer);
    // The whole fork does not pad a sequence-parallel group's share.
    if (whole_ && (policy_ == kOff || layer.tp > 1)) return torchtitan_normal_program(layer, f, o_);
    const EqualSplit split(f);
    const bool pads = policy_ == kForce || (policy_ == kAdaptive && split.worst() <= threshold_);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const int matrix = pads ? -1 : b.matrix(GroupKind::kEp, f.splits);
    TorchtitanSteps steps(b, layer, f, o_);
    const auto exchange = [&](std::string_view name, Category category, bool there) {
      if (pads) {
        split.exchange(b, name, category, layer.activation, f, there, padding_);
      } else {
        b.all_to_all_v(name, category, layer.activation, matrix, !there, f.w);
      }
    };
    steps.begin();
    exchange_counts(b, f);
    if (policy_ != kOff) {
      // The pad width, and with policy=adaptive the worst overhead, must be the same everywhere.
      b.all_reduce(GroupKind::kEp, "largest chunk", Category::dispatch, DType::kInt64, 8);
      b.host_sync("largest chunk", Category::host_sync, b.uniform(8));
    }
    steps.run_exchanged(exchange);
    steps.return_rows(exchange);
    auto& counters = b.program().counters;
    if (pads) {
      counters.emplace_back("equal_a2a_padding_dispatch", 1);
      counters.emplace_back("equal_a2a_padding_combine", 1);
      counters.emplace_back("normal_equal_a2a_count", 2);
      counters.emplace_back("normal_equal_a2a_sum", 2 * f.ep * split.m);
      counters.emplace_back("normal_equal_a2a_min", f.ep * split.m);
      counters.emplace_back("normal_equal_a2a_max", f.ep * split.m);
    } else if (policy_ == kAdaptive) {
      b.program().warnings.push_back(fmt::format(
          "the worst padding overhead {:.2f} exceeds {:.2f}: not padded", split.worst(), threshold_));
    }
    return finish(b, layer, f, steps.computed_rows());
  }

 private:
  TorchtitanOptions o_;
  bool whole_;
  std::size_t policy_;
  double threshold_;
  bool direct_;
  Padding padding_;
};

}  // namespace

std::unique_ptr<Dispatcher> torchtitan_equal_path(DispatcherOptions& options, Torchtitan source) {
  return std::make_unique<TorchtitanEqualSplit>(options, source);
}

DispatcherEntry torchtitan_equal_split() {
  return {"torchtitan-equal-split", "torchtitan fork: chunks padded to the largest, equal all-to-all",
          [](DispatcherOptions& o) { return torchtitan_equal_path(o, Torchtitan::kFork); }};
}

}  // namespace moesim::models

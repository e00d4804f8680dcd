// MegaBlocks MoE with a capacity (docs/spec.md 2.12): every row travels, overflow is dropped by the
// receiver, the experts run as a batch of C rows each.
#include <algorithm>

#include "models/dispatchers/parts/megablocks.h"

namespace moesim::models {

namespace {

class MegablocksMoe final : public Dispatcher {
 public:
  explicit MegablocksMoe(DispatcherOptions& options)
      : o_(options),
        capacity_factor_(options.number("capacity_factor", 1.0, 0, 1e6)),
        nominal_(options.flag("nominal_capacity", false)) {}

  bool splits_experts() const override { return true; }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (!layer.routing->equal_tokens())
      return "it needs the same number of tokens on every rank for one capacity";
    return o_.illegal(layer);
  }

  Program build(const MoeLayer& layer) const override {
    const MegablocksFigures f(layer, o_);
    MegablocksCompute compute;
    compute.backend = GemmBackend::kBatched;
    // In the parallel path the row count after the top-k gather and the repetition replaces the tokens, so
    // that the capacity is K * hsd times the nominal one.
    const std::int64_t rows = nominal_ || f.W == 1 ? f.tokens[0] : f.tokens[0] * f.K * f.hsd;
    const auto C =
        static_cast<std::int64_t>(capacity_factor_ * (static_cast<double>(f.K) * static_cast<double>(rows) *
                                                      static_cast<double>(f.W) / static_cast<double>(f.E)));
    // A capacity of 0, also from truncation by int(), means each rank's own largest count.
    compute.sync_capacity = C == 0;
    compute.rows.assign(f.experts.size(), C);
    for (int r = 0; r < f.W; ++r) {
      const auto first = static_cast<std::size_t>(r) * f.E_pr;
      const auto own = f.experts.begin() + static_cast<std::ptrdiff_t>(first);
      if (C == 0)
        std::fill_n(compute.rows.begin() + static_cast<std::ptrdiff_t>(first), f.E_pr,
                    *std::max_element(own, own + f.E_pr));
      if (r >= f.esd) continue;  // the other hidden slices have the same rows
      for (int e = 0; e < f.E_pr; ++e)
        compute.dropped +=
            std::max<std::int64_t>(0, own[e] - compute.rows[first + static_cast<std::size_t>(e)]);
    }
    return megablocks_program(layer, o_, f, compute);
  }

 private:
  MegablocksOptions o_;
  double capacity_factor_;
  bool nominal_;
};

}  // namespace

DispatcherEntry megablocks_moe() {
  return {"megablocks-moe", "MegaBlocks MoE: capacity, overflow dropped by the receiver, batched experts",
          make_dispatcher_of<MegablocksMoe>};
}

}  // namespace moesim::models

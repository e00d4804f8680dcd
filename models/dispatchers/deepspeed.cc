// DeepSpeed MoE (docs/spec.md 2.13): one-hot masks of tokens, experts and places; dispatch and combine are
// products with them; an equal all-to-all of fixed capacity in between.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "models/dispatchers/parts/capacity.h"

namespace moesim::models {

namespace {

class DeepSpeed final : public Dispatcher {
 public:
  explicit DeepSpeed(DispatcherOptions& options)
      : capacity_factor_(options.number("capacity_factor", 1, 1e-6, 1e6)),
        min_capacity_(options.integer("min_capacity", 4, 0, 1 << 30)),
        drop_tokens_(options.flag("drop_tokens", true)),
        group_(options.integer("group", 0, 0, 1 << 30)) {
    if (!drop_tokens_ && options.given("capacity_factor"))
      options.fail(
          "found capacity_factor with drop_tokens=false, expected one of them: without dropping the "
          "capacity is the largest count");
    if (!drop_tokens_ && group_ > 0)
      options.fail("found group with drop_tokens=false, expected one of them: a group has a capacity");
  }

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (group_ > 0 && layer.routing->tokens(0) % group_ != 0)
      return fmt::format("its groups of {} tokens do not divide the {} tokens of a rank", group_,
                         layer.routing->tokens(0));
    return FixedCapacity::illegal(layer);
  }

  Program build(const MoeLayer& layer) const override {
    const FixedCapacity fixed(layer, rows_per_expert(layer));
    const LayerSizes& f = fixed.sizes;
    const std::int64_t T = f.T(), groups = groups_of(T), group = T / groups, slots = fixed.rows / groups;
    const std::int64_t mask = checked_product("deepspeed: bytes of the dispatch mask", {T, slots, 16}) /
                              16;  // elements of [T, E, C] over all groups
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    ExpertBlock block = expert_block(layer, f, b);
    // GShard's and MaxText's groups have their experts in one batched product.
    block.backend = group_ > 0 ? GemmBackend::kBatched : GemmBackend::kLoop;
    const int to_slots = b.table(1, std::vector<std::int64_t>(f.sent.size(), fixed.rows));
    const int to_tokens = b.table(1, f.tokens);
    const PerRank buffer = b.uniform(fixed.rows * f.w), input = b.uniform(T * f.w);
    const auto product = [&](std::string_view name, Category category, int rows, std::int64_t n,
                             std::int64_t k) {
      b.gemm(name, category, GemmPass::kForward, GemmBackend::kBatched, layer.activation, rows, n, k, 1, 1);
    };

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("layer input", input);
    b.save("dispatch mask", b.uniform(mask));
    b.save("combine weights", b.uniform(mask * f.b_p));
    b.kernel("places in the experts", Category::permute, KernelClass::kReduce,
             b.uniform(2 * f.K * T * f.E * 8), b.uniform(f.K * T * f.E * 8), 2 * f.K);
    if (!drop_tokens_ && f.ep > 1) {
      b.all_reduce(GroupKind::kEp, "largest capacity", Category::dispatch, DType::kInt64, 8);
      b.host_sync("largest capacity", Category::host_sync, b.uniform(8));
    }
    b.kernel("masks", Category::permute, KernelClass::kElementwise, b.uniform(T * f.E * f.b_p),
             b.uniform(mask * (1 + f.b_p)), 3);
    b.allocate("mask in the activation's dtype", b.uniform(mask * f.b));
    b.kernel("cast mask", Category::permute, KernelClass::kElementwise, b.uniform(mask),
             b.uniform(mask * f.b));
    b.allocate("dispatched rows", buffer);
    product("dispatch product", Category::permute, to_slots, f.H, group);
    b.free("mask in the activation's dtype", b.uniform(mask * f.b));
    b.save("expert input", buffer);
    b.all_to_all(GroupKind::kEp, "tokens", Category::dispatch, layer.activation, fixed.rows * f.w);
    b.free("dispatched rows", buffer);
    experts_forward(b, block);
    b.save("returned rows", buffer);
    b.all_to_all(GroupKind::kEp, "tokens", Category::combine, layer.activation, fixed.rows * f.w);
    b.allocate("output", input);
    product("combine product", Category::unpermute, to_tokens, f.H, slots);
    b.free("output", input);
    free_expert_output(b, block);

    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      b.allocate("gradient of the weights", b.uniform(mask * f.b_p));
      product("gradient of the combine weights", Category::unpermute, to_tokens, slots, f.H);
      b.allocate("gradient of returned rows", buffer);
      product("combine product backward", Category::unpermute, to_slots, f.H, group);
      b.allocate("incoming gradient", buffer);
      b.all_to_all(GroupKind::kEp, "output gradient", Category::combine, layer.activation, fixed.rows * f.w);
      experts_backward(b, block);
      b.all_to_all(GroupKind::kEp, "hidden gradient", Category::dispatch, layer.activation, fixed.rows * f.w);
      b.allocate("gradient of the input", input);
      product("dispatch product backward", Category::permute, to_tokens, f.H, slots);
      b.free("gradient of the input", input);
      b.free("incoming gradient", buffer);
      b.free("gradient of returned rows", buffer);
      b.free("gradient of the weights", b.uniform(mask * f.b_p));
    }
    b.program().dropped_rows = fixed.dropped;
    return finish(b, layer, f, f.computed);
  }

 private:
  std::int64_t rows_per_expert(const MoeLayer& layer) const {
    const Routing& n = *layer.routing;
    if (!drop_tokens_) return std::max<std::int64_t>(1, FixedCapacity::largest_count(n));
    const std::int64_t groups = groups_of(n.tokens(0));
    return groups * std::max({std::int64_t{1}, min_capacity_,
                              capacity(n.tokens(0) / groups, n.topk(), n.experts(), capacity_factor_)});
  }

  std::int64_t groups_of(std::int64_t tokens) const { return group_ > 0 ? tokens / group_ : 1; }

  double capacity_factor_;
  std::int64_t min_capacity_;
  bool drop_tokens_;
  std::int64_t group_;  // tokens that share a capacity and a mask; 0: all of a rank
};

}  // namespace

DispatcherEntry deepspeed() {
  return {"deepspeed", "DeepSpeed: fixed capacity, products with one-hot masks, equal all-to-all",
          make_dispatcher_of<DeepSpeed>};
}

}  // namespace moesim::models

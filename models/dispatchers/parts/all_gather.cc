#include "models/dispatchers/parts/all_gather.h"

namespace moesim::models {

std::optional<std::string> AllGather::illegal(const MoeLayer& layer) const {
  if (!layer.routing->equal_tokens())
    return "every rank must hold the same number of tokens (variable sequence lengths are rejected)";
  return std::nullopt;
}

Program AllGather::build(const MoeLayer& layer) const {
  const LayerSizes f(layer);
  const std::int64_t T = f.T(), RT = f.R * T;
  const std::vector<std::int64_t> gathered(f.R, RT), mask(f.R, RT * f.E_l);
  ProgramBuilder b(layer.ep, layer.etp, layer.tp);
  const PerRank all_rows = b.uniform(RT * f.w);
  const PerRank cast_rows = b.uniform(RT * f.H * f.b_p);
  const PerRank local_map = b.uniform(RT * f.E_l * (1 + f.b_p));
  const bool cast = f.b_p != f.b && f.R > 1;
  ExpertBlock block = expert_block(layer, f, b);
  block.probability = true;

  b.begin(ProgramBuilder::Pass::kForward);
  b.save("router input", b.uniform(T * f.w));
  b.all_gather(GroupKind::kTpEp, "routing map", Category::dispatch, DType::kBool, T * f.E);
  b.all_gather(GroupKind::kTpEp, "probabilities", Category::dispatch, layer.router, T * f.E * f.b_p);
  b.all_gather(GroupKind::kTpEp, "hidden states", Category::dispatch, layer.activation, T * f.w);
  b.save("local map and probabilities", local_map);
  b.kernel("slice map and probabilities", Category::permute, KernelClass::kCopy, local_map, local_map, 2);
  b.kernel("count local rows", Category::permute, KernelClass::kHistogram, b.uniform(RT * f.E_l),
           b.uniform(f.E_l * 8));
  b.host_sync("rows per expert", Category::host_sync, b.uniform(f.E_l * 8));
  b.save("permuted rows", b.scaled(f.computed, f.w));
  b.save("row ids and probabilities", b.scaled(f.computed, 8 + f.b_p));
  if (permute_fusion_) {
    b.kernel("row id map", Category::permute, KernelClass::kCopy, b.uniform(RT * f.E_l),
             b.uniform(RT * f.E_l * 4));
  } else {
    sort_keys(b, "sort map", Category::permute, mask, 1, 8, 8);
  }
  gather_rows(b, "permute", Category::permute, f.computed, f.w);
  b.kernel("select probabilities", Category::permute, KernelClass::kSelect, local_map,
           b.scaled(f.computed, f.b_p));
  b.host_sync("size of the selection", Category::host_sync, b.uniform(8));
  experts_forward(b, block);
  b.allocate("unpermuted output", all_rows);
  unpermute(b, f, gathered, mask);
  free_expert_output(b, block);
  if (cast) {
    b.allocate("output in router dtype", cast_rows);
    b.kernel("cast to router dtype", Category::combine, KernelClass::kElementwise, all_rows, cast_rows);
  }
  b.reduce_scatter(GroupKind::kTpEp, "output", Category::combine, layer.router, T * f.H * f.b_p);
  if (cast) {
    b.free("output in router dtype", cast_rows);
    b.kernel("cast back", Category::combine, KernelClass::kElementwise, b.uniform(T * f.H * f.b_p),
             b.uniform(T * f.w));
  }
  b.free("unpermuted output", all_rows);
  b.program().persistent_bytes = f.R > 1 ? RT * f.w : 0;
  if (layer.train) backward(b, layer, f, block, gathered);
  return finish(b, layer, f, f.computed);
}

void AllGather::unpermute(ProgramBuilder& b, const LayerSizes& f, const std::vector<std::int64_t>& gathered,
                          const std::vector<std::int64_t>& mask) const {
  if (permute_fusion_) {
    b.kernel("unpermute", Category::unpermute, KernelClass::kGatherRows,
             combined(b, f.computed, f.w, mask, 4), b.scaled(gathered, f.w));
  } else {
    scatter_add(b, "unpermute", Category::unpermute, f.computed, gathered, f.w);
  }
}

void AllGather::backward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f,
                         const ExpertBlock& block, const std::vector<std::int64_t>& gathered) const {
  const std::int64_t T = f.T(), RT = f.R * T;
  const PerRank all_cast = b.uniform(RT * f.H * f.b_p);
  const PerRank rows = b.scaled(f.computed, f.w);
  b.begin(ProgramBuilder::Pass::kBackward);
  b.allocate("gathered output gradient", all_cast);
  b.all_gather(GroupKind::kTpEp, "output gradient", Category::combine, layer.router, T * f.H * f.b_p);
  b.allocate("incoming gradient", rows);
  gather_rows(b, "unpermute backward", Category::unpermute, f.computed, f.w);
  b.free("gathered output gradient", all_cast);
  experts_backward(b, block);
  const PerRank dense = b.uniform(RT * f.E * f.b_p);
  b.allocate("gradient of all probabilities", dense);
  b.kernel("scatter probability gradients", Category::permute, KernelClass::kScatterRows,
           b.scaled(f.computed, 8 + f.b_p), dense, 2);
  const PerRank all_rows = b.uniform(RT * f.w);
  b.allocate("gradient of all rows", all_rows);
  scatter_add(b, "permute backward", Category::permute, f.computed, gathered, f.w);
  b.free("incoming gradient", rows);
  b.reduce_scatter(GroupKind::kTpEp, "hidden gradient", Category::dispatch, layer.activation, T * f.w);
  b.free("gradient of all rows", all_rows);
  b.reduce_scatter(GroupKind::kTpEp, "probability gradient", Category::dispatch, layer.router,
                   T * f.E * f.b_p);
  b.free("gradient of all probabilities", dense);
}

}  // namespace moesim::models

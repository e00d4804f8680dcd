// Megatron AlltoAll dispatcher, legacy sequence form (docs/spec.md 2.2.3): with tensor parallelism rows
// travel with H/TP columns; no probabilities travel, they multiply at the end; splits are read by blocking
// copies.
#include "models/dispatchers/parts/common.h"

namespace moesim::models {

namespace {

class AllToAllLegacy final : public Dispatcher {
 public:
  explicit AllToAllLegacy(DispatcherOptions&) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.hidden % layer.etp != 0)
      return "the hidden size must be a multiple of etp: rows travel with H/TP columns";
    if (layer.etp > 1 && !layer.routing->equal_tokens())
      return "with etp > 1 every rank must hold the same number of tokens: the exchange over TP is an equal "
             "one";
    return std::nullopt;
  }

  Program build(const MoeLayer& layer) const override {
    const LayerSizes f(layer);
    const bool columns = f.etp > 1;
    const std::int64_t part = f.w / f.etp;  // bytes of a row on the wire
    // Every rank of a TP group holds the tokens of the whole group, with the same rows.
    std::vector<std::int64_t> tokens(f.R), rows(f.R), splits(f.splits.size(), 0);
    for (int r = 0; r < f.R; ++r)
      for (int t = 0; t < f.etp; ++t) {
        const int peer = r / f.etp * f.etp + t;
        tokens[r] += f.tokens[peer];
        rows[r] += f.sent[peer];
      }
    const std::size_t block_size = std::size_t(f.ep) * f.ep;
    for (int t = 0; t < f.etp; ++t)
      for (std::size_t i = 0; i < block_size; ++i)
        for (int other = 0; other < f.etp; ++other)
          splits[t * block_size + i] += f.splits[other * block_size + i];

    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const int matrix = b.matrix(GroupKind::kEp, splits);
    const ExpertBlock block = expert_block(layer, f, b);
    const PerRank sent = b.scaled(rows, part), received = b.scaled(f.computed, part),
                  full = b.scaled(f.computed, f.w);
    const PerRank output = b.scaled(f.tokens, f.w);

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("router input", b.scaled(f.tokens, f.w));
    b.save("probabilities and row ids", b.scaled(rows, 8 + f.b_p));
    b.kernel("count rows per expert", Category::permute, KernelClass::kHistogram, b.scaled(rows, 8),
             b.uniform(f.E * 8));
    b.host_sync("input splits", Category::host_sync, b.uniform(f.ep * 8));
    b.all_gather(GroupKind::kEp, "counts", Category::dispatch, DType::kInt64, f.E * 8);
    b.host_sync("output splits", Category::host_sync, b.uniform(f.ep * 8));
    const bool sorts = f.E_l > 1;
    if (sorts) {  // repeat_interleave: local expert of every row to come, whose number it reads back
      b.kernel("sum of counts", Category::permute, KernelClass::kReduce, b.uniform(f.E * 8),
               b.uniform(f.E * 8));
      b.host_sync("received rows", Category::host_sync, b.uniform(8));
      b.kernel("local experts of rows", Category::permute, KernelClass::kElementwise, b.uniform(f.E * 12),
               b.scaled(f.computed, 4));
    }
    if (columns)
      b.all_to_all(GroupKind::kTp, "tokens to columns", Category::dispatch, layer.activation, f.T() * f.w);
    b.allocate("permuted rows", sent);
    sort_keys(b, "sort by expert", Category::permute, rows, 8, 8, 64);
    gather_rows(b, "permute rows", Category::permute, rows, part);
    b.allocate("received rows", received);
    b.all_to_all_v("tokens", Category::dispatch, layer.activation, matrix, false, part);
    if (columns) {
      b.allocate("gathered columns", full);
      b.all_gather_rows(GroupKind::kTp, "columns", Category::dispatch, layer.activation, f.computed, part);
    }
    b.save("expert input", full);
    if (sorts) {
      sort_keys(b, "sort by local expert", Category::permute, f.computed, 4, 8, 32);
      gather_rows(b, "sort chunks", Category::permute, f.computed, f.w);
    }
    if (columns) b.free("gathered columns", full);
    b.free("received rows", received);
    b.free("permuted rows", sent);
    experts_forward(b, block);
    if (sorts) {  // the same function as at the end, with one choice
      b.kernel("unsort chunks", Category::unpermute, KernelClass::kScatterRows, b.scaled(f.computed, f.w + 8),
               full);
      b.kernel("sum over one choice", Category::unpermute, KernelClass::kReduce, full, full);
    }
    if (columns)
      b.reduce_scatter_rows(GroupKind::kTp, "columns", Category::combine, layer.activation, f.computed, part);
    b.save("returned rows", sent);  // for the gradient of the probabilities
    b.all_to_all_v("tokens", Category::combine, layer.activation, matrix, true, part);
    b.kernel("multiply probabilities", Category::unpermute, KernelClass::kElementwise,
             b.scaled(rows, part + f.b_p), sent);
    b.allocate("output", output);
    b.kernel("unpermute", Category::unpermute, KernelClass::kGatherRows, b.scaled(rows, part + 8),
             b.scaled(tokens, part));
    if (columns)
      b.all_to_all(GroupKind::kTp, "columns to tokens", Category::combine, layer.activation, f.T() * f.w);
    b.free("output", output);
    free_expert_output(b, block);

    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      if (columns)
        b.all_to_all(GroupKind::kTp, "output gradient to columns", Category::combine, layer.activation,
                     f.T() * f.w);
      b.allocate("gradient of returned rows", sent);
      gather_rows(b, "unpermute backward", Category::unpermute, rows, part);
      b.kernel("probability backward", Category::unpermute, KernelClass::kElementwise,
               b.scaled(rows, 2 * part + f.b_p), b.scaled(rows, part + f.b_p), 2);
      b.allocate("incoming gradient", full);
      b.all_to_all_v("output gradient", Category::combine, layer.activation, matrix, false, part);
      if (columns)
        b.all_gather_rows(GroupKind::kTp, "columns of the gradient", Category::combine, layer.activation,
                          f.computed, part);
      if (sorts) gather_rows(b, "unsort chunks backward", Category::unpermute, f.computed, f.w);
      experts_backward(b, block);
      if (sorts) scatter_add(b, "sort chunks backward", Category::permute, f.computed, f.computed, f.w);
      if (columns)
        b.reduce_scatter_rows(GroupKind::kTp, "columns of the gradient", Category::dispatch, layer.activation,
                              f.computed, part);
      b.all_to_all_v("hidden gradient", Category::dispatch, layer.activation, matrix, true, part);
      b.free("incoming gradient", full);
      b.allocate("gradient of the input", output);
      scatter_add(b, "permute backward", Category::permute, rows, tokens, part);
      if (columns)
        b.all_to_all(GroupKind::kTp, "gradient to tokens", Category::dispatch, layer.activation, f.T() * f.w);
      b.free("gradient of the input", output);
      b.free("gradient of returned rows", sent);
    }
    return finish(b, layer, f, f.computed);
  }
};

}  // namespace

DispatcherEntry megatron_alltoall_legacy() {
  return {"alltoall-legacy",
          "Megatron AlltoAll, sequence form: rows travel with H/TP columns, probabilities stay",
          make_dispatcher_of<AllToAllLegacy>};
}

}  // namespace moesim::models

// Megatron Flex dispatcher, DeepEP back end (docs/spec.md 2.3): one copy of a token per destination rank,
// counts exchanged through mapped memory while the host spins, combine sums at the source.
#include <array>

#include "models/dispatchers/parts/common.h"
#include "models/dispatchers/parts/deduplicated.h"
#include "models/dispatchers/parts/shared_expert.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, 3> kTransports{"nvshmem", "uccl", "mori"};
constexpr std::array kLibraries{ExchangeLibrary::kDeepEp, ExchangeLibrary::kUccl, ExchangeLibrary::kMori};
// SMs in the libraries' own measurements (DeepEP README; V2: DeepEP README, EFA reports).
constexpr int kSms = 20, kSmsV2 = 12;

ExchangeLibrary library_of(DispatcherOptions& options) {
  const auto transport = static_cast<std::size_t>(options.choice("transport", 0, kTransports));
  if (!options.flag("v2", false)) return kLibraries[transport];
  if (options.given("transport"))
    options.fail("found transport beside v2, expected one of them: DeepEP V2 goes over NCCL");
  return ExchangeLibrary::kDeepEpV2;
}

class FlexDeepEp final : public Dispatcher {
 public:
  explicit FlexDeepEp(DispatcherOptions& options)
      : fp8_(options.flag("fp8_dispatch", false)),
        worst_case_(options.flag("worst_case_rows", false)),
        pad_map_(options.integer("pad_rows", 1, 1, 1 << 20)),
        library_(library_of(options)),
        sms_(static_cast<int>(
            options.integer("sms", library_ == ExchangeLibrary::kDeepEpV2 ? kSmsV2 : kSms, 2, 256))),
        shared_overlap_(options.flag("shared_overlap", false)),
        batch_overlap_(options.flag("batch_overlap", false)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override {
    if (layer.ranks() == 1) return "it needs more than one rank: DeepEP exchanges rows between ranks";
    if (fp8_ && !layer.fp8) return "fp8_dispatch needs a GPU with 8-bit floats, this one has none";
    if (shared_overlap_ && layer.shared_ffn == 0)
      return "shared_overlap needs a shared expert, this model has none";
    if (batch_overlap_)
      if (auto rule = rule_against_batch_overlap(layer, shared_overlap_)) return rule;
    return DeduplicatedExchange::illegal(layer);
  }

  bool balances() const override { return true; }

  Program build(const MoeLayer& given) const override {
    MoeLayer layer = given;
    layer.router = DType::kFp32;  // probabilities are forced to fp32
    const LayerSizes f(layer);
    ProgramBuilder b(layer.ep, layer.etp, layer.tp);
    const DeduplicatedExchange exchange(b, layer, f, library_, sms_);
    const std::vector<std::int64_t>& U = exchange.received();
    b.program().overlaps_batches = batch_overlap_;
    ExpertBlock block = expert_block(layer, f, b);
    block.probability = true;
    if (pad_map_ > 1) {
      const std::vector<std::int64_t> padded = round_up_each(f.experts, pad_map_);
      block.rows = sums_per_rank(padded, f.E_l);
      block.table = b.table(f.E_l, padded);
    }
    const std::int64_t K = std::int64_t{f.etp} * f.K;  // destinations of a token
    const std::int64_t payload = fp8_ ? f.H + ceil_div(f.H, 128) * 4 : f.w;
    const PerRank rows = b.scaled(block.rows, f.w), unique = b.scaled(U, f.w);

    b.begin(ProgramBuilder::Pass::kForward);
    b.save("router input", b.scaled(f.tokens, f.w));
    b.save("top-k indices and weights", b.scaled(f.tokens, K * 12));
    SharedExpert shared(b, layer, f, shared_overlap_);
    b.kernel("top-k to indices", Category::permute, KernelClass::kReduce, b.scaled(f.tokens, f.E * f.b_p),
             b.scaled(f.tokens, K * 12), 2);
    b.kernel("layout", Category::permute, KernelClass::kHistogram, b.scaled(f.tokens, K * 8),
             b.scaled(f.tokens, f.R, std::int64_t{f.R + f.E} * 4));
    shared.gather();
    // Counts of every pair: rows, and rows per local expert (our reading of "a few KB").
    b.all_to_all(GroupKind::kTpEp, "notify", Category::dispatch, DType::kInt32,
                 std::int64_t{f.R} * (1 + f.E_l) * 4);
    b.mark_kernel(false, false);
    if (!worst_case_) b.host_sync("counts of all peers", Category::host_sync, b.uniform((1 + f.E_l) * 4));
    b.allocate("received rows", unique);
    exchange.dispatch("tokens", Category::dispatch, fp8_ ? DType::kFp8 : layer.activation, payload,
                      "indices and weights", K * (8 + 4));
    shared.up();
    b.kernel("indices to multi-hot", Category::permute, KernelClass::kScatterRows, b.scaled(U, K * 12),
             b.scaled(U, f.E_l * (1 + f.b_p)), 2);
    b.save("permuted rows and probabilities", b.scaled(block.rows, f.w + f.b_p));
    b.save("row id map", b.scaled(U, f.E_l * 4));
    b.kernel("permute", Category::permute, KernelClass::kGatherRows, b.scaled(f.computed, f.w + 8), rows);
    b.free("received rows", unique);
    experts_forward(b, block);
    b.allocate("unpermuted rows", unique);
    b.kernel("unpermute", Category::unpermute, KernelClass::kGatherRows,
             combined(b, f.computed, f.w, U, f.E_l * 4), unique);
    exchange.combine("tokens", Category::combine, layer.activation, f.w, "", 0);
    shared.down();
    shared.add();
    b.free("unpermuted rows", unique);
    free_expert_output(b, block);

    if (layer.train) {
      b.begin(ProgramBuilder::Pass::kBackward);
      SharedExpert shared_backward(b, layer, f, shared_overlap_);
      shared_backward.backward_gather();
      b.allocate("received gradients", unique);
      exchange.dispatch("output gradient", Category::combine, layer.activation, f.w, "", 0);
      shared_backward.backward_down();
      b.allocate("incoming gradient", rows);
      gather_rows(b, "unpermute backward", Category::unpermute, f.computed, f.w);
      experts_backward(b, block);
      b.kernel("permute backward", Category::permute, KernelClass::kGatherRows,
               combined(b, f.computed, f.w, U, f.E_l * 4), unique);
      exchange.combine("hidden gradient", Category::dispatch, layer.activation, f.w, "weight gradients",
                       K * 4);
      shared_backward.backward_up();
      shared_backward.add();
      b.free("incoming gradient", rows);
      b.free("received gradients", unique);
    }
    if (!f.routing->has_choices() && f.K > 1)
      b.program().warnings.push_back(
          "copies per token are their expectation: the routing has counts, not choices");
    return finish(b, layer, f, block.rows);
  }

 private:
  bool fp8_, worst_case_;
  std::int64_t pad_map_;
  ExchangeLibrary library_;
  int sms_;
  bool shared_overlap_, batch_overlap_;
};

}  // namespace

DispatcherEntry megatron_flex_deepep() {
  return {"flex-deepep",
          "Megatron Flex with DeepEP: one copy of a token per rank (per node over the network)",
          make_dispatcher_of<FlexDeepEp>};
}

}  // namespace moesim::models

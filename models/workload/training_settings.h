// Execution of a whole training step: precision, sharding, pipeline schedule, recomputation, overlap; and the
// names of its enums.
// Parallel sizes are in models/workload/parallel.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/hardware/dtype.h"

namespace moesim::models {

// The names of an enum's values, in their order: one table serves reading, writing and help.
template <class Enum>
inline constexpr std::array<std::string_view, 0> kNamesOf{};

template <class Enum>
concept Named = !kNamesOf<Enum>.empty();

template <class... Name>
constexpr std::array<std::string_view, sizeof...(Name)> name_list(Name... names) {
  return {names...};
}

template <Named Enum>
constexpr std::string_view name_of(Enum value) {
  return kNamesOf<Enum>[static_cast<std::size_t>(value)];
}

// Returns the position of a name. Throws InputError naming `what`, and the nearest name.
std::size_t index_named(std::string_view what, std::string_view name,
                        std::span<const std::string_view> names);

template <Named Enum>
Enum named(std::string_view what, std::string_view name) {
  return static_cast<Enum>(index_named(what, name, kNamesOf<Enum>));
}

// Recomputation inside a dispatcher's program: none, the experts' activation, or the whole MoE layer with its
// collectives.
enum class Recompute : std::uint8_t { kNone, kActivation, kProducts, kFull };

// Recomputation in backward, named as in Megatron's --recompute-modules.
struct StepRecompute {
  bool full = false;        // every layer
  bool attention = false;   // "core_attn": the attention core
  bool latent = false;      // "mla_up_proj": MLA's up projections
  bool norms = false;       // "layernorm"
  bool activation = false;  // "moe_act": the experts' activation
  bool moe = false;         // "moe": the whole MoE layer with its collectives
  bool dense = false;       // "mlp": the FFN of dense layers
  bool shared = false;      // "shared_experts"
  bool streams = false;     // "mhc": the streams of hyper-connections (residual.h)
  // "op": torchtitan's selective checkpointing by operation. Kept are the outputs of every second product
  // with a weight, of attention's core and of collectives; all else is computed again
  // (torchtitan/distributed/activation_checkpoint.py: its list of operations to save).
  bool operations = false;

  bool any() const {
    return full || attention || latent || norms || activation || moe || dense || shared || streams ||
           operations;
  }
  // Returns the recomputation inside a dispatcher's program; that of a whole layer runs around it.
  Recompute of_program() const {
    if (moe) return Recompute::kFull;
    if (operations) return Recompute::kProducts;
    return activation ? Recompute::kActivation : Recompute::kNone;
  }
  friend bool operator==(const StepRecompute&, const StepRecompute&) = default;
  // "none", or the names joined with "+".
  std::string text() const;
  // Inverse of text(); separators "+", "," or blanks; "selective" is "core_attn", "activation" is "moe_act".
  // Throws InputError with the nearest name.
  static StepRecompute parse(std::string_view text);
};

enum class ShardingScheme : std::uint8_t {
  kDdp,    // all-reduce of gradients
  kZero1,  // distributed optimizer: reduce-scatter of gradients, all-gather of parameters
  kZero2,  // gradients sharded, too: reduce-scatter in every pass (arXiv 1910.02054)
  kFsdp,   // ZeRO-3: all-gather per unit in forward (and backward), reduce-scatter of gradients
  kHsdp,   // FSDP inside a shard group, all-reduce over the replicate group
};
template <>
inline constexpr auto kNamesOf<ShardingScheme> = name_list("ddp", "zero1", "zero2", "fsdp", "hsdp");
// Whether a scheme shards the weights themselves.
constexpr bool shards_weights(ShardingScheme scheme) {
  return scheme == ShardingScheme::kFsdp || scheme == ShardingScheme::kHsdp;
}

// Parsed "ddp", "zero1" (also "distributed-optimizer"), "zero2", "fsdp" or "hsdp:shard=8", with ":reshard=false" (FSDP
// keeps gathered parameters until backward) and ":shampoo" (one all-gather of updates per step).
struct ShardingSpec {
  ShardingScheme scheme = ShardingScheme::kZero1;
  std::int64_t shard = 0;  // HSDP: ranks of a shard group; 0: not given
  bool reshard = true;
  bool shampoo = false, muon = false;

  // Throws InputError for an unknown scheme or option, with the nearest name, and for shard without hsdp.
  static ShardingSpec parse(const std::string& text);
};

enum class PipelineKind : std::uint8_t {
  k1F1B,        // one forward, one backward; interleaved where vpp > 1 (Megatron)
  kZeroBubble,  // ZB-H1 (arXiv 2401.10241): weight gradients fill the bubble, same memory as 1F1B
  // bidirectional (DeepSeek-V3, arXiv 2412.19437): two directions, forward and backward overlapped
  kDualPipe,
};
template <>
inline constexpr auto kNamesOf<PipelineKind> = name_list("1f1b", "zero-bubble", "dualpipe");

// The unit that FSDP gathers and reduces at once.
enum class FsdpUnit : std::uint8_t {
  kAuto,     // a layer, its experts separately where they have data-parallel ranks of their own
  kModule,   // attention and FFN of a layer separately
  kBlock,    // a layer
  kRoot,     // the whole model: one gather before everything, one reduction after it
  kExperts,  // a layer, its experts always separately: fully_shard() first on them, then on the block
};
template <>
inline constexpr auto kNamesOf<FsdpUnit> = name_list("auto", "module", "block", "root", "experts");

// State that is kept in the host's memory instead of the GPU's.
enum class Offload : std::uint8_t {
  kNone,
  kOptimizer,    // master weights and moments; Adam runs on the host (Megatron's --optimizer-cpu-offload)
  kActivations,  // tensors that layers keep for backward; two layers are on the GPU at a time
  kBoth,
};
template <>
inline constexpr auto kNamesOf<Offload> = name_list("none", "optimizer", "activations",
                                                    "optimizer+activations");
inline bool offloads_optimizer(Offload o) { return o == Offload::kOptimizer || o == Offload::kBoth; }
inline bool offloads_activations(Offload o) { return o == Offload::kActivations || o == Offload::kBoth; }

// Kernel of the attention core.
// Cross entropy over the vocabulary, by what it holds of the logits of a microbatch.
enum class LossKernel : std::uint8_t {
  kFused,    // bf16, turned into their gradient in place
  kFp32,     // and a copy in fp32
  kEager,    // and PyTorch's cross entropy of that copy, which keeps three tensors in fp32
  kChunked,  // of a few tokens at a time, with the product (Liger's fused linear cross entropy)
};
template <>
inline constexpr auto kNamesOf<LossKernel> = name_list("fused", "fp32", "eager", "chunked");

enum class AttentionKernel : std::uint8_t {
  kFlash,           // fused: scores are never written
  kUnfused,         // scores and probabilities go through memory, in whole rows
  kUnfusedDropout,  // the same, with dropout on the probabilities
};
template <>
inline constexpr auto kNamesOf<AttentionKernel> = name_list("flash", "unfused", "unfused-dropout");

// Formats of what backward needs besides the inputs of products, which keep their own.
enum class ActivationFormat : std::uint8_t {
  kBf16,
  // DeepSeek-V3 (arXiv 2412.19437, 3.3.3): inputs of SwiGLU in fp8, its output computed again, and attention's
  // output, for its own backward and the next product, in E5M6
  kFp8,
};
template <>
inline constexpr auto kNamesOf<ActivationFormat> = name_list("bf16", "fp8");

// Distributed Shampoo (arXiv 2309.06497): schedule of the roots of its preconditioners.
struct Shampoo {
  static constexpr std::int64_t kBlock = 1024;  // largest side of a preconditioner (max_preconditioner_dim)
  std::int64_t frequency = 1;                   // steps between two computations of the roots
  std::int64_t start = 0;  // first step that uses them; 0: the frequency, as the library interprets -1
  std::int64_t step = 0;   // the step to forecast; 0: the mean over a period after the start
};

// Low-rank adapters beside frozen weights (arXiv 2106.09685): a product with W is given one with B A, of
// `rank` columns between the two; nothing else is trained.
struct Lora {
  enum class Modules : std::uint8_t {
    kAttention,  // the projections of attention and of mixers that keep a state
    kDense,      // these and dense FFNs and shared experts
    kExperts,    // these and routed experts, each of which has adapters of its own
  };
  std::int64_t rank = 0;  // 0: all weights are trained
  Modules modules = Modules::kAttention;

  friend bool operator==(const Lora&, const Lora&) = default;
};
template <>
inline constexpr auto kNamesOf<Lora::Modules> = name_list("attention", "attention+ffn",
                                                          "attention+ffn+experts");

// Operations that overlap with others.
struct StepOverlap {
  // Dispatch and combine under the other microbatch (or DualPipe's other half).
  bool expert_communication = false;
  bool gradients = true;       // reduce-scatter under the backward of the last microbatch
  bool parameters = true;      // all-gather under the forward of the first microbatch
  bool delayed_wgrad = false;  // weight gradients fill the idle time of expert communication
  friend bool operator==(const StepOverlap&, const StepOverlap&) = default;
  // Reads "expert-communication", "gradients", "parameters", "delayed-wgrad" joined with
  // "+", or "none". Throws InputError with the nearest name.
  static StepOverlap parse(std::string_view text);
};

// Launching of kernels: by the host one by one, or by CUDA graphs.
enum class LaunchMode : std::uint8_t {
  kEager,
  kPartialGraphs,  // attention and router are graphs, the experts with their host synchronisation are not
  kGraphs,         // the whole iteration: no host time, no blocking synchronisation
};
template <>
inline constexpr auto kNamesOf<LaunchMode> = name_list("eager", "partial-graphs", "graphs");

// The training framework that launches the kernels.
enum class Framework : std::uint8_t {
  // Megatron-Core and similar: eager launches of many small kernels around the operations. Whether the host
  // is tuned is left open
  kMegatron,
  kNone,            // the kernels alone, as a micro-benchmark runs them
  kMegatronRecipe,  // Megatron tuned for this job on this machine: a published performance recipe
  kMegatronStock,   // Megatron with its library defaults: the host is not tuned
};
template <>
inline constexpr auto kNamesOf<Framework> = name_list("megatron", "none", "megatron-recipe",
                                                      "megatron-stock");

// Types of Adam's state. Published recipes of large models keep moments in bf16 (Megatron-Core's
// precision-aware optimizer; DeepSeek-V3, arXiv 2412.19437, 3.3.3).
struct OptimizerTypes {
  DType master = DType::kFp32;                        // weights
  DType first = DType::kFp32, second = DType::kFp32;  // moments
  int bytes() const { return bytes_of(master) + bytes_of(first) + bytes_of(second); }
  friend bool operator==(const OptimizerTypes&, const OptimizerTypes&) = default;
  // "fp32,bf16,bf16": master weights, first and second moment. Throws InputError for anything but three of
  // fp32, bf16, fp16 and fp8.
  std::string text() const;
  static OptimizerTypes parse(std::string_view text);
};

// Logging of a job's overload factors (docs/spec.md 4).
struct OverloadLog {
  // All-reduces at the end of a step: none, sequential as in the first version, or packed into one per group.
  enum class Report : std::uint8_t { kNone, kSequential, kFused };
  // Effect of CUDA graph replays, where no host hook runs, on the log. kDeferredClear: entries marked for
  // clearing stay, and graphs write their values again. kDirectClear: entries are gone. kJournal: graphs also
  // write a journal on the device.
  enum class Recorder : std::uint8_t { kDeferredClear, kDirectClear, kJournal };
  Report report = Report::kNone;
  Recorder recorder = Recorder::kDeferredClear;
  bool allgather_quirk = false;  // OverloadOptions::allgather_quirk of the log
  friend bool operator==(const OverloadLog&, const OverloadLog&) = default;
};
template <>
inline constexpr auto kNamesOf<OverloadLog::Report> = name_list("none", "sequential", "fused");
template <>
inline constexpr auto kNamesOf<OverloadLog::Recorder> = name_list("deferred-clear", "direct-clear",
                                                                  "journal");

// Orders of the parallel axes, the fastest first; by TrainingSettings::stages_inside.
inline constexpr auto kRankOrders = name_list("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp");

struct TrainingSettings {
  Framework framework = Framework::kMegatron;
  // for the products with weights (attention's core, router and head stay in bf16)
  DType gemm = DType::kBf16;
  bool fp8_attention = false;
  ActivationFormat activations = ActivationFormat::kBf16;
  AttentionKernel attention = AttentionKernel::kFlash;
  LossKernel loss = LossKernel::kFused;
  // Tensor-parallel ranks split the rows between their products; false: each holds all rows, and outputs are
  // all-reduced.
  bool sequence_parallel = true;
  ShardingScheme sharding = ShardingScheme::kZero1;
  std::int64_t shard_group = 0;       // HSDP: ranks of a shard group; 0: those of one node
  bool reshard_after_forward = true;  // FSDP, HSDP: parameters are gathered again in backward
  bool shampoo = false;               // Distributed Shampoo instead of Adam
  Shampoo preconditioning;
  // Muon instead of Adam (kellerjordan.github.io/posts/muon, arXiv 2502.16982): the layers' matrices have one
  // moment, which so many Newton-Schulz steps orthogonalise.
  bool muon = false;
  std::int64_t newton_schulz_steps = 5;
  Lora lora;
  FsdpUnit fsdp_unit = FsdpUnit::kAuto;
  Offload offload = Offload::kNone;
  // Schemes of the router's and the experts' modules where they are wrapped separately; nullopt: as
  // `sharding`.
  std::optional<ShardingScheme> router_sharding, expert_sharding;
  bool foreach = true;  // the optimizer updates many tensors in one kernel
  // the loss is computed on logits whose columns stay on their tensor-parallel ranks
  bool loss_parallel = true;
  PipelineKind pipeline = PipelineKind::k1F1B;
  StepRecompute recompute;
  StepOverlap overlap;
  LaunchMode launch = LaunchMode::kEager;
  bool fused_kernels = false;  // activation, conversion and permutation inside the products' kernels
  int gradient_bytes = 4;      // per element, as accumulated and reduced: 4 or 2
  OptimizerTypes optimizer;
  OverloadLog overload;
  bool unfolded = false;  // experts are placed as before parallel folding: EP inside DP, ETP = TP
  // Megatron's --use-tp-pp-dp-mapping: replicas are the slowest axis of the ranks, and stages lie inside
  // them.
  bool stages_inside = false;

  // Sets one of kPrecisions. FP4 has no known measurement: see GemmModel, and `note` says so.
  // Throws InputError for anything else.
  void set_precision(std::string_view name);
  // Sets everything about sharding from a text for ShardingSpec::parse().
  void set_sharding(std::string_view text);

  std::string precision = "bf16";  // as requested
  std::string note;                // note of set_precision()
};

}  // namespace moesim::models

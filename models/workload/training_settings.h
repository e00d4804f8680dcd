// Execution of a whole training step: precision, sharding, pipeline schedule, recomputation, overlap.
// Parallel sizes are in models/workload/parallel.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/hardware/dtype.h"
#include "models/workload/recompute.h"
#include "models/workload/sharding.h"

namespace moesim::models {

enum class PipelineKind : std::uint8_t {
  k1F1B,        // one forward, one backward; interleaved where vpp > 1 (Megatron)
  kZeroBubble,  // ZB-H1 (arXiv 2401.10241): weight gradients fill the bubble, same memory as 1F1B
  // bidirectional (DeepSeek-V3, arXiv 2412.19437): two directions, forward and backward overlapped
  kDualPipe,
};

// The unit that FSDP gathers and reduces at once.
enum class FsdpUnit : std::uint8_t {
  kAuto,     // a layer, its experts separately where they have data-parallel ranks of their own
  kModule,   // attention and FFN of a layer separately
  kBlock,    // a layer
  kRoot,     // the whole model: one gather before everything, one reduction after it
  kExperts,  // a layer, its experts always separately: fully_shard() first on them, then on the block
};

// State that is kept in the host's memory instead of the GPU's.
enum class Offload : std::uint8_t {
  kNone,
  kOptimizer,    // master weights and moments; Adam runs on the host (Megatron's --optimizer-cpu-offload)
  kActivations,  // tensors that layers keep for backward; two layers are on the GPU at a time
  kBoth,
};
inline bool offloads_optimizer(Offload o) { return o == Offload::kOptimizer || o == Offload::kBoth; }
inline bool offloads_activations(Offload o) { return o == Offload::kActivations || o == Offload::kBoth; }

// Kernel of the attention core.
enum class AttentionKernel : std::uint8_t {
  kFlash,           // fused: scores are never written
  kUnfused,         // scores and probabilities go through memory, in whole rows
  kUnfusedDropout,  // the same, with dropout on the probabilities
};

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

// The training framework that launches the kernels.
enum class Framework : std::uint8_t {
  // Megatron-Core and similar: eager launches of many small kernels around the operations. Whether the host
  // is tuned is left open
  kMegatron,
  kNone,            // the kernels alone, as a micro-benchmark runs them
  kMegatronRecipe,  // Megatron tuned for this job on this machine: a published performance recipe
  kMegatronStock,   // Megatron with its library defaults: the host is not tuned
};

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

struct TrainingSettings {
  Framework framework = Framework::kMegatron;
  // for the products with weights (attention's core, router and head stay in bf16)
  DType gemm = DType::kBf16;
  bool fp8_attention = false;
  AttentionKernel attention = AttentionKernel::kFlash;
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

  // Sets Megatron's order of ranks, fastest axis first; one of rank_orders(). Throws InputError for others.
  void set_rank_order(std::string_view order);
  std::string_view rank_order() const;
  // Sets "megatron", "none", "megatron-recipe" or "megatron-stock". Throws InputError with the nearest name.
  void set_framework(std::string_view name);
  // Sets "bf16", "fp8", "fp8_block" or "mxfp8"; also "nvfp4", which has no known measurement: it takes
  // MXFP8's products, and `note` says so. Throws InputError for anything else.
  void set_precision(std::string_view name);
  // Set "1f1b", "interleaved", "zero-bubble", "dualpipe"; "eager", "partial-graphs", "graphs". Throw
  // InputError with the nearest name.
  void set_pipeline(std::string_view name);
  void set_launch(std::string_view name);
  // Set "none", "sequential", "fused"; "deferred-clear", "direct-clear", "journal". Throw likewise.
  void set_overload_report(std::string_view name);
  void set_overload_recorder(std::string_view name);
  void set_fsdp_unit(std::string_view name);
  void set_offload(std::string_view name);
  void set_attention(std::string_view name);
  void set_lora_modules(std::string_view name);
  // Sets everything about sharding from a text for ShardingSpec::parse().
  void set_sharding(std::string_view text);

  std::string precision = "bf16";  // as requested
  std::string note;                // note of set_precision()
};

std::string_view name_of(FsdpUnit unit);  // "auto", "module", "block", "root", "experts"
std::span<const std::string_view> fsdp_unit_names();
std::string_view name_of(Offload offload);  // "none", "optimizer", "activations", "optimizer+activations"
std::span<const std::string_view> offload_names();
std::string_view name_of(AttentionKernel kernel);  // "flash", "unfused", "unfused-dropout"
std::span<const std::string_view> attention_names();
std::string_view name_of(Lora::Modules modules);  // "attention", "attention+ffn", "attention+ffn+experts"
std::span<const std::string_view> lora_module_names();
std::span<const std::string_view> rank_orders();
std::string_view name_of(Framework framework);
std::string_view name_of(PipelineKind kind);
std::string_view name_of(LaunchMode mode);
std::string_view name_of(OverloadLog::Report report);
std::string_view name_of(OverloadLog::Recorder recorder);

// Names that the setters take.
std::span<const std::string_view> framework_names();
std::span<const std::string_view> precision_names();
std::span<const std::string_view> pipeline_names();
std::span<const std::string_view> launch_names();
std::span<const std::string_view> overload_report_names();
std::span<const std::string_view> overload_recorder_names();

}  // namespace moesim::models

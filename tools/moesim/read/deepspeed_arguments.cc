// DeepSpeed's configuration (ds_config.json). It contains the batch, the precision and the sharding; model,
// plan and dispatcher are set in the program, and here by options.
#include <fmt/format.h>

#include "models/workload/scenario.h"
#include "tools/moesim/read/arguments.h"

namespace moesim::tools {

namespace {

using models::Scenario;
using models::ShardingScheme;

// The three sizes of a batch, of which two determine the third.
void read_batch(JobReader& r) {
  const auto global = r.whole("train_batch_size"), micro = r.whole("train_micro_batch_size_per_gpu"),
             steps = r.whole("gradient_accumulation_steps");
  if (micro) r.set("parallel.micro_batch", *micro);
  if (steps) r.set("parallel.microbatches", *steps);
  if (!global) return;
  r.job().global_batch = *global;
  if (micro && steps) {
    if (*global % (*micro * *steps) != 0)
      r.fail("train_batch_size", fmt::format("a multiple of micro batch {} x {} steps", *micro, *steps));
    r.set("parallel.dp", *global / (*micro * *steps));
  }
}

void write_batch(const Scenario& s, Arguments& out) {
  const models::Parallel& p = s.parallel;
  out.emplace_back("train_batch_size", p.micro_batch * p.dp * p.microbatches);
  out.emplace_back("train_micro_batch_size_per_gpu", p.micro_batch);
  out.emplace_back("gradient_accumulation_steps", p.microbatches);
}

void read_precision(JobReader& r) {
  const bool bf16 = r.flag("bf16.enabled") || r.flag("bfloat16.enabled");
  const bool fp16 = r.flag("fp16.enabled");
  if (fp16) r.approximate("fp16.enabled", "priced as bf16: as many bytes, and as fast");
  if (!bf16 && !fp16)
    r.fail_without("neither bf16.enabled nor fp16.enabled",
                   "one of them: training in fp32 is not modelled here");
  r.set("training.precision", "bf16");
}

void write_precision(const Scenario&, Arguments& out) { out.emplace_back("bf16.enabled", true); }

void read_zero(JobReader& r) {
  const std::int64_t stage = r.whole("zero_optimization.stage", 0, 3).value_or(0);
  // The schemes in the order of DeepSpeed's stages: ddp, zero1, zero2, fsdp.
  r.set("training.sharding", std::string(name_of(static_cast<ShardingScheme>(stage))));
  const bool overlap = r.flag("zero_optimization.overlap_comm", stage == 3);
  r.set("training.overlap.gradients", overlap);
  r.set("training.overlap.parameters", stage == 3 && overlap);
  const std::string device =
      r.choice("zero_optimization.offload_optimizer.device", "none", {"none", "cpu", "nvme"});
  if (device == "nvme")
    r.fail("zero_optimization.offload_optimizer.device", "cpu: a disk is not modelled here");
  if (device == "cpu") r.set("training.offload", "optimizer");
  if (r.choice("zero_optimization.offload_param.device", "none", {"none", "cpu", "nvme"}) != "none")
    r.fail("zero_optimization.offload_param.device", "none: parameters on the host are not modelled here");
  const std::string type = r.choice("communication_data_type", "", {"fp32", "fp16", "bf16", "bfp16"});
  const std::string sums = r.choice("data_types.grad_accum_dtype", "", {"fp32", "fp16", "bf16"});
  const bool half = (sums.empty() ? type : sums) != "fp32" && !(sums.empty() && type.empty());
  r.set("training.gradient_bytes", half || (sums.empty() && type.empty()) ? 2 : 4);
}

void write_zero(const Scenario& s, Arguments& out) {
  const ShardingScheme scheme = s.training.sharding;
  if (scheme == ShardingScheme::kHsdp || !s.training.reshard_after_forward)
    throw InputError(
        "sharding: found hsdp or weights that stay gathered, which are not written as arguments of DeepSpeed, "
        "expected ddp, zero1, zero2 or fsdp");
  out.emplace_back("zero_optimization.stage", static_cast<int>(scheme));
  out.emplace_back("zero_optimization.overlap_comm", s.training.overlap.gradients);
  if (models::offloads_optimizer(s.training.offload))
    out.emplace_back("zero_optimization.offload_optimizer.device", "cpu");
  out.emplace_back("data_types.grad_accum_dtype", s.training.gradient_bytes == 4 ? "fp32" : "bf16");
}

void read_plan(JobReader& r) {
  if (const auto tp = r.whole("tensor_parallel.autotp_size")) r.set("parallel.tp", *tp);
  if (const auto sp = r.whole("sequence_parallel_size"); sp && *sp > 1)
    r.fail("sequence_parallel_size", "1: DeepSpeed-Ulysses is not modelled here");
  r.only_adam("optimizer.type", {"AdamW", "Adam", "FusedAdam", "auto"});
}

void write_plan(const Scenario& s, Arguments& out) {
  out.emplace_back("optimizer.type", "AdamW");
  if (s.parallel.tp > 1) out.emplace_back("tensor_parallel.autotp_size", s.parallel.tp);
}

}  // namespace

std::vector<ArgumentRule> deepspeed_rules() {
  return {
      {{"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"},
       read_batch,
       write_batch},
      {{"bf16.enabled", "bfloat16.enabled", "fp16.enabled"}, read_precision, write_precision},
      {{"zero_optimization.stage", "zero_optimization.overlap_comm",
        "zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device",
        "communication_data_type", "data_types.grad_accum_dtype"},
       read_zero,
       write_zero},
      {{"tensor_parallel.autotp_size", "sequence_parallel_size", "optimizer.type"}, read_plan, write_plan}};
}

}  // namespace moesim::tools

// Megatron's arguments of the parallel plan: sizes, stages, batch, order of the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/hardware/cluster.h"
#include "models/hardware/gpu_family.h"
#include "models/step/pipeline_layout.h"
#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"
#include "tools/moesim/read/argument_checks.h"
#include "tools/moesim/read/megatron_rules.h"

namespace moesim::tools::megatron {

namespace {

using models::Scenario;

// An integer at a path of a scenario; not written where it is `fallback`.
ArgumentRule plain(const char* name, const char* path, std::int64_t (*value)(const Scenario&),
                   std::int64_t fallback) {
  return {{name},
          [name, path](JobReader& r) {
            if (const auto v = r.whole(name)) r.set(path, *v);
          },
          [name, value, fallback](const Scenario& s, Arguments& out) {
            if (const std::int64_t v = value(s); v != fallback) out.emplace_back(name, v);
          }};
}

// Reads the sizes of the job that one GPU imitates, rank by rank.
std::optional<std::int64_t> imitated_tp(JobReader& r) {
  const bool scaling = r.flag("is_scaling_mode");
  const auto rank = r.whole("exp_rank", 0), tp = r.whole("fake_tp");
  for (const char* name : {"exp_rank", "fake_tp"})
    if (!scaling && r.has(name)) r.fail(name, "--is-scaling-mode beside it");
  const std::int64_t ep = r.whole_or("expert_model_parallel_size", 1);
  if (rank && *rank >= ep) r.fail("exp_rank", fmt::format("an EP rank below {}", ep));
  return tp;
}

void read_tensor_parallel(JobReader& r) {
  const std::int64_t real = r.whole_or("tensor_model_parallel_size", 1);
  const std::optional<std::int64_t> imitated = imitated_tp(r);
  const std::int64_t tp = imitated.value_or(real);
  r.set("parallel.tp", tp);
  const bool experts = experts_of(r) > 0;
  // Default: that of the rest.
  if (experts) r.set("parallel.etp", r.whole_or("expert_tensor_parallel_size", tp));
  // The imitated job has it; its recorder switches it off.
  if (r.flag("sequence_parallel") || tp == 1 || imitated) return;
  if (experts)
    r.fail("tensor_model_parallel_size",
           "--sequence-parallel beside it: Megatron trains experts under tensor parallelism only with it");
  r.set("training.sequence_parallel", false);
}

void write_tensor_parallel(const Scenario& s, Arguments& out) {
  out.emplace_back("tensor_model_parallel_size", s.parallel.tp);
  put_flag(out, s.parallel.tp > 1 && s.training.sequence_parallel, "sequence_parallel");
  if (s.model.experts > 0) out.emplace_back("expert_tensor_parallel_size", s.parallel.etp);
}

// Returns the layers of each stage as a layout, "Etttt|ttttt|tttttL"; "" where Megatron cuts so by itself.
std::string layout_of(const Scenario& s) {
  const models::Parallel& p = s.parallel;
  if (p.pp == 1 || !s.model.pattern.empty()) return "";
  if (s.model.layers % (p.pp * p.vpp) == 0 && models::is_cut_evenly(s.model, p)) return "";
  std::vector<std::string> stages;
  for (const models::Chunk& chunk : models::PipelineLayout(s, false).chunks) {
    std::string stage = chunk.embedding ? "E" : "";
    for (const models::LayerKind& layer : chunk.layers) stage += layer.mtp ? 'm' : 't';
    stages.push_back(stage + (chunk.head ? "L" : ""));
  }
  return join(stages, "|");
}

void read_pipeline(JobReader& r) {
  const std::int64_t pp = r.whole_or("pipeline_model_parallel_size", 1);
  r.set("parallel.pp", pp);
  const auto virtual_stages = r.whole("num_virtual_stages_per_pipeline_rank");
  const auto layers_each = r.whole("num_layers_per_virtual_pipeline_stage");
  const std::string layout = r.text("pipeline_model_parallel_layout");
  std::int64_t vpp = virtual_stages.value_or(1);
  if (layers_each && pp > 1) {
    const std::int64_t layers = r.whole("num_layers").value_or(0);
    if (layers == 0 || layers % (pp * *layers_each) != 0)
      r.fail("num_layers_per_virtual_pipeline_stage",
             fmt::format("a number that divides the layers of each of {} stages", pp));
    vpp = layers / pp / *layers_each;
  }
  if (!layout.empty()) {
    const auto counts = count_layout(layout);
    if (counts.empty() || counts.at('|') % pp != 0)
      r.fail("pipeline_model_parallel_layout", fmt::format("a layout of stages for {} ranks", pp));
    vpp = counts.at('|') / pp;
    r.approximate("pipeline_model_parallel_layout",
                  "stages are cut so that the heaviest is as light as possible, not as it says");
  }
  if (const HybridPattern pattern = hybrid_pattern(r); pattern.stages > 1) {
    if (pattern.stages % pp != 0) r.fail("hybrid_layer_pattern", fmt::format("stages (|) for {} ranks", pp));
    vpp = pattern.stages / pp;
    r.approximate("hybrid_layer_pattern", "its layers are used; stages are cut as evenly as possible");
  }
  r.set("parallel.vpp", vpp);
}

void write_pipeline(const Scenario& s, Arguments& out) {
  out.emplace_back("pipeline_model_parallel_size", s.parallel.pp);
  if (const std::string layout = layout_of(s); !layout.empty())
    out.emplace_back("pipeline_model_parallel_layout", layout);
  else if (s.parallel.vpp > 1 && s.model.pattern.empty())  // a hybrid model's pattern says its stages
    out.emplace_back("num_virtual_stages_per_pipeline_rank", s.parallel.vpp);
}

void read_batch(JobReader& r) {
  r.set("parallel.micro_batch", r.whole_or("micro_batch_size", 1));
  r.job().global_batch = r.whole("global_batch_size").value_or(0);
  if (const auto seq = r.whole("seq_length")) r.set("parallel.seq", *seq);
}

void write_batch(const Scenario& s, Arguments& out) {
  const models::Parallel& p = s.parallel;
  out.emplace_back("micro_batch_size", p.micro_batch);
  out.emplace_back("global_batch_size", p.micro_batch * p.dp * p.microbatches);
  out.emplace_back("seq_length", p.seq);
  out.emplace_back("max_position_embeddings", p.seq);
}

void read_order(JobReader& r) {
  if (r.flag("use_tp_pp_dp_mapping")) r.set("training.rank_order", "tp-cp-ep-pp-dp");
}

void write_order(const Scenario& s, Arguments& out) {
  put_flag(out, s.training.stages_inside, "use_tp_pp_dp_mapping");
  // On all but Blackwell Megatron asks for it, so that communication is issued before the products that hide it.
  const bool splits = s.parallel.tp > 1 || s.parallel.cp > 1;
  const bool others =
      s.training.sharding == models::ShardingScheme::kFsdp || s.training.overlap.expert_communication;
  const models::GpuFamily* family = s.cluster ? models::gpu_family(s.cluster->profile.name()) : nullptr;
  if (splits && !others && family && !family->blackwell()) out.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", 1);
}

}  // namespace

std::vector<ArgumentRule> parallel_rules() {
  return {
      {{"tensor_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel", "is_scaling_mode",
        "fake_tp", "exp_rank"},
       read_tensor_parallel,
       write_tensor_parallel},
      {{"pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout"},
       read_pipeline,
       write_pipeline},
      plain(
          "context_parallel_size", "parallel.cp", [](const Scenario& s) { return s.parallel.cp; }, 1),
      plain(
          "expert_model_parallel_size", "parallel.ep", [](const Scenario& s) { return s.parallel.ep; }, 1),
      {{"micro_batch_size", "global_batch_size", "seq_length"}, read_batch, write_batch}};
}

std::vector<ArgumentRule> order_rules() { return {{{"use_tp_pp_dp_mapping"}, read_order, write_order}}; }

}  // namespace moesim::tools::megatron

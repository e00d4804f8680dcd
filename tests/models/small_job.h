// Training jobs that tests of steps share: one so small that its numbers can be followed by hand (a dense
// layer and three MoE layers on one DGX), and one of a published model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "models/hardware/cluster.h"
#include "models/workload/scenario.h"

namespace moesim::models::testing {

inline Architecture small_model() {
  Architecture a;
  a.name = "small";
  a.hidden = 64;
  a.layers = 4;
  a.vocabulary = 128;
  a.attention.heads = 4;
  a.attention.kv_heads = 2;
  a.attention.head_dim = 16;
  a.dense_ffn = 96;
  a.dense_layers = 1;
  a.experts = 8;
  a.topk = 2;
  a.expert_ffn = 32;
  return a;
}

inline std::shared_ptr<const Cluster> cluster_named(const std::string& name) {
  return std::make_shared<const Cluster>(Cluster::load(name));
}

// EP 4 on eight GPUs, 64 tokens a rank, two microbatches; not resolved.
inline Scenario small_job(const std::string& cluster = "dgx-h100x1") {
  Scenario s;
  s.model = small_model();
  s.cluster = cluster_named(cluster);
  s.set_dispatchers("alltoall");
  s.parallel.ep = 4;
  s.parallel.seq = 64;
  s.parallel.microbatches = 2;
  s.scope = Scenario::Scope::kStep;
  return s;
}

// Fills in derived values; for members that are initialised with a scenario.
inline Scenario resolved(Scenario s) {
  s.resolve();
  return s;
}

// A published model's step: EP 8, eight microbatches of 4,096 tokens; not resolved.
inline Scenario published_job(const std::string& model = "qwen3-30b-a3b",
                              const std::string& cluster = "dgx-h100x2") {
  Scenario s;
  s.model = Architecture::load(model);
  s.cluster = cluster_named(cluster);
  s.set_dispatchers("alltoall");
  s.parallel.ep = 8;
  s.parallel.microbatches = 8;
  s.parallel.seq = 4096;
  s.scope = Scenario::Scope::kStep;
  return s;
}

}  // namespace moesim::models::testing

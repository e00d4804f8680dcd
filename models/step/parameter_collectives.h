// Collectives of parameters, gradients and optimizers that a layer's data parallelism adds
// (docs/spec.md 5.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/parallel.h"
#include "models/workload/sharding.h"

namespace moesim::models {

// Whether FSDP and HSDP gather parameters and reduce gradients in every pass. In a pipeline parameters stay
// gathered for all microbatches and gradients leave after the last one, once a step: torchtitan's default
// there, and its pipeline stages reduce in their last backward only. (DeepSpeed has no ZeRO-3 with a
// pipeline.)
inline bool sharded_in_every_pass(const Parallel& parallel) { return parallel.pp == 1; }

struct ParameterTraffic {
  std::int64_t dense_parameters = 0;  // held by one rank before data-parallel sharding
  std::int64_t expert_parameters = 0;
  std::int64_t router_parameters = 0;  // of the dense ones
  // Of modules that are wrapped apart; none: as the rest.
  std::optional<ShardingScheme> router_scheme, expert_scheme;
  std::int64_t dense_group = 1;   // DP x CP
  std::int64_t expert_group = 1;  // EDP
  std::int64_t shard_group = 1;   // HSDP: ranks that shard; the rest replicates
  int gradient_bytes = 4;
  int weight_bytes = 2;
  std::int64_t microbatches = 1;      // that FSDP gathers and reduces for; 1 unless sharded_in_every_pass()
  bool reshard_after_forward = true;  // FSDP, HSDP: gather again in backward
  bool root_unit = false;             // FSDP, HSDP: one unit, which stays gathered until its backward
  bool overlapped = true;             // DDP: gradients are bucketed, to overlap with backward
};

struct ParameterCollective {
  CommKind kind = CommKind::kAllReduce;
  std::string_view what;   // "dense gradients", "expert parameters", ...
  std::int64_t group = 1;  // ranks
  std::int64_t bytes = 0;  // the whole buffer, over all calls of a step
  std::int64_t tx = 0;     // bytes that one rank sends, over all calls of a step
  std::int64_t calls = 1;  // per step
  bool experts = false;    // among the replicas of experts
  bool replicas = false;   // its group has one rank of each group that shards
};

// HSDP: how many of a rank's expert replicas shard, where `dense_shard` of `dense_group` ranks shard the
// rest. The dense mesh is (replicate, shard), the sparse one (replicate, shard x CP x TP / (EP x ETP), EP,
// ETP), so that as many ranks replicate experts as replicate the rest (docs/spec.md 5.2); at least one
// shards.
std::int64_t expert_shard_group(std::int64_t dense_group, std::int64_t dense_shard,
                                std::int64_t expert_group);

// All of them for one step; groups of one have none. Wire bytes are rounded down to whole bytes of the total.
std::vector<ParameterCollective> parameter_collectives(ShardingScheme scheme,
                                                       const ParameterTraffic& traffic);

// Parameters of a gradient bucket of Megatron's DDP: max(40e6, 1e6 * dp).
std::int64_t ddp_bucket_parameters(std::int64_t data_parallel);

// Distributed Shampoo's all-gather of updates per step: `parameters` elements of `bytes` each that a rank
// holds before sharding, among the ranks that hold the same shard: all of `group` (DDP), the replicas (HSDP,
// of `shard` ranks each), nobody (FSDP).
ParameterCollective shampoo_gather(ShardingScheme scheme, bool experts, std::int64_t parameters, int bytes,
                                   std::int64_t group, std::int64_t shard);

}  // namespace moesim::models

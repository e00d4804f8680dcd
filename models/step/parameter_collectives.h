// Collectives of parameters, gradients and optimizers that data parallelism adds to a step (docs/spec.md
// 5.3).
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
// gathered for all microbatches and gradients are reduced once a step, after the last one: torchtitan's
// default there, and its pipeline stages reduce in their last backward only. (DeepSpeed has no ZeRO-3 with a
// pipeline.)
inline bool sharded_in_every_pass(const Parallel& parallel) { return parallel.pp == 1; }

struct ParameterTraffic {
  std::int64_t dense_parameters = 0;  // held by one rank before data-parallel sharding
  std::int64_t expert_parameters = 0;
  std::int64_t router_parameters = 0;  // part of dense_parameters
  // Schemes of separately wrapped modules; nullopt: as the rest.
  std::optional<ShardingScheme> router_scheme, expert_scheme;
  std::int64_t dense_group = 1;   // DP x CP
  std::int64_t expert_group = 1;  // EDP
  std::int64_t shard_group = 1;   // HSDP: ranks of a shard group; the rest replicates
  int gradient_bytes = 4;
  int weight_bytes = 2;
  std::int64_t microbatches = 1;      // for which FSDP gathers and reduces; 1 unless sharded_in_every_pass()
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
  bool replicas = false;   // its group has one rank of each shard group
};

// HSDP: returns how many of a rank's expert replicas shard, where `dense_shard` of `dense_group` ranks shard
// the rest. The dense mesh is (replicate, shard), the sparse one (replicate, shard x CP x TP / (EP x ETP),
// EP, ETP), so that as many ranks replicate experts as replicate the rest (docs/spec.md 5.2); at least one
// shards.
std::int64_t expert_shard_group(std::int64_t dense_group, std::int64_t dense_shard,
                                std::int64_t expert_group);

// Returns all collectives of one step; groups of one have none. Wire bytes are the total rounded down to
// bytes.
std::vector<ParameterCollective> parameter_collectives(ShardingScheme scheme,
                                                       const ParameterTraffic& traffic);

// Returns the parameters of a gradient bucket of Megatron's DDP: max(40e6, 1e6 * dp).
std::int64_t ddp_bucket_parameters(std::int64_t data_parallel);

// Returns Distributed Shampoo's all-gather of updates per step: `parameters` elements (before sharding) of
// `bytes` each, among the ranks that hold the same shard: all of `group` (DDP), the replicas (HSDP, shard
// groups of `shard` ranks), or none (FSDP).
ParameterCollective shampoo_gather(ShardingScheme scheme, bool experts, std::int64_t parameters, int bytes,
                                   std::int64_t group, std::int64_t shard);

}  // namespace moesim::models

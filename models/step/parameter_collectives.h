// Collectives of parameters, gradients and optimizers that data parallelism adds to a step (docs/spec.md
// 5.3): the only description of them, which step_transfers() times for a step and answer() for a layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "models/programs/program.h"
#include "models/workload/parallel.h"
#include "models/workload/training_settings.h"

namespace moesim::models {

// Whether FSDP and HSDP gather parameters and reduce gradients in every pass. In a pipeline parameters stay
// gathered for all microbatches and gradients are reduced once a step, after the last one: torchtitan's
// default there, and its pipeline stages reduce in their last backward only. (DeepSpeed has no ZeRO-3 with a
// pipeline.)
inline bool sharded_in_every_pass(const Parallel& parallel) { return parallel.pp == 1; }

// Parameters of one kind that a rank holds before data-parallel sharding, and those that have gradients.
struct HeldParameters {
  double held = 0, trained = 0;
  std::int64_t units = 1;  // FSDP, HSDP: calls that a pass divides them into

  static HeldParameters all(double held, std::int64_t units = 1) { return {held, held, units}; }
};

struct ParameterTraffic {
  HeldParameters dense, experts;
  HeldParameters router;  // wrapped apart; not part of `dense`
  // Schemes of separately wrapped modules; nullopt: as the rest.
  std::optional<ShardingScheme> router_scheme, expert_scheme;
  std::int64_t dense_group = 1;   // DP x CP
  std::int64_t expert_group = 1;  // EDP
  std::int64_t shard_group = 1;   // HSDP: ranks of a shard group; the rest replicates
  int gradient_bytes = 4;
  int weight_bytes = 2;
  std::int64_t microbatches = 1;
  bool every_pass = true;             // sharded_in_every_pass()
  bool reshard_after_forward = true;  // FSDP, HSDP: gather again in backward
  bool root_unit = false;             // FSDP, HSDP: one unit, which stays gathered until its backward
  bool buckets = true;                // DDP: gradients are bucketed, to overlap with backward
};

// Whether backward passes gather the parameters again.
inline bool gathers_again(const ParameterTraffic& t) {
  return t.every_pass && t.reshard_after_forward && !t.root_unit;
}

struct ParameterCollective {
  CommKind kind = CommKind::kAllReduce;
  std::string_view what;    // "dense gradients", "expert parameters", ...
  std::int64_t group = 1;   // ranks
  double buffer = 0;        // bytes of the whole buffer, in one pass
  std::int64_t calls = 1;   // in one pass
  std::int64_t passes = 1;  // per step
  bool every_pass = false;  // in each microbatch's pass; else once a step
  bool experts = false;     // among the replicas of experts
  bool replicas = false;    // its group has one rank of each shard group

  bool moves() const { return group > 1 && buffer > 0; }
  // Returns the bytes of a call as CollectiveModel::seconds() takes them.
  double message() const {
    return buffer /
           (static_cast<double>(calls) * (kind == CommKind::kAllReduce ? 1.0 : static_cast<double>(group)));
  }
  // Return the calls, the bytes of all buffers and the bytes that one rank sends, per step; rounded down.
  std::int64_t calls_per_step() const { return calls * passes; }
  std::int64_t bytes_per_step() const { return static_cast<std::int64_t>(buffer) * passes; }
  std::int64_t tx_per_step() const;
};

// A collective on one pipeline stage with the time of one pass's calls, one after the other and alone.
struct TimedCollective {
  ParameterCollective what;
  double seconds = 0;

  double us_per_step() const { return seconds * static_cast<double>(what.passes) * 1e6; }
};

// HSDP: returns how many of a rank's expert replicas shard, where `dense_shard` of `dense_group` ranks shard
// the rest. The dense mesh is (replicate, shard), the sparse one (replicate, shard x CP x TP / (EP x ETP),
// EP, ETP), so that as many ranks replicate experts as replicate the rest (docs/spec.md 5.2); at least one
// shards.
std::int64_t expert_shard_group(std::int64_t dense_group, std::int64_t dense_shard,
                                std::int64_t expert_group);

// Returns all collectives of one step; neither groups of one nor empty buffers have any.
std::vector<ParameterCollective> parameter_collectives(ShardingScheme scheme,
                                                       const ParameterTraffic& traffic);

// Returns the parameters of a gradient bucket of Megatron's DDP: max(40e6, 1e6 * dp).
std::int64_t ddp_bucket_parameters(std::int64_t data_parallel);

// Returns Distributed Shampoo's all-gather of updates per step: `parameters` elements (before sharding) of
// `bytes` each, among the ranks that hold the same shard: all of `group` (DDP), the replicas (HSDP, shard
// groups of `shard` ranks), or the rank alone (FSDP).
ParameterCollective shampoo_gather(ShardingScheme scheme, bool experts, std::int64_t parameters, int bytes,
                                   std::int64_t group, std::int64_t shard);

}  // namespace moesim::models

#include "models/step/parameter_collectives.h"

#include <algorithm>
#include <cmath>

namespace moesim::models {

std::int64_t expert_shard_group(std::int64_t dense_group, std::int64_t dense_shard,
                                std::int64_t expert_group) {
  const std::int64_t replicas = std::max<std::int64_t>(1, dense_group / dense_shard);
  return std::max<std::int64_t>(1, expert_group / replicas);
}

std::int64_t ParameterCollective::tx_per_step() const {
  const std::int64_t bytes = bytes_per_step();
  const std::int64_t once = bytes / group * (group - 1) + bytes % group * (group - 1) / group;
  return (kind == CommKind::kAllReduce ? 2 : 1) * once;
}

namespace {

// One kind of parameters over one group.
struct Part {
  HeldParameters parameters;
  std::int64_t group;
  std::string_view gradients_name, parameters_name;
  bool experts = false;
};

void add_part(std::vector<ParameterCollective>& all, ShardingScheme scheme, const ParameterTraffic& t,
              const Part& part) {
  const auto add = [&](ParameterCollective one) {
    one.experts = part.experts;
    if (one.moves()) all.push_back(one);
  };
  const std::int64_t D = part.group;
  const double gradients = part.parameters.trained * t.gradient_bytes;
  // Replicas that hold whole weights exchange those alone that change.
  const auto add_changed = [&] {
    add({.kind = CommKind::kAllGather,
         .what = part.parameters_name,
         .group = D,
         .buffer = part.parameters.trained * t.weight_bytes});
  };
  switch (scheme) {
    case ShardingScheme::kDdp: {
      const auto bucket = static_cast<double>(ddp_bucket_parameters(D));
      const double buckets = t.buckets ? std::max(1.0, std::ceil(part.parameters.trained / bucket)) : 1;
      add({.kind = CommKind::kAllReduce,
           .what = part.gradients_name,
           .group = D,
           .buffer = gradients,
           .calls = static_cast<std::int64_t>(buckets)});
      break;
    }
    case ShardingScheme::kZero1:
      add({.kind = CommKind::kReduceScatter, .what = part.gradients_name, .group = D, .buffer = gradients});
      add_changed();
      break;
    case ShardingScheme::kZero2:
      add({.kind = CommKind::kReduceScatter,
           .what = part.gradients_name,
           .group = D,
           .buffer = gradients,
           .calls = part.parameters.units,
           .passes = t.every_pass ? t.microbatches : 1,
           .every_pass = t.every_pass});
      add_changed();
      break;
    case ShardingScheme::kFsdp:
    case ShardingScheme::kHsdp: {
      const std::int64_t S = scheme == ShardingScheme::kFsdp ? D
                             : part.experts ? expert_shard_group(t.dense_group, t.shard_group, D)
                                            : std::min(D, t.shard_group);
      const std::int64_t passes = t.every_pass ? t.microbatches : 1;
      const std::int64_t units = part.parameters.units;
      add({.kind = CommKind::kAllGather,
           .what = part.parameters_name,
           .group = S,
           .buffer = part.parameters.held * t.weight_bytes,
           .calls = units,
           .passes = passes * (gathers_again(t) ? 2 : 1),
           .every_pass = t.every_pass});
      add({.kind = CommKind::kReduceScatter,
           .what = part.gradients_name,
           .group = S,
           .buffer = gradients,
           .calls = units,
           .passes = passes,
           .every_pass = t.every_pass});
      if (scheme == ShardingScheme::kHsdp)
        add({.kind = CommKind::kAllReduce,
             .what = part.gradients_name,
             .group = D / S,
             .buffer = gradients / static_cast<double>(S),
             .calls = units,
             .replicas = true});
      break;
    }
  }
}

}  // namespace

std::vector<ParameterCollective> parameter_collectives(ShardingScheme scheme,
                                                       const ParameterTraffic& traffic) {
  std::vector<ParameterCollective> all;
  add_part(all, scheme, traffic, {traffic.dense, traffic.dense_group, "dense gradients", "dense parameters"});
  add_part(all, traffic.router_scheme.value_or(scheme), traffic,
           {traffic.router, traffic.dense_group, "router gradients", "router parameters"});
  add_part(all, traffic.expert_scheme.value_or(scheme), traffic,
           {traffic.experts, traffic.expert_group, "expert gradients", "expert parameters", true});
  return all;
}

std::int64_t ddp_bucket_parameters(std::int64_t data_parallel) {
  return std::max<std::int64_t>(40'000'000, 1'000'000 * data_parallel);
}

ParameterCollective shampoo_gather(ShardingScheme scheme, bool experts, std::int64_t parameters, int bytes,
                                   std::int64_t group, std::int64_t shard) {
  std::int64_t replicas = 1;
  if (scheme == ShardingScheme::kDdp) replicas = group, shard = 1;
  if (scheme == ShardingScheme::kHsdp)
    shard = std::min(std::max<std::int64_t>(1, shard), group), replicas = group / shard;
  const std::int64_t held = parameters / std::max<std::int64_t>(1, shard);
  return {.kind = CommKind::kAllGather,
          .what = experts ? "expert shampoo updates" : "dense shampoo updates",
          .group = replicas,
          .buffer = static_cast<double>(held * bytes),
          .experts = experts,
          .replicas = true};
}

}  // namespace moesim::models

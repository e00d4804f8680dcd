#include "models/step/parameter_collectives.h"

#include <algorithm>

#include "base/check.h"

namespace moesim::models {

namespace {

void add(std::vector<ParameterCollective>& all, CommKind kind, std::string_view what, std::int64_t group,
         std::int64_t bytes, std::int64_t calls) {
  if (group <= 1 || bytes == 0) return;
  const std::int64_t once = bytes / group * (group - 1) + bytes % group * (group - 1) / group;
  all.push_back({kind, what, group, bytes, (kind == CommKind::kAllReduce ? 2 : 1) * once, calls});
}

}  // namespace

std::int64_t expert_shard_group(std::int64_t dense_group, std::int64_t dense_shard,
                                std::int64_t expert_group) {
  const std::int64_t replicas = std::max<std::int64_t>(1, dense_group / dense_shard);
  return std::max<std::int64_t>(1, expert_group / replicas);
}

namespace {

// One kind of parameters over one group.
void add_part(std::vector<ParameterCollective>& all, ShardingScheme scheme, const ParameterTraffic& t,
              bool experts) {
  const std::int64_t P = experts ? t.expert_parameters : t.dense_parameters;
  const std::int64_t D = experts ? t.expert_group : t.dense_group;
  const std::string_view gradients = experts ? "expert gradients" : "dense gradients";
  const std::string_view parameters = experts ? "expert parameters" : "dense parameters";
  switch (scheme) {
    case ShardingScheme::kDdp: {
      const std::int64_t bucket = ddp_bucket_parameters(D);
      const std::int64_t calls = t.overlapped ? std::max<std::int64_t>(1, (P + bucket - 1) / bucket) : 1;
      add(all, CommKind::kAllReduce, gradients, D, P * t.gradient_bytes, calls);
      break;
    }
    case ShardingScheme::kZero1:
      add(all, CommKind::kReduceScatter, gradients, D, P * t.gradient_bytes, 1);
      add(all, CommKind::kAllGather, parameters, D, P * t.weight_bytes, 1);
      break;
    case ShardingScheme::kFsdp:
    case ShardingScheme::kHsdp: {
      const std::int64_t S = scheme == ShardingScheme::kFsdp ? D
                             : experts ? expert_shard_group(t.dense_group, t.shard_group, D)
                                       : std::min(D, t.shard_group);
      check(D % S == 0, "the shard group divides the data group");
      const std::int64_t gathers = t.microbatches * (t.reshard_after_forward ? 2 : 1);
      add(all, CommKind::kAllGather, parameters, S, P * t.weight_bytes * gathers, gathers);
      add(all, CommKind::kReduceScatter, gradients, S, P * t.gradient_bytes * t.microbatches, t.microbatches);
      if (scheme == ShardingScheme::kHsdp)
        add(all, CommKind::kAllReduce, gradients, D / S, P / S * t.gradient_bytes, 1);
      break;
    }
  }
}

}  // namespace

std::vector<ParameterCollective> parameter_collectives(ShardingScheme scheme,
                                                       const ParameterTraffic& traffic) {
  std::vector<ParameterCollective> all;
  add_part(all, scheme, traffic, false);
  add_part(all, scheme, traffic, true);
  return all;
}

std::int64_t ddp_bucket_parameters(std::int64_t data_parallel) {
  return std::max<std::int64_t>(40'000'000, 1'000'000 * data_parallel);
}

ShampooStep shampoo_step(ShardingScheme scheme, std::int64_t parameters, int bytes,
                         std::int64_t trainer_group, std::int64_t replicate_group, std::int64_t step,
                         std::int64_t start_step, std::int64_t precondition_frequency) {
  check(precondition_frequency >= 1, "root inverses run every so many steps");
  ShampooStep result;
  const std::int64_t group = scheme == ShardingScheme::kDdp    ? trainer_group
                             : scheme == ShardingScheme::kHsdp ? replicate_group
                                                               : 1;
  std::vector<ParameterCollective> one;
  add(one, CommKind::kAllGather, "shampoo updates", group, parameters * bytes, 1);
  if (!one.empty()) result.gather = one.front();
  result.computes_root_inverse = step >= start_step && (step - start_step) % precondition_frequency == 0;
  return result;
}

}  // namespace moesim::models

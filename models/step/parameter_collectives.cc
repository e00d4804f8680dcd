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
struct Part {
  std::int64_t parameters, group;
  std::string_view gradients_name, parameters_name;
  bool experts = false;
};

void add_part(std::vector<ParameterCollective>& all, ShardingScheme scheme, const ParameterTraffic& t,
              const Part& part) {
  const std::size_t before = all.size();
  const std::int64_t P = part.parameters, D = part.group;
  const std::string_view gradients = part.gradients_name, parameters = part.parameters_name;
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
                             : part.experts ? expert_shard_group(t.dense_group, t.shard_group, D)
                                            : std::min(D, t.shard_group);
      check(D % S == 0, "the shard group divides the data group");
      const std::int64_t gathers = t.microbatches * (t.reshard_after_forward && !t.root_unit ? 2 : 1);
      add(all, CommKind::kAllGather, parameters, S, P * t.weight_bytes * gathers, gathers);
      add(all, CommKind::kReduceScatter, gradients, S, P * t.gradient_bytes * t.microbatches, t.microbatches);
      if (scheme == ShardingScheme::kHsdp)
        add(all, CommKind::kAllReduce, gradients, D / S, P / S * t.gradient_bytes, 1);
      break;
    }
  }
  for (std::size_t i = before; i < all.size(); ++i) {
    all[i].experts = part.experts;
    all[i].replicas = scheme == ShardingScheme::kHsdp && all[i].kind == CommKind::kAllReduce;
  }
}

}  // namespace

std::vector<ParameterCollective> parameter_collectives(ShardingScheme scheme,
                                                       const ParameterTraffic& traffic) {
  std::vector<ParameterCollective> all;
  const std::int64_t router = traffic.router_scheme ? traffic.router_parameters : 0;
  add_part(all, scheme, traffic,
           {traffic.dense_parameters - router, traffic.dense_group, "dense gradients", "dense parameters"});
  if (router > 0)
    add_part(all, *traffic.router_scheme, traffic,
             {router, traffic.dense_group, "router gradients", "router parameters"});
  add_part(all, traffic.expert_scheme.value_or(scheme), traffic,
           {traffic.expert_parameters, traffic.expert_group, "expert gradients", "expert parameters", true});
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
  std::vector<ParameterCollective> one;
  add(one, CommKind::kAllGather, experts ? "expert shampoo updates" : "dense shampoo updates", replicas,
      parameters / std::max<std::int64_t>(1, shard) * bytes, 1);
  if (one.empty()) return {};
  one.front().experts = experts;
  one.front().replicas = true;
  return one.front();
}

}  // namespace moesim::models

// Sharding of parameters, gradients and optimizer state over data parallelism.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesim::models {

enum class ShardingScheme : std::uint8_t {
  kDdp,    // all-reduce of gradients
  kZero1,  // distributed optimizer: reduce-scatter of gradients, all-gather of parameters
  kFsdp,   // ZeRO-3: all-gather per unit in forward (and backward), reduce-scatter of gradients
  kHsdp,   // FSDP inside a shard group, all-reduce over the replicate group
};

// Names a scheme as users do: "ddp", "zero1", "fsdp", "hsdp".
std::string_view name_of(ShardingScheme scheme);

// Parsed "ddp", "zero1" (also "distributed-optimizer"), "fsdp" or "hsdp:shard=8", with ":reshard=false" (FSDP
// keeps gathered parameters until backward) and ":shampoo" (one all-gather of updates per step).
struct ShardingSpec {
  ShardingScheme scheme = ShardingScheme::kZero1;
  std::int64_t shard = 0;  // HSDP: ranks of a shard group; 0: not given
  bool reshard = true;
  bool shampoo = false, muon = false;

  // Throws InputError for an unknown scheme or option, with the nearest name, and for shard without hsdp.
  static ShardingSpec parse(const std::string& text);
};

}  // namespace moesim::models

#include "models/workload/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {

namespace {

constexpr std::array<std::string_view, 4> kNames{"ddp", "zero1", "fsdp", "hsdp"};

}  // namespace

std::string_view name_of(ShardingScheme scheme) { return kNames[static_cast<std::size_t>(scheme)]; }

ShardingSpec ShardingSpec::parse(const std::string& text) {
  ShardingSpec spec;
  const std::vector<std::string_view> parts = split(text, ':');
  std::string name(trim(parts.front()));
  if (name == "distributed-optimizer") name = "zero1";
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end())
    throw InputError(fmt::format("sharding: found {}, expected ddp, zero1, fsdp or hsdp{}", in_quotes(name),
                                 did_you_mean(name, std::vector<std::string>(kNames.begin(), kNames.end()))));
  spec.scheme = static_cast<ShardingScheme>(found - kNames.begin());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string part(trim(parts[i]));
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "true" : part.substr(equals + 1);
    const auto flag = [&] {
      if (value != "true" && value != "false")
        throw InputError(
            fmt::format("sharding: {}: found {}, expected true or false", key, in_quotes(value)));
      return value == "true";
    };
    if (key == "shard") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), spec.shard);
      if (error != std::errc() || end != value.data() + value.size() || spec.shard < 1)
        throw InputError(fmt::format("sharding: shard: found {}, expected a number of ranks of at least 1",
                                     in_quotes(value)));
    } else if (key == "reshard") {
      spec.reshard = flag();
    } else if (key == "shampoo") {
      spec.shampoo = flag();
    } else if (key == "muon") {
      spec.muon = flag();
    } else {
      static const std::vector<std::string> kKeys{"shard", "reshard", "shampoo", "muon"};
      throw InputError(fmt::format("sharding: found option {}, expected shard, reshard, shampoo or muon{}",
                                   in_quotes(key), did_you_mean(key, kKeys)));
    }
  }
  if (spec.shard > 0 && spec.scheme != ShardingScheme::kHsdp)
    throw InputError(fmt::format("sharding: found shard with {}, expected it with hsdp", name));
  return spec;
}

}  // namespace moesim::models

#include "models/step/order_of_waits.h"

#include <fmt/format.h>

#include <vector>

#include "base/text.h"
#include "models/programs/check.h"

namespace moesim::models {

namespace {

constexpr int kExchanges = 0, kParameters = 1;  // communicators

}  // namespace

std::string hang_of_unit(const Scenario& s, const Program& program) {
  const ShardingScheme scheme = s.training.expert_sharding.value_or(s.training.sharding);
  if (!s.train || !shards_weights(scheme) || s.training.fsdp_unit != FsdpUnit::kBlock ||
      s.parallel.data_ranks() == 1)
    return "";
  std::vector<std::string> exchanges;
  for (const Op& op : program.backward())
    if (op.kind == OpKind::kCollective && op.group == GroupKind::kEp && !op.fused)
      exchanges.emplace_back(op.name);
  if (exchanges.empty()) return "";
  // A unit of attention or FFN is reduced when the gradient of its input is ready, after all exchanges of its
  // layer. A unit of the whole block is reduced by its own hooks while the layer below continues: nothing
  // orders it with the exchanges of that layer, and ranks may run it before or after the last of them.
  std::vector<std::vector<IssuedPosition>> order(2);
  for (std::size_t rank = 0; rank < order.size(); ++rank)
    for (std::size_t e = 0; e < exchanges.size(); ++e) {
      if (rank == 0 && e + 1 == exchanges.size()) order[rank].push_back({kParameters, 0});
      order[rank].push_back({kExchanges, static_cast<int>(e)});
      if (rank == 1 && e + 1 == exchanges.size()) order[rank].push_back({kParameters, 0});
    }
  const auto cycle = find_order_cycle(order);
  if (!cycle) return "";
  std::vector<std::string> names;
  for (const IssuedPosition& at : *cycle)
    names.push_back(
        at.communicator == kParameters
            ? std::string("reduce-scatter of a block's parameters")
            : fmt::format("backward exchange \"{}\"", exchanges[static_cast<std::size_t>(at.position)]));
  return fmt::format(
      "fsdp_unit block can hang: ranks come to the {} in different orders, and each holds the GPU while it "
      "waits "
      "for the other; fsdp_unit module orders them",
      join(names, " and the "));
}

}  // namespace moesim::models

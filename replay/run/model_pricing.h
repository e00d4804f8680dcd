// Transfers of a forecast, priced with a cluster's profile or sent over its network.
#pragma once

#include <memory>

#include "models/costs/domain_report.h"
#include "models/hardware/cluster.h"
#include "replay/recording/denoise.h"
#include "replay/recording/effects.h"
#include "replay/run/iteration.h"

namespace moesim::sim {
class Fabric;
}

namespace moesim::replay {

// All-to-alls move the rows that the recording shows. Without a fabric every transfer takes what the profile
// says. With one (timing `flow`) transfers are flows over its links, which take that long while nothing
// contends; calls that a model has priced (another dispatcher) are then refused with an InputError.
class ModelPricing final : public Pricing {
 public:
  // `job`, `effects` and `fabric` must outlive the pricing.
  ModelPricing(const models::Cluster& cluster, const CleanJob& job, const Effects& effects,
               const sim::Fabric* fabric = nullptr);
  ~ModelPricing() override;
  sim::TrafficRef traffic(const Instance& instance, std::size_t index,
                          sim::TaskGraphBuilder& builder) override;
  const sim::Costs& costs() const override;
  double launch_us(const Instance& instance) const override;
  sim::RunOptions run_options() const override;

  // Transfers that were priced so far and that the profile did not measure. `gpu_us`: what all GPUs together
  // take. Calls that a model has priced are its own to report.
  models::DomainReport domain(double gpu_us) const;

 private:
  class Costs;
  struct State;
  std::unique_ptr<State> state_;
};

// What launching a call adds to its transfer, by effects exposed_gather, exposed_exchange and fused_p2p.
double added_call_us(const Effects& effects, const Instance& instance);

}  // namespace moesim::replay

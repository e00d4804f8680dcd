// Prices the transfers of a forecast by a cluster's profile, or sends them over its network.
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

// All-to-alls move the recorded rows. Without a fabric every transfer takes the profile's time. With one
// (timing `flow`) transfers are flows over its links, which take that time without contention; calls priced
// by a model (another dispatcher) are then refused with an InputError.
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

  // Returns the transfers priced so far that the profile did not measure. `gpu_us`: total time of all GPUs.
  // Calls priced by a model are not included.
  models::DomainReport domain(double gpu_us) const;

 private:
  class Costs;
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the launch time that effects exposed_gather, exposed_exchange and fused_p2p add to a call's
// transfer.
double added_call_us(const Effects& effects, const Instance& instance);

}  // namespace moesim::replay

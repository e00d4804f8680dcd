// Replays a realistic recording as recorded: computing as measured, every transfer at its fastest member's
// duration, with waiting simulated.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "replay/run/iteration.h"

namespace moesim::replay {

// Returns plans with the recorded steps and the host gaps between them, one per rank of the job. Throws
// InputError when a rank of the topology was not recorded: in a realistic recording no rank can stand for
// another.
std::vector<RankSteps> recorded_plans(const RecordedJob& job, int gpus_per_node);
// Likewise where ranks are missing: each copies a recorded one, of the same stage and expert rank where there
// is one. Between stages that were not recorded, or that do not match, sends and receives keep their recorded
// time. `warnings` lists what was filled from what.
std::vector<RankSteps> plans_by_symmetry(const RecordedJob& job, int gpus_per_node,
                                         std::vector<std::string>& warnings);

// The optimizer of dense jobs first computes the gradients' norm over all stages and tensor-parallel ranks,
// so that its recorded time is mostly waiting where a stage finishes early. In plans whose optimizers end
// together although they start apart, the wait is removed and simulated. Jobs with experts skip it.
void couple_optimizers(const Topology& topology, std::vector<RankSteps>& plans, int gpus_per_node);

// Adds a rendezvous of the model-parallel group before `us` of the optimizer's own work.
void meet_in_optimizer(Step& step, double recorded_us);

// Prices every transfer by the smallest recorded duration among its members: the last to arrive does not
// wait. Calls priced by a model take their time plus `added_us`, the recorder's overhead.
class RecordedPricing final : public Pricing {
 public:
  explicit RecordedPricing(std::function<double(const Instance&)> added_us = {});
  ~RecordedPricing() override;
  sim::TrafficRef traffic(const Instance& instance, std::size_t index,
                          sim::TaskGraphBuilder& builder) override;
  const sim::Costs& costs() const override;

 private:
  class Costs;
  std::unique_ptr<Costs> costs_;
  InstanceTraffic bytes_;
};

}  // namespace moesim::replay

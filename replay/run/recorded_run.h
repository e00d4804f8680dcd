// A realistic recording replayed as recorded: every piece of computing as measured, every transfer as long as
// its fastest member saw it, waiting left to the simulation.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "replay/run/instance_traffic.h"
#include "replay/run/iteration.h"

namespace moesim::replay {

// Plans with the recorded steps and the host gaps between them, one per rank of the job. Throws InputError
// when a rank of the topology was not recorded: in a realistic recording no rank can stand for another.
std::vector<RankPlan> recorded_plans(const RecordedJob& job, int gpus_per_node);
// The same where ranks were not recorded: each does what a recorded one did that stands for it, of the same
// stage and expert rank where there is one. Between stages of which none was recorded, or that do not fit
// together, sends and receives keep their recorded time. `warnings` say what was filled from what.
std::vector<RankPlan> plans_by_symmetry(const RecordedJob& job, int gpus_per_node,
                                        std::vector<std::string>& warnings);

// The optimizer of dense jobs first takes the gradients' norm over all stages and tensor-parallel ranks, so
// that its recorded time is mostly waiting where a stage finishes early. In plans whose optimizers end
// together although they start apart the wait is taken out and simulated. Jobs with experts leave it out.
void couple_optimizers(const Topology& topology, std::vector<RankPlan>& plans, int gpus_per_node);

// A rendezvous of the model-parallel group before `us` of the optimizer's own work.
void meet_in_optimizer(Step& step, double recorded_us);

// Prices every transfer with the smallest recorded duration among its members: the last to arrive waits for
// nobody. Calls that a model priced take its time and what `added_us` says that the recorder adds.
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

// An expert-parallel group on one device: all ranks in step, with rows copied from one rank's memory to
// another's, so that results are those of the whole group.
#pragma once

#include <memory>
#include <vector>

#include "layer/rank_layer.h"

namespace moesim::bench {

class World {
 public:
  World(LayerDevice& device, const LayerShape& shape);

  // Runs one training step of all ranks, operation by operation; untimed.
  void step();

  LayerDevice& device() { return device_; }
  const LayerShape& shape() const { return shape_; }
  std::vector<std::unique_ptr<RankLayer>>& ranks() { return ranks_; }

 private:
  void exchange(Transfer::Kind kind);

  LayerDevice& device_;
  const LayerShape shape_;
  std::vector<std::unique_ptr<RankLayer>> ranks_;
};

}  // namespace moesim::bench

// Megatron's AllGather dispatcher, current version (docs/spec.md 2.1.1): every rank gets every token of the
// group and computes its share of the experts; a reduce-scatter sums the partial outputs. The volume does not
// depend on routing. Expert tensor parallelism (2.1.3) does the same over slices of all experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

class AllGather : public Dispatcher {
 public:
  explicit AllGather(DispatcherOptions& options) : permute_fusion_(options.flag("permute_fusion", true)) {}

  std::optional<std::string> illegal(const MoeLayer& layer) const override;
  Program build(const MoeLayer& layer) const override;

 private:
  void unpermute(ProgramBuilder& b, const LayerSizes& f, const std::vector<std::int64_t>& gathered,
                 const std::vector<std::int64_t>& mask) const;
  void backward(ProgramBuilder& b, const MoeLayer& layer, const LayerSizes& f, const ExpertBlock& block,
                const std::vector<std::int64_t>& gathered) const;

  bool permute_fusion_;
};

}  // namespace moesim::models

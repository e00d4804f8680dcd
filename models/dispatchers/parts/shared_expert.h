// The shared expert overlapped with the token exchange (docs/spec.md 2.2.3): on its own stream, with its own
// tensor-parallel all-gather and reduce-scatter, started between the steps of the routed experts.
#pragma once

#include "models/dispatchers/parts/common.h"

namespace moesim::models {

// All functions do nothing when the shared expert does not overlap (it then runs in the dense part of the
// layer).
class SharedExpert {
 public:
  SharedExpert(ProgramBuilder& builder, const MoeLayer& layer, const LayerSizes& sizes, bool overlapped);

  // Forward, in launch order.
  void gather();  // all-gather of the tokens over the tensor-parallel group
  void up();      // fc1 and activation
  void down();    // fc2, then the reduce-scatter
  void add();     // the main stream waits and adds the output (in backward, the gradients)

  // Backward.
  void backward_gather();
  void backward_down();
  void backward_up();

 private:
  void gemm(std::string_view name, GemmPass pass, bool up_weight);
  void activation(std::string_view name, std::int64_t read_columns, std::int64_t written_columns);

  ProgramBuilder& b_;
  const LayerSizes& f_;
  bool active_;
  DType dtype_;
  std::int64_t F_ = 0, tp_ = 1;
  std::vector<std::int64_t> rows_;
  int table_ = -1;
  int last_ = -1;
};

}  // namespace moesim::models

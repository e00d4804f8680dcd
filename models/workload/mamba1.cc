#include "models/workload/state_mixer_kinds.h"

namespace moesim::models {

namespace {

// FLOPs per element of the state and token in Mamba's scan: the decay, its product with the state, the input
// (two products and a sum), the output (a product and a sum), the exponential and the step, as VMamba counts.
constexpr std::int64_t kSelectiveScanFlops = 9;

}  // namespace

// in_proj, conv1d with a bias, x_proj to step, input and output vectors, dt_proj with a bias, A, D, out_proj,
// and norms of the three vectors (Jamba, arXiv 2403.19887). The scan reads values, steps and
// the gate, goes token by token and writes no state; the convolved columns and the steps stay.
StateMixer mamba1(const Mamba& m) {
  StateMixer s;
  s.inner = m.inner();
  s.input = 2 * s.inner;
  s.narrow = {{m.rank + 2 * m.state, s.inner}, {s.inner, m.rank}};
  s.convolved = s.inner;
  s.taps = m.conv + 1;
  s.state = s.inner * m.state;
  s.scales = s.state + 2 * s.inner + m.rank + 2 * m.state;
  s.scan_flops = kSelectiveScanFlops * s.state;
  s.recurrence_flops = 4 * s.state;
  s.scanned = 3 * s.inner + 2 * m.state;
  s.kept = 2 * s.inner + m.rank + 2 * m.state;
  return s;
}

}  // namespace moesim::models

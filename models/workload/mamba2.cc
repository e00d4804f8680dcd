#include "models/workload/state_mixer_kinds.h"

namespace moesim::models {

// in_proj, conv1d with a bias, A, D and the steps' biases, a gated norm, out_proj (Mamba2 of
// state-spaces/mamba, arXiv 2405.21060). Per token half a chunk of scores per group and of values, and the state in and out.
// States of a chunk are fp32, written and read by two kernels each. One kernel convolves again in backward.
StateMixer mamba2(const Mamba& m) {
  StateMixer s;
  s.inner = m.inner();
  s.input = 2 * s.inner + 2 * m.groups * m.state + m.heads;
  s.convolved = s.inner + 2 * m.groups * m.state;
  s.taps = m.conv + 1;
  s.scales = 3 * m.heads + s.inner;
  s.state = s.inner * m.state;
  s.scan_flops = kScanChunk * (m.groups * m.state + s.inner) + 4 * s.state;
  s.recurrence_flops = 4 * s.state;
  s.scanned = s.convolved;
  s.between = 8 * s.state / kScanChunk;
  s.measured = true;
  s.launches = 5;
  s.backward_launches = 10;
  return s;
}

}  // namespace moesim::models

#include "models/workload/short_convolution.h"

namespace moesim::models {

StateMixer short_convolution(const Architecture& model) {
  const ShortConvolution& c = model.convolution;
  StateMixer s;
  s.inner = s.convolved = model.hidden;
  s.input = 3 * model.hidden;
  s.taps = c.taps + (c.bias ? 1 : 0);
  s.recurrence_flops = 2 * c.taps * model.hidden;
  s.scanned = 2 * model.hidden;  // the values and their gate
  s.kept = model.hidden;         // the gated values
  return s;
}

}  // namespace moesim::models

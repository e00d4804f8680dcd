// Mixing by a short convolution between two gates (LFM2; Lfm2ShortConv of transformers).
#pragma once

#include "models/workload/state_mixer.h"

namespace moesim::models {

// One product gives two gates and the values; the values times the first gate go through a depthwise
// convolution of `taps` taps, whose output times the second gate goes through the output projection. It keeps
// the last tokens of a sequence and no state. Example of 2048 columns and 3 taps: 4 x 2048^2 + 3 x 2048 =
// 16,783,360 weights.
StateMixer short_convolution(const Architecture& model);

}  // namespace moesim::models

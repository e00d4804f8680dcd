// Host overhead of collectives that are launched while the GPU waits.
#pragma once

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Sets the constant "exposed_call/<operation>" (us): recorded time of a call that the host had to launch,
// minus the transfer by the profile's own law; median and scatter over the exposed calls of this GPU. Only
// calls that are mostly launch count: in longer transfers, members that finish early hide a part of it.
// Leaves a profile without the laws unchanged.
void fit_call_overheads(models::Profile& profile, const Measurements& measurements);

}  // namespace moesim::calibration

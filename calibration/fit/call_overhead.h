// What the host adds to collectives that it launches while the GPU waits.
#pragma once

#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Sets the constant "exposed_call/<operation>" (us): recorded time of a call that the host had to launch,
// less the transfer by the profile's own law; median and scatter over the exposed calls of this GPU. Only
// calls that are mostly launch count: where the transfer is longer, members that finish early hide a part of
// it. A profile without the laws for it is left as it is.
void fit_call_overheads(models::Profile& profile, const Measurements& measurements);

}  // namespace moesim::calibration

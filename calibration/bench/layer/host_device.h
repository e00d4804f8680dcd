// The host as a device: runs every item and lane of a work in order and products by plain loops. It tests the
// layer, the recording and the index arithmetic that the GPU's kernels share; it is not fast.
#pragma once

#include <memory>

#include "layer/layer_device.h"

namespace moesim::bench {

// `counts_work`: times of a fictitious device with 10^12 operations of products per second and 10^9 of all
// others, so that tests can predict them.
std::unique_ptr<LayerDevice> host_device(Element element, bool counts_work = false);

}  // namespace moesim::bench

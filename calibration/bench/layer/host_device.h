// The host as a device: every item and lane of a piece of work in order, products by plain loops. It is there
// to test the layer, the recording and the index arithmetic that the GPU's kernels share, not to be fast.
#pragma once

#include <memory>

#include "layer/layer_device.h"

namespace moesim::bench {

// `counts_work`: times are those of a made-up device that does a million million operations of products a
// second and a thousand million of all else, so that tests know them.
std::unique_ptr<LayerDevice> host_device(Element element, bool counts_work = false);

}  // namespace moesim::bench

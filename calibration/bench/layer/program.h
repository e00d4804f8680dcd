// moesim-layer-cuda and moesim-layer-host: check a device, measure a layer on it, write the recording.
#pragma once

#include <functional>
#include <memory>

#include "layer/layer_device.h"

namespace moesim::bench {

// Which devices the program has; makes the device once the options are read, or exits with a line.
struct Program {
  const char* name;
  bool chooses_element;  // --element bf16|fp32
  std::function<std::unique_ptr<LayerDevice>(Element)> device;
};

// Exit codes: 0 written, 1 a wrong result or a file that cannot be written (and no recording), 2 bad usage.
int run_program(const Program& program, int argc, char** argv);

}  // namespace moesim::bench

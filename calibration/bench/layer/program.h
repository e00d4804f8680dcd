// moesim-layer-cuda and moesim-layer-host: check a device, measure a layer on it, write the recording.
#pragma once

#include <functional>
#include <memory>

#include "layer/layer_device.h"

namespace moesim::bench {

// Device options of the host's program.
struct DeviceChoice {
  Element element = Element::kBf16;
  bool counts_work = false;
};

// Creates the device after the options are read, or exits with a message.
struct Program {
  const char* name;
  bool has_choice;  // --element and --clock
  std::function<std::unique_ptr<LayerDevice>(const DeviceChoice&)> device;
};

// Returns the exit code: 0 written, 1 a wrong result or a file that cannot be written (no recording), 2 bad
// usage.
int run_program(const Program& program, int argc, char** argv);

}  // namespace moesim::bench

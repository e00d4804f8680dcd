// moesim-layer-host: the layer of moesim-layer-cuda on the host, for tests and to inspect its output.
#include "layer/host_device.h"
#include "layer/program.h"

int main(int argc, char** argv) {
  using namespace moesim::bench;
  const auto device = [](const DeviceChoice& choice) {
    return host_device(choice.element, choice.counts_work);
  };
  return run_program({"moesim-layer-host", true, device}, argc, argv);
}

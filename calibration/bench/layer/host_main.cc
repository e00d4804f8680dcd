// moesim-layer-host: the layer of moesim-layer-cuda on the host, for tests and to see what is written.
#include "layer/host_device.h"
#include "layer/program.h"

int main(int argc, char** argv) {
  return moesim::bench::run_program({"moesim-layer-host", true, moesim::bench::host_device}, argc, argv);
}

// Three processes of MPI: half_sent_message libmoesim_mpi.so. Rank 1 dies over a message that rank 0 has
// begun to see. Rank 0 exits with 0 when it hears of rank 2 all the same.
#include <dlfcn.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "tools/moesim/sweeps/sweep_mpi_transport.h"

using moesim::tools::MpiMessage;
using moesim::tools::MpiTransport;

int main(int argc, char** argv) {
  using std::chrono::seconds;
  void* library = argc == 2 ? ::dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : nullptr;
  if (!library) return std::puts("cannot load the library"), 1;
  const auto start = reinterpret_cast<const MpiTransport* (*)()>(::dlsym(library, "moesim_mpi_start"));
  const MpiTransport& mpi = *start();
  if (mpi.size != 3) return std::puts("expected three ranks"), 1;
  const std::string large(8 << 20, 'x');  // too large to be sent before it is received
  if (mpi.rank == 1) {
    mpi.send(0, 7, large.data(), large.size());
    std::raise(SIGKILL);
  }
  std::this_thread::sleep_for(seconds(mpi.rank == 2 ? 2 : 1));
  if (mpi.rank == 2) mpi.send(0, 8, "here", 4);
  std::string from_rank_2;
  for (MpiMessage message; from_rank_2.empty();) {
    if (!mpi.probe(&message)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    std::string bytes(message.bytes, '\0');
    mpi.receive(&message, bytes.data());
    if (message.from == 2) from_rank_2 = bytes;
  }
  std::puts(from_rank_2.c_str());
  std::fflush(stdout);
  mpi.finish(false, from_rank_2 == "here" ? 0 : 1);
}

// The MPI functions of a sweep as a table: only a process started by mpirun loads the library that implements
// them. One thread at a time calls them. MPI ends the process where it finds another rank lost.
#pragma once

#include <cstddef>
#include <string>

namespace moesim::tools {

struct MpiMessage {
  int from = 0;
  int tag = 0;
  std::string bytes;
};

struct MpiTransport {
  int rank;
  int size;
  bool threads;  // another thread than the starting one may call
  // Returns when the bytes may be overwritten: short ones at once, long ones when the other side receives
  // them. Delivery is in order between two processes.
  void (*send)(int to, int tag, const void* data, std::size_t bytes);
  // Returns whether a message was there, without waiting for one.
  bool (*receive)(MpiMessage* message);
  void (*finish)();
};

}  // namespace moesim::tools

// Starts MPI once; the only symbol looked up.
extern "C" const moesim::tools::MpiTransport* moesim_mpi_start();

// What a sweep needs of MPI, as a table of functions: the library that holds them is loaded only by a process
// that mpirun started.
#pragma once

#include <cstddef>

namespace moesim::tools {

struct MpiMessage {
  int from = 0;
  int tag = 0;
  std::size_t bytes = 0;
};

struct MpiTransport {
  int rank;
  int size;
  // Starts sending a copy of the bytes; delivered in order between two processes.
  void (*send)(int to, int tag, const void* data, std::size_t bytes);
  // Whether a message has come whole, without waiting. One that its sender died over never does.
  bool (*probe)(MpiMessage* message);
  // Takes the message that probe() found.
  void (*receive)(const MpiMessage* message, void* data);
  // Ends MPI. Not `together`: some process is gone, so nobody waits for it, and the process ends with `code`.
  void (*finish)(bool together, int code);
};

}  // namespace moesim::tools

// Starts MPI once; the only symbol that is looked up.
extern "C" const moesim::tools::MpiTransport* moesim_mpi_start();

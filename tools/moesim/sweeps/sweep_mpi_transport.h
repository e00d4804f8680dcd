// The MPI functions of a sweep as a table: only a process started by mpirun loads the library that implements
// them.
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
  // Starts sending a copy of the bytes; delivery is in order between two processes.
  void (*send)(int to, int tag, const void* data, std::size_t bytes);
  // Returns whether a message has arrived completely, without waiting. One whose sender died never does.
  bool (*probe)(MpiMessage* message);
  // Receives the message found by probe().
  void (*receive)(const MpiMessage* message, void* data);
  // Ends MPI. Not `together`: some process is gone, so the process ends with `code` without waiting for the
  // others.
  void (*finish)(bool together, int code);
};

}  // namespace moesim::tools

// Starts MPI once; the only symbol looked up.
extern "C" const moesim::tools::MpiTransport* moesim_mpi_start();

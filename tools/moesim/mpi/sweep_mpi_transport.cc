// The part of moesim that is linked with MPI.
#include "tools/moesim/study/sweep_mpi_transport.h"

#include <mpi.h>

#include <chrono>
#include <thread>

namespace {

// Sleeps until the request is done: MPI_Wait alone takes the processor from computing threads.
void sleep_until_done(MPI_Request* request) {
  for (int done = 0; MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done;)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void send(int to, int tag, const void* data, std::size_t bytes) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
  sleep_until_done(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);  // returns at once; the analyzer looks for it
}

bool receive(moesim::tools::MpiMessage* message) {
  int there = 0, bytes = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status;
  MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &handle, &status);
  if (!there) return false;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  *message = {status.MPI_SOURCE, status.MPI_TAG, std::string(static_cast<std::size_t>(bytes), '\0')};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Imrecv(message->bytes.data(), bytes, MPI_BYTE, &handle, &request);
  sleep_until_done(&request);
  return true;
}

void finish() { MPI_Finalize(); }

}  // namespace

const moesim::tools::MpiTransport* moesim_mpi_start() {
  static const moesim::tools::MpiTransport transport = [] {
    int provided = 0, rank = 0, size = 1;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool threads = provided >= MPI_THREAD_SERIALIZED;
    return moesim::tools::MpiTransport{rank, size, threads, send, receive, finish};
  }();
  return &transport;
}

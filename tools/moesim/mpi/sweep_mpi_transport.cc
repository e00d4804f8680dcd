// The part of moesim that is linked with MPI.
#include "tools/moesim/sweeps/sweep_mpi_transport.h"

#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <list>
#include <string>
#include <thread>

namespace {

struct Sending {
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// MPI's own state is one per process, so is what belongs to it.
std::list<Sending>& sending() {
  static std::list<Sending> all;
  return all;
}

void forget_sent() {
  sending().remove_if([](Sending& one) {
    int done = 0;
    MPI_Test(&one.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

void send(int to, int tag, const void* data, std::size_t bytes) {
  forget_sent();
  Sending& one = sending().emplace_back();
  one.bytes.assign(static_cast<const char*>(data), bytes);
  MPI_Isend(one.bytes.data(), static_cast<int>(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD, &one.request);
}

bool probe(moesim::tools::MpiMessage* message) {
  forget_sent();
  int there = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS || !there)
    return false;
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  *message = {status.MPI_SOURCE, status.MPI_TAG, static_cast<std::size_t>(bytes)};
  return true;
}

void receive(const moesim::tools::MpiMessage* message, void* data) {
  MPI_Recv(data, static_cast<int>(message->bytes), MPI_BYTE, message->from, message->tag, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
}

void drop_incoming() {
  moesim::tools::MpiMessage message;
  std::string bytes;
  while (probe(&message)) {
    bytes.resize(message.bytes);
    receive(&message, bytes.data());
  }
}

// Until all that was sent has been taken, here and everywhere: what nobody waits for any more is dropped. A
// large message is only gone when the other side takes it, and some libraries complain of what is left.
void settle() {
  MPI_Request meeting = MPI_REQUEST_NULL;
  for (int met = 0; !met;) {
    drop_incoming();
    forget_sent();
    if (meeting == MPI_REQUEST_NULL && sending().empty()) MPI_Ibarrier(MPI_COMM_WORLD, &meeting);
    if (meeting != MPI_REQUEST_NULL) MPI_Test(&meeting, &met, MPI_STATUS_IGNORE);
    if (!met) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  drop_incoming();
}

void finish(bool together, int code) {
  if (!together) {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }
  settle();
  MPI_Finalize();
}

}  // namespace

const moesim::tools::MpiTransport* moesim_mpi_start() {
  static const moesim::tools::MpiTransport transport = [] {
    int provided = 0;
    // OpenMPI copies large messages out of the sender's memory; where that process dies meanwhile, the
    // receiver never comes back. Ours are small enough to go through shared memory.
    ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    // A process that is gone is an error of one call, not the end of this one.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return moesim::tools::MpiTransport{rank, size, send, probe, receive, finish};
  }();
  return &transport;
}

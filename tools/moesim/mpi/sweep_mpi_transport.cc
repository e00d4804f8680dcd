// The part of moesim that is linked with MPI.
#include "tools/moesim/sweeps/sweep_mpi_transport.h"

#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <set>
#include <string>
#include <thread>

namespace {

struct Sending {
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

struct Receiving {
  int from = 0;
  int tag = 0;
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;  // null when the message is complete
};

// MPI's own state is one per process, and so is this.
std::list<Sending>& sending() {
  static std::list<Sending> all;
  return all;
}

// In order of arrival; the message found by probe() is the first.
std::list<Receiving>& receiving() {
  static std::list<Receiving> all;
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
  // The analyzer cannot see that forget_sent() waits for it.
}  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker)

// Starts receiving without waiting for the end: a sender that died during a message never completes it.
void begin_receiving() {
  for (;;) {
    int there = 0, bytes = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &handle, &status) != MPI_SUCCESS ||
        !there)
      return;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Receiving& one = receiving().emplace_back();
    one.from = status.MPI_SOURCE;
    one.tag = status.MPI_TAG;
    one.bytes.resize(static_cast<std::size_t>(bytes));
    MPI_Imrecv(one.bytes.data(), bytes, MPI_BYTE, &handle, &one.request);
  }
}

bool probe(moesim::tools::MpiMessage* message) {
  forget_sent();
  begin_receiving();
  std::set<int> unfinished;  // senders whose later messages must wait
  for (auto one = receiving().begin(); one != receiving().end(); ++one) {
    int done = 0;
    MPI_Test(&one->request, &done, MPI_STATUS_IGNORE);
    if (!done) unfinished.insert(one->from);
    if (unfinished.count(one->from)) continue;
    *message = {one->from, one->tag, one->bytes.size()};
    receiving().splice(receiving().begin(), receiving(), one);
    return true;
  }
  return false;
}

void receive(const moesim::tools::MpiMessage* message, void* data) {
  std::memcpy(data, receiving().front().bytes.data(), message->bytes);
  receiving().pop_front();
}

void drop_incoming() {
  moesim::tools::MpiMessage message;
  while (probe(&message)) receiving().pop_front();
}

// Waits until all sent messages have been received, here and everywhere; drops unexpected ones. A large
// message completes only when the other side receives it, and some libraries complain about remaining ones.
void settle() {
  MPI_Request meeting = MPI_REQUEST_NULL;
  for (int met = 0; !met;) {
    drop_incoming();
    forget_sent();
    if (meeting == MPI_REQUEST_NULL && sending().empty()) MPI_Ibarrier(MPI_COMM_WORLD, &meeting);
    if (meeting != MPI_REQUEST_NULL) MPI_Test(&meeting, &met, MPI_STATUS_IGNORE);
    if (!met) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  do drop_incoming();
  while (!receiving().empty());
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
    // OpenMPI copies large messages from the sender's memory; if that process dies meanwhile, the receiver
    // hangs. Ours are small enough for shared memory.
    ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    // A lost process is an error of one call and does not end this one.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return moesim::tools::MpiTransport{rank, size, send, probe, receive, finish};
  }();
  return &transport;
}

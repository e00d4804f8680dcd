// NCCL: ranks are processes of this machine that meet in shared memory.
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "machine.h"

using namespace moesim::virtual_gpu;

namespace {

constexpr int kMostRanks = 64;
constexpr std::size_t kRoom = 64u << 20;  // bytes of a rank's data

struct Shared {
  pthread_mutex_t mutex;
  pthread_cond_t all_here;
  int arrived, generation, dead;
  // For this call and the next one, which a rank may reach while others still read:
  double ready[2][kMostRanks];                           // when a rank's stream reaches the call
  double host[2][kMostRanks];                            // and its host
  double inside[2][kMostRanks], between[2][kMostRanks];  // bytes a rank sends or receives
  int node[kMostRanks];
  std::size_t sends[kMostRanks][kMostRanks];  // bytes from, to
};

}  // namespace

struct VirtualComm {
  std::string name;
  int ranks = 1, rank = 0;
  int turn = 0;  // which half of the shared numbers is this call's
  Shared* shared = nullptr;
  char* data = nullptr;
  char* room(int of_rank) const { return data + static_cast<std::size_t>(of_rank) * kRoom; }
  int nodes() const {
    std::map<int, int> all;
    for (int i = 0; i < ranks; ++i) all[shared->node[i]]++;
    return static_cast<int>(all.size());
  }
  // False where a rank does not come within some seconds.
  bool meet() const {
    if (ranks == 1) return true;
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += static_cast<time_t>(number("patience", 20));
    pthread_mutex_lock(&shared->mutex);
    const int mine = shared->generation;
    bool here = !shared->dead;
    if (here && ++shared->arrived == ranks) {
      shared->arrived = 0;
      ++shared->generation;
      pthread_cond_broadcast(&shared->all_here);
    }
    while (here && shared->generation == mine)
      if (pthread_cond_timedwait(&shared->all_here, &shared->mutex, &until) != 0 &&
          shared->generation == mine) {
        shared->dead = 1;
        here = false;
      }
    pthread_mutex_unlock(&shared->mutex);
    return here;
  }
};

namespace {

struct Message {
  bool send;
  const void* from;
  void* to;
  std::size_t bytes;
  int peer;
};
int grouped = 0;
std::vector<Message> messages;
ncclComm_t message_comm = nullptr;
cudaStream_t message_stream = nullptr;

std::size_t bytes_of(ncclDataType_t type) { return type == ncclFloat ? 4 : type == ncclBfloat16 ? 2 : 1; }

// Whether a planted fault strikes at this call.
ncclResult_t strike(const VirtualComm& comm) {
  static int calls = 0;
  if (comm.ranks > 1 && ++calls == 20) {
    if (number("dead", -1) == comm.rank) _exit(9);
    if (number("hang", -1) == comm.rank)
      for (;;) pause();
    if (number("nccl", 0) != 0) return ncclSystemError;
  }
  return ncclSuccess;
}

// All ranks begin when the last has come, and end together.
void together(ncclComm_t comm, cudaStream_t stream, double call, const std::function<double()>& seconds,
              const std::function<void()>& effect) {
  VirtualStream& on = of(stream);
  host += call;
  const int turn = comm->turn;
  comm->turn ^= 1;
  comm->shared->host[turn][comm->rank] = host;
  comm->shared->ready[turn][comm->rank] = std::max(on.ready, host + kSubmit);
  if (!comm->meet()) {
    on.ready = 1e18;
    return;
  }
  // A process that waited for a word of another one moved no clock meanwhile.
  constexpr double kIdle = 0.1;
  const double latest = *std::max_element(comm->shared->host[turn], comm->shared->host[turn] + comm->ranks);
  if (latest > host + kIdle) host = latest;
  double start = 0;
  for (int i = 0; i < comm->ranks; ++i) start = std::max(start, comm->shared->ready[turn][i]);
  on.ready = std::max(on.ready, start);
  queue(on, 0, seconds(), Kind::kCopy);
  if (!effects()) return;
  effect();
  if (!comm->meet()) on.ready = 1e18;
}

void spoil(void* out, std::size_t bytes) {
  static bool spoiled = false;
  if (wrong() != "collective" || spoiled || bytes < 64) return;
  spoiled = true;
  static_cast<float*>(out)[bytes / 8] += 1;
}

void put(const VirtualComm& comm, const void* in, std::size_t bytes) {
  if (effects()) std::memcpy(comm.room(comm.rank), in, std::min(bytes, kRoom));
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t status) {
  return status == ncclSystemError ? "unhandled system error"
         : status == ncclSuccess   ? "no error"
                                   : "internal error";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22700;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  std::snprintf(id->internal, sizeof id->internal, "/moesim-virtual-%d-%d", getpid(), count++);
  const int file = shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(sizeof(Shared) + kMostRanks * kRoom)) != 0)
    return ncclSystemError;
  Shared* shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  pthread_mutexattr_t mutex;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &mutex);
  pthread_condattr_t condition;
  pthread_condattr_init(&condition);
  pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&shared->all_here, &condition);
  munmap(shared, sizeof(Shared));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  host += 0.3;  // rings and trees are searched for
  const int file = shm_open(id.internal, O_RDWR, 0600);
  if (file < 0 || ranks > kMostRanks) return ncclSystemError;
  *comm = new VirtualComm;
  (*comm)->name = id.internal;
  (*comm)->ranks = ranks;
  (*comm)->rank = rank;
  char* all = static_cast<char*>(mmap(nullptr, sizeof(Shared) + kMostRanks * kRoom, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_NORESERVE, file, 0));
  close(file);
  (*comm)->shared = reinterpret_cast<Shared*>(all);
  (*comm)->data = all + sizeof(Shared);
  (*comm)->shared->node[rank] = node_of_this();
  if (!(*comm)->meet()) return ncclSystemError;
  if (rank == 0) shm_unlink(id.internal);
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  munmap(comm->shared, sizeof(Shared) + kMostRanks * kRoom);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* status) {
  *status = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++grouped;
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  if (const auto status = strike(*comm); status != ncclSuccess) return status;
  const std::size_t piece = count * bytes_of(type);
  put(*comm, in, piece);
  together(
      comm, stream, kNcclCall,
      [&] {
        return collective_seconds(Collective::kAllGather, comm->nodes(), comm->ranks,
                                  static_cast<double>(piece) * comm->ranks);
      },
      [&] {
        for (int i = 0; i < comm->ranks; ++i)
          std::memcpy(static_cast<char*>(out) + static_cast<std::size_t>(i) * piece, comm->room(i), piece);
        spoil(out, piece * static_cast<std::size_t>(comm->ranks));
      });
  return ncclSuccess;
}

namespace {

void add_up(const VirtualComm& comm, float* out, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < comm.ranks; ++r) sum += reinterpret_cast<const float*>(comm.room(r))[first + i];
    out[i] = sum;
  }
  spoil(out, count * sizeof(float));
}

}  // namespace

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  if (const auto status = strike(*comm); status != ncclSuccess) return status;
  const std::size_t bytes = count * bytes_of(type) * static_cast<std::size_t>(comm->ranks);
  put(*comm, in, bytes);
  together(
      comm, stream, kNcclCall,
      [&] {
        return collective_seconds(Collective::kReduceScatter, comm->nodes(), comm->ranks,
                                  static_cast<double>(bytes));
      },
      [&] { add_up(*comm, static_cast<float*>(out), static_cast<std::size_t>(comm->rank) * count, count); });
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  if (const auto status = strike(*comm); status != ncclSuccess) return status;
  const std::size_t bytes = count * bytes_of(type);
  put(*comm, in, bytes);
  together(
      comm, stream, kNcclCall,
      [&] {
        return collective_seconds(Collective::kAllReduce, comm->nodes(), comm->ranks,
                                  static_cast<double>(bytes));
      },
      [&] { add_up(*comm, static_cast<float*>(out), 0, count); });
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  messages.push_back({true, in, nullptr, count * bytes_of(type), peer});
  message_comm = comm, message_stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  messages.push_back({false, nullptr, out, count * bytes_of(type), peer});
  message_comm = comm, message_stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--grouped > 0 || messages.empty()) return ncclSuccess;
  VirtualComm& comm = *message_comm;
  if (const auto status = strike(comm); status != ncclSuccess) {
    messages.clear();
    return status;
  }
  Shared& shared = *comm.shared;
  double in_node[2] = {0, 0}, off_node[2] = {0, 0};
  std::size_t at = 0;
  for (int peer = 0; peer < comm.ranks; ++peer) shared.sends[comm.rank][peer] = 0;
  for (const Message& m : messages) {
    if (m.peer != comm.rank)
      (shared.node[m.peer] == shared.node[comm.rank] ? in_node : off_node)[m.send] +=
          static_cast<double>(m.bytes);
    if (!m.send) continue;
    if (effects() && at + m.bytes <= kRoom) std::memcpy(comm.room(comm.rank) + at, m.from, m.bytes);
    shared.sends[comm.rank][m.peer] = at;
    at += m.bytes;
  }
  const int turn = comm.turn;
  shared.inside[turn][comm.rank] = std::max(in_node[0], in_node[1]);
  shared.between[turn][comm.rank] = std::max(off_node[0], off_node[1]);
  together(
      message_comm, message_stream, kNcclCall,
      [&] {
        double inside = 0, between = 0;
        for (int i = 0; i < comm.ranks; ++i)
          inside = std::max(inside, shared.inside[turn][i]),
          between = std::max(between, shared.between[turn][i]);
        return collective_seconds(Collective::kExchange, comm.nodes(), comm.ranks, inside, between);
      },
      [&] {
        for (const Message& m : messages)
          if (!m.send) {
            std::memcpy(m.to, comm.room(m.peer) + shared.sends[m.peer][comm.rank], m.bytes);
            spoil(m.to, m.bytes);
          }
      });
  messages.clear();
  return ncclSuccess;
}

// Nodes have names of their own.
extern "C" int gethostname(char* name, std::size_t length) noexcept {
  std::snprintf(name, length, "node%d", node_of_this());
  return 0;
}

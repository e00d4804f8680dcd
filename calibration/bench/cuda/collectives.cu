// NCCL collectives of one process a GPU, as jobs make them: of the first 2, 4, ... GPUs of one node, or of
// all GPUs of several nodes and of one on each. Process 0 asks the benchmark library which case runs, the
// others follow.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "device.h"
#include "ranks.h"

namespace moesim::bench {
namespace {

enum class Op { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kSendRecv, kUneven };
constexpr std::array<std::pair<Op, const char*>, 6> kOps{{{Op::kAllGather, "all_gather"},
                                                          {Op::kReduceScatter, "reduce_scatter"},
                                                          {Op::kAllReduce, "all_reduce"},
                                                          {Op::kAllToAll, "all_to_all"},
                                                          {Op::kSendRecv, "send_recv"},
                                                          {Op::kUneven, "overlap/uneven_all_to_all"}}};

// The participating processes.
enum class Who { kFirst, kOnePerNode };
struct Group {
  Who who = Who::kFirst;
  int size = 0;
  auto operator<(const Group& other) const { return std::pair(who, size) < std::pair(other.who, other.size); }
};

// Numbers of the processes of a group, in order.
std::vector<int> members(const Group& group) {
  std::vector<int> all;
  const auto& nodes = ranks().nodes;
  for (int i = 0; i < ranks().count && static_cast<int>(all.size()) < group.size; ++i) {
    const bool first_of_node =
        std::find(nodes.begin(), nodes.begin() + i, nodes[static_cast<std::size_t>(i)]) == nodes.begin() + i;
    if (group.who == Who::kFirst || first_of_node) all.push_back(i);
  }
  return all;
}

struct Team {
  int size = 0, rank = -1;  // -1: this process is not in it
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// Communicators stay: they are made once by all processes.
const Team& team_of(const Group& group) {
  static std::map<Group, Team> teams;
  const auto found = teams.find(group);
  if (found != teams.end()) return found->second;
  Team team;
  const std::vector<int> all = members(group);
  team.size = static_cast<int>(all.size());
  const auto me = std::find(all.begin(), all.end(), ranks().index);
  if (me != all.end()) team.rank = static_cast<int>(me - all.begin());
  ncclUniqueId id;
  if (ranks().index == 0) require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  broadcast(&id, sizeof id);
  if (team.rank >= 0) {
    require(cudaStreamCreateWithFlags(&team.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    require(ncclCommInitRank(&team.comm, team.size, id, team.rank), "ncclCommInitRank");
  }
  return teams[group] = team;
}

// Elements that any rank sends to rank `to`: even, or half of everything to rank 0 (a hot expert).
std::size_t split(std::size_t total, int ranks_of_team, int to, bool uneven) {
  const std::size_t n = static_cast<std::size_t>(ranks_of_team);
  if (!uneven) return total / n;
  return to == 0 ? total / 2 : total / 2 / (n - 1);
}

// ---- values ----

// Element i of rank r's buffer: whole numbers, unlike for 128 ranks, whose sums are exact in float for
// 16,000.
__device__ float value_of(int rank, std::size_t i) {
  const unsigned mixed = static_cast<unsigned>(i) * 2654435761u + static_cast<unsigned>(i >> 32);
  return static_cast<float>((mixed >> 20) & 7u) + 8.0f * static_cast<float>(rank & 127);
}

__global__ void fill_values(float* data, std::size_t count, int rank) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    data[i] = value_of(rank, i);
}

// data[i] must be the value of element first + i of `rank`, or with ranks_added > 0 the sum over so many
// ranks.
__global__ void check_values(const float* data, int* wrong, std::size_t count, std::size_t first, int rank,
                             int ranks_added) {
  float of_ranks = 0;
  for (int r = 0; r < ranks_added; ++r) of_ranks += 8.0f * static_cast<float>(r & 127);
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    const float wanted = ranks_added > 0 ? static_cast<float>(ranks_added) * value_of(0, first + i) + of_ranks
                                         : value_of(rank, first + i);
    if (data[i] != wanted) atomicAdd(wrong, 1);
  }
}

std::size_t blocks_for(std::size_t count) {
  constexpr std::size_t kMost = 2048;
  return std::clamp<std::size_t>((count + 255) / 256, 1, kMost);
}

void start(const Team& team, Op op, const float* from, float* to, std::size_t bytes) {
  const std::size_t total = bytes / sizeof(float), piece = total / static_cast<std::size_t>(team.size);
  const ncclComm_t comm = team.comm;
  const cudaStream_t stream = team.stream;
  switch (op) {
    case Op::kAllGather:
      require(ncclAllGather(from, to, piece, ncclFloat, comm, stream), "ncclAllGather");
      return;
    case Op::kReduceScatter:
      require(ncclReduceScatter(from, to, piece, ncclFloat, ncclSum, comm, stream), "ncclReduceScatter");
      return;
    case Op::kAllReduce:
      require(ncclAllReduce(from, to, total, ncclFloat, ncclSum, comm, stream), "ncclAllReduce");
      return;
    case Op::kSendRecv:
      require(ncclGroupStart(), "ncclGroupStart");
      require(ncclSend(from, total, ncclFloat, (team.rank + 1) % team.size, comm, stream), "ncclSend");
      require(ncclRecv(to, total, ncclFloat, (team.rank + team.size - 1) % team.size, comm, stream),
              "ncclRecv");
      require(ncclGroupEnd(), "ncclGroupEnd");
      return;
    case Op::kAllToAll:
    case Op::kUneven:
      break;
  }
  const bool uneven = op == Op::kUneven;
  const std::size_t receive = split(total, team.size, team.rank, uneven);
  std::size_t sent = 0;
  require(ncclGroupStart(), "ncclGroupStart");
  for (int peer = 0; peer < team.size; ++peer) {
    const std::size_t send = split(total, team.size, peer, uneven);
    require(ncclSend(from + sent, send, ncclFloat, peer, comm, stream), "ncclSend");
    require(ncclRecv(to + static_cast<std::size_t>(peer) * receive, receive, ncclFloat, peer, comm, stream),
            "ncclRecv");
    sent += send;
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
}

// Whether every element that arrived is the one that was to arrive.
bool right(const Team& team, Op op, const float* out, std::size_t bytes) {
  Mismatches wrong;
  const std::size_t total = bytes / sizeof(float), piece = total / static_cast<std::size_t>(team.size);
  const auto check = [&](const float* data, std::size_t count, std::size_t first, int rank, int added) {
    if (count > 0)
      launch(check_values, blocks_for(count), 256, 0, team.stream, data, wrong.counter(), count, first, rank,
             added);
  };
  switch (op) {
    case Op::kAllGather:
      for (int r = 0; r < team.size; ++r) check(out + static_cast<std::size_t>(r) * piece, piece, 0, r, 0);
      break;
    case Op::kReduceScatter:
      check(out, piece, static_cast<std::size_t>(team.rank) * piece, 0, team.size);
      break;
    case Op::kAllReduce:
      check(out, total, 0, 0, team.size);
      break;
    case Op::kSendRecv:
      check(out, total, 0, (team.rank + team.size - 1) % team.size, 0);
      break;
    case Op::kAllToAll:
    case Op::kUneven: {
      std::size_t mine = 0;  // where this rank's part begins in the buffer of every other
      for (int to = 0; to < team.rank; ++to) mine += split(total, team.size, to, op == Op::kUneven);
      const std::size_t receive = split(total, team.size, team.rank, op == Op::kUneven);
      for (int from = 0; from < team.size; ++from)
        check(out + static_cast<std::size_t>(from) * receive, receive, mine, from, 0);
    }
  }
  return wrong.count(team.stream) == 0;
}

void run(benchmark::State* state, const Group& group, Op op, std::size_t bytes) {
  const Team& team = team_of(group);
  // The hot rank of an uneven exchange receives half of everybody's buffer.
  const std::size_t room = op == Op::kUneven ? bytes / 2 * static_cast<std::size_t>(team.size) + 4096 : bytes;
  const bool in_it = team.rank >= 0;
  if (!all_agree(!in_it || has_room(nullptr, bytes + room))) {
    has_room(state, bytes + room);
    if (state && !state->error_occurred()) state->SkipWithError("skipped: too little memory on another GPU");
    return;
  }
  // Processes that are not in the group say yes and wait for those that are.
  const Buffer in(in_it ? bytes : 0), out(in_it ? room : 0);
  bool good = true;
  if (in_it) {
    launch(fill_values, blocks_for(bytes / sizeof(float)), 256, 0, team.stream, in.as<float>(),
           bytes / sizeof(float), team.rank);
    start(team, op, in.as<float>(), out.as<float>(), bytes);
    cudaEvent_t done;
    require(cudaEventCreate(&done), "cudaEventCreate");
    require(cudaEventRecord(done, team.stream), "cudaEventRecord");
    wait_for(done, "a collective");
    cudaEventDestroy(done);
    good = right(team, op, out.as<float>(), bytes);
  }
  if (!all_agree(good)) {
    if (state) state->SkipWithError("wrong result");
    return;
  }
  TimedCase one{team.stream, 1, true, false,
                [&](int) { start(team, op, in.as<float>(), out.as<float>(), bytes); }};
  if (!in_it) one.work = [](int) {};
  report(state, timed(one));
}

}  // namespace

void register_collectives(std::vector<Case>& cases, int nodes, int processes) {
  int version = 0;
  require(ncclGetVersion(&version), "ncclGetVersion");
  const std::string library = "NCCL-" + std::to_string(version / 10000) + "." +
                              std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  if (processes < 2) {
    // Said where the results are read, not invented.
    add_case(
        cases, "all_gather/nodes:1/ranks:2/bytes:1024/dtype:float/library:" + library, 0,
        [](benchmark::State& state) { state.SkipWithError("skipped: one GPU here, collectives need two"); });
    return;
  }
  std::vector<Group> groups;
  if (nodes > 1) groups.push_back({Who::kOnePerNode, nodes});
  if (nodes == 1)
    for (int size = 2; size < processes; size *= limits().brief ? processes : 2)
      groups.push_back({Who::kFirst, size});
  if (processes > nodes || nodes == 1) groups.push_back({Who::kFirst, processes});
  for (const Group& group : groups)
    for (std::size_t bytes = 1024; bytes <= (std::size_t{1} << 30); bytes *= limits().brief ? 16 : 2) {
      // Every rank has at least one element to send to every other.
      if (bytes / sizeof(float) / 2 < static_cast<std::size_t>(group.size)) continue;
      const std::string tail = "/nodes:" + std::to_string(nodes) + "/ranks:" + std::to_string(group.size) +
                               "/bytes:" + std::to_string(bytes) + "/dtype:float/library:" + library;
      for (const auto& [op, name] : kOps)
        add_followed_case(cases, name + tail, 0.2,
                          [group, op = op, bytes](benchmark::State* state) { run(state, group, op, bytes); });
    }
}

}  // namespace moesim::bench

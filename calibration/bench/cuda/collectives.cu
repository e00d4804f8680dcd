// NCCL collectives. One process drives all GPUs of its node; several nodes are several processes under MPI.
// Rank 0 asks the benchmark library which case runs and how often, the other processes follow.
#ifdef MOESIM_BENCH_MPI
#include <mpi.h>
#endif

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "device.h"
#include "follow.h"

namespace moesim::bench {
namespace {

enum class Op { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kUneven, kSendRecv };
constexpr std::pair<Op, const char*> kOps[] = {{Op::kAllGather, "all_gather"},
                                               {Op::kReduceScatter, "reduce_scatter"},
                                               {Op::kAllReduce, "all_reduce"},
                                               {Op::kAllToAll, "all_to_all"},
                                               {Op::kSendRecv, "send_recv"}};

// Communicators of the first `local` GPUs of every process.
struct Team {
  int local = 0;
  int first_rank = 0;  // of this process
  int ranks = 0;
  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;

  Team(int local_gpus, int process, int processes)
      : local(local_gpus), first_rank(process * local_gpus), ranks(local_gpus * processes) {
    comms.resize(static_cast<std::size_t>(local));
    streams.resize(static_cast<std::size_t>(local));
    ncclUniqueId id;
    if (process == 0) require(ncclGetUniqueId(&id), "ncclGetUniqueId");
    broadcast(&id, sizeof id);
    require(ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < local; ++i) {
      require(cudaSetDevice(i), "cudaSetDevice");
      require(ncclCommInitRank(&comms[static_cast<std::size_t>(i)], ranks, id, first_rank + i),
              "ncclCommInitRank");
    }
    require(ncclGroupEnd(), "ncclGroupEnd");
    for (int i = 0; i < local; ++i) {
      require(cudaSetDevice(i), "cudaSetDevice");
      require(cudaStreamCreate(&streams[static_cast<std::size_t>(i)]), "cudaStreamCreate");
    }
    require(cudaSetDevice(0), "cudaSetDevice");
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    for (std::size_t i = 0; i < comms.size(); ++i) {
      ncclCommDestroy(comms[i]);
      cudaStreamDestroy(streams[i]);
    }
  }
};

Team& team_of(int local) {
  static std::map<int, std::unique_ptr<Team>> teams;
  auto& team = teams[local];
  if (!team) team = std::make_unique<Team>(local, process_index(), process_count());
  return *team;
}

// Elements that rank `from` sends to rank `to`: even, or half of everything to rank 0 (a hot expert).
std::size_t split(std::size_t total, int ranks, int to, bool uneven) {
  const std::size_t share = total / static_cast<std::size_t>(ranks);
  if (!uneven) return share;
  return to == 0 ? total / 2 : total / 2 / static_cast<std::size_t>(ranks - 1);
}

void launch(const Team& team, Op op, const std::vector<std::unique_ptr<Buffer>>& in,
            const std::vector<std::unique_ptr<Buffer>>& out, std::size_t bytes) {
  const std::size_t total = bytes / sizeof(float);
  const std::size_t piece = total / static_cast<std::size_t>(team.ranks);
  require(ncclGroupStart(), "ncclGroupStart");
  for (int i = 0; i < team.local; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    const int rank = team.first_rank + i;
    const float* from = in[at]->as<float>();
    float* to = out[at]->as<float>();
    const ncclComm_t comm = team.comms[at];
    const cudaStream_t stream = team.streams[at];
    switch (op) {
      case Op::kAllGather:
        require(ncclAllGather(from, to, piece, ncclFloat, comm, stream), "ncclAllGather");
        break;
      case Op::kReduceScatter:
        require(ncclReduceScatter(from, to, piece, ncclFloat, ncclSum, comm, stream), "ncclReduceScatter");
        break;
      case Op::kAllReduce:
        require(ncclAllReduce(from, to, total, ncclFloat, ncclSum, comm, stream), "ncclAllReduce");
        break;
      case Op::kSendRecv:
        require(ncclSend(from, total, ncclFloat, (rank + 1) % team.ranks, comm, stream), "ncclSend");
        require(ncclRecv(to, total, ncclFloat, (rank + team.ranks - 1) % team.ranks, comm, stream),
                "ncclRecv");
        break;
      case Op::kAllToAll:
      case Op::kUneven: {
        const bool uneven = op == Op::kUneven;
        std::size_t sent = 0, received = 0;
        for (int peer = 0; peer < team.ranks; ++peer) {
          const std::size_t send = split(total, team.ranks, peer, uneven),
                            receive = split(total, team.ranks, rank, uneven);
          require(ncclSend(from + sent, send, ncclFloat, peer, comm, stream), "ncclSend");
          require(ncclRecv(to + received, receive, ncclFloat, peer, comm, stream), "ncclRecv");
          sent += send;
          received += receive;
        }
        break;
      }
    }
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
}

void wait(const Team& team) {
  for (int i = 0; i < team.local; ++i) {
    require(cudaSetDevice(i), "cudaSetDevice");
    require(cudaStreamSynchronize(team.streams[static_cast<std::size_t>(i)]), "collective");
  }
  require(cudaSetDevice(0), "cudaSetDevice");
}

// Every input holds rank + 1: what each operation makes of that is known.
bool right(const Team& team, Op op, const std::vector<std::unique_ptr<Buffer>>& out, std::size_t bytes) {
  const std::size_t piece = bytes / sizeof(float) / static_cast<std::size_t>(team.ranks);
  const float sum = static_cast<float>(team.ranks) * static_cast<float>(team.ranks + 1) / 2;
  for (int i = 0; i < team.local; ++i) {
    const int rank = team.first_rank + i;
    float first = 0, last = 0;
    std::size_t end = bytes / sizeof(float) - 1;
    float want_first = 1, want_last = static_cast<float>(team.ranks);
    if (op == Op::kReduceScatter) end = piece - 1;
    if (op == Op::kReduceScatter || op == Op::kAllReduce) want_first = want_last = sum;
    if (op == Op::kAllGather || op == Op::kAllToAll) end = piece * static_cast<std::size_t>(team.ranks) - 1;
    if (op == Op::kUneven)
      end = split(bytes / sizeof(float), team.ranks, rank, true) * static_cast<std::size_t>(team.ranks) - 1;
    if (op == Op::kSendRecv)
      want_first = want_last = static_cast<float>((rank + team.ranks - 1) % team.ranks + 1);
    const float* data = out[static_cast<std::size_t>(i)]->as<float>();
    require(cudaMemcpy(&first, data, sizeof first, cudaMemcpyDeviceToHost), "cudaMemcpy");
    require(cudaMemcpy(&last, data + end, sizeof last, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (first != want_first || last != want_last) return false;
  }
  return true;
}

void run(benchmark::State* state, int local, Op op, std::size_t bytes) {
  const Team& team = team_of(local);
  const int calls = bytes <= (1 << 20) ? 50 : 10;
  // The hot rank of an uneven exchange receives half of everybody's buffer.
  const std::size_t room =
      op == Op::kUneven ? bytes / 2 * static_cast<std::size_t>(team.ranks) + 4096 : bytes + 4096;
  std::vector<std::unique_ptr<Buffer>> in, out;
  for (int i = 0; i < team.local; ++i) {
    require(cudaSetDevice(i), "cudaSetDevice");
    in.push_back(std::make_unique<Buffer>(bytes + 4096));
    out.push_back(std::make_unique<Buffer>(room));
    const std::vector<float> values((bytes + 4096) / sizeof(float),
                                    static_cast<float>(team.first_rank + i + 1));
    require(cudaMemcpy(in.back()->as<void>(), values.data(), values.size() * sizeof(float),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
  }
  require(cudaSetDevice(0), "cudaSetDevice");
  launch(team, op, in, out, bytes);
  wait(team);
  if (!all_agree(right(team, op, out, bytes))) {
    if (state) state->SkipWithError("wrong result");
    return;
  }
  for (int i = 0; i < 5; ++i) launch(team, op, in, out, bytes);
  wait(team);
  while (keep_running(state)) {
    const double seconds =
        slowest(gpu_seconds(team.streams[0], calls, [&](int) { launch(team, op, in, out, bytes); }));
    wait(team);
    if (state) state->SetIterationTime(seconds);
  }
}

}  // namespace

void register_collectives(std::vector<Case>& cases, int, char**) {
  int gpus = 0;
  require(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  int version = 0;
  require(ncclGetVersion(&version), "ncclGetVersion");
  const std::string library = "NCCL-" + std::to_string(version / 10000) + "." +
                              std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  const int nodes = process_count();
  // Sub-groups of one node, or all GPUs of several.
  std::vector<int> sizes;
  for (int local = nodes > 1 ? gpus : 2; local <= gpus; local *= 2) sizes.push_back(local);
  if (nodes == 1 && gpus < 2) {
    // Said where the results are read, not invented.
    cases.push_back({"all_gather/nodes:1/ranks:2/bytes:1024/dtype:float/library:" + library, 0});
    benchmark::RegisterBenchmark(cases.back().name.c_str(), [](benchmark::State& state) {
      state.SkipWithError("skipped: one GPU here, collectives need two");
    });
    return;
  }
  for (const int local : sizes)
    for (std::size_t bytes = 1024; bytes <= (std::size_t{1} << 30); bytes *= 2) {
      const std::string tail = "/nodes:" + std::to_string(nodes) + "/ranks:" + std::to_string(local * nodes) +
                               "/bytes:" + std::to_string(bytes) + "/dtype:float/library:" + library;
      for (const auto& [op, name] : kOps)
        add_followed_case(cases, name + tail, 0.4,
                          [local, op = op, bytes](benchmark::State* state) { run(state, local, op, bytes); });
      add_followed_case(cases, "overlap/uneven_all_to_all" + tail, 0.4,
                        [local, bytes](benchmark::State* state) { run(state, local, Op::kUneven, bytes); });
    }
}

}  // namespace moesim::bench

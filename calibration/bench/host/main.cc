// The host benchmark: the same suite as on a GPU, with Eigen for matrix products and MPI for collectives, so
// that measure -> fit -> check can be tried on any machine. Its numbers are about this host only.
#include <benchmark/benchmark.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <Eigen/Core>

namespace {

using Clock = std::chrono::steady_clock;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::size_t kRotation = 64u << 20;  // bytes of rotating buffers: beyond the last-level cache

int rank_of_world = 0;
int ranks_of_world = 1;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A collective takes the time of its slowest member.
double slowest(double seconds) {
  double result = seconds;
  MPI_Allreduce(&seconds, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return result;
}

// Rank 0 has the benchmark library: which case runs and how often. The other ranks have no state and follow.
bool keep_running(benchmark::State* state) {
  int more = state ? static_cast<int>(state->KeepRunning()) : 0;
  MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return more != 0;
}

// Times calls of `operation`; `right` checks its result.
template <class Operation, class Right>
void measure_collective(benchmark::State* state, const Operation& operation, const Right& right) {
  operation();  // warm-up, and the checked run
  int wrong = right() ? 0 : 1, wrong_anywhere = 0;
  MPI_Allreduce(&wrong, &wrong_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (wrong_anywhere) {
    if (state) state->SkipWithError("wrong result");
    return;
  }
  while (keep_running(state)) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = Clock::now();
    operation();
    const double seconds = slowest(seconds_since(start));
    if (state) state->SetIterationTime(seconds);
  }
}

void all_gather(benchmark::State* state, std::size_t bytes) {
  const std::size_t piece = bytes / static_cast<std::size_t>(ranks_of_world) / sizeof(float);
  std::vector<float> in(piece, static_cast<float>(rank_of_world + 1)),
      out(piece * static_cast<std::size_t>(ranks_of_world));
  const auto count = static_cast<int>(piece);
  measure_collective(
      state,
      [&] { MPI_Allgather(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, MPI_COMM_WORLD); },
      [&] {
        for (int r = 0; r < ranks_of_world; ++r)
          if (out[piece * static_cast<std::size_t>(r)] != static_cast<float>(r + 1)) return false;
        return true;
      });
}

void reduce_scatter(benchmark::State* state, std::size_t bytes) {
  const std::size_t piece = bytes / static_cast<std::size_t>(ranks_of_world) / sizeof(float);
  std::vector<float> in(piece * static_cast<std::size_t>(ranks_of_world), 1), out(piece);
  measure_collective(
      state,
      [&] {
        MPI_Reduce_scatter_block(in.data(), out.data(), static_cast<int>(piece), MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
      },
      [&] { return out.front() == static_cast<float>(ranks_of_world) && out.back() == out.front(); });
}

void all_reduce(benchmark::State* state, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  std::vector<float> in(count, 1), out(count);
  measure_collective(
      state,
      [&] {
        MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      },
      [&] { return out.front() == static_cast<float>(ranks_of_world) && out.back() == out.front(); });
}

void all_to_all(benchmark::State* state, std::size_t bytes) {
  const std::size_t piece = bytes / static_cast<std::size_t>(ranks_of_world) / sizeof(float);
  std::vector<float> in(piece * static_cast<std::size_t>(ranks_of_world), static_cast<float>(rank_of_world)),
      out(in.size());
  const auto count = static_cast<int>(piece);
  measure_collective(
      state, [&] { MPI_Alltoall(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, MPI_COMM_WORLD); },
      [&] {
        for (int r = 0; r < ranks_of_world; ++r)
          if (out[piece * static_cast<std::size_t>(r)] != static_cast<float>(r)) return false;
        return true;
      });
}

void gemm(benchmark::State& state, int m, int n, int k) {
  // Enough copies of the inputs that none is cached when its turn comes.
  const std::size_t bytes =
      (static_cast<std::size_t>(m) * k + static_cast<std::size_t>(k) * n) * sizeof(float);
  const std::size_t copies = std::clamp<std::size_t>(kRotation / bytes, 1, 16);
  std::vector<Matrix> a(copies, Matrix::Constant(m, k, 0.5f)), b(copies, Matrix::Constant(k, n, 2.0f));
  Matrix c(m, n);
  c.noalias() = a[0] * b[0];
  if (std::abs(c(m - 1, n - 1) - static_cast<float>(k)) > 1e-3f * static_cast<float>(k)) {
    state.SkipWithError("wrong result");
    return;
  }
  std::size_t turn = 0;
  while (state.KeepRunning()) {
    const auto start = Clock::now();
    c.noalias() = a[turn] * b[turn];
    benchmark::DoNotOptimize(c.data());
    state.SetIterationTime(seconds_since(start));
    turn = (turn + 1) % copies;
  }
}

void copy(benchmark::State& state, std::size_t bytes) {
  std::vector<char> from(bytes / 2, 'x'), to(bytes / 2);
  while (state.KeepRunning()) {
    const auto start = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
    state.SetIterationTime(seconds_since(start));
  }
  if (to.back() != 'x') state.SkipWithError("wrong result");
}

// Rows of 4 KiB in random order, as in permute.
void gather_rows(benchmark::State& state, std::size_t bytes) {
  constexpr std::size_t kWidth = 1024;
  const std::size_t rows = std::max<std::size_t>(bytes / 2 / (kWidth * sizeof(float)), 1);
  std::vector<float> from(rows * kWidth), to(rows * kWidth);
  std::vector<std::uint32_t> order(rows);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (std::size_t r = 0; r < rows; ++r) from[r * kWidth] = static_cast<float>(r);
  while (state.KeepRunning()) {
    const auto start = Clock::now();
    for (std::size_t r = 0; r < rows; ++r)
      std::memcpy(&to[r * kWidth], &from[order[r] * kWidth], kWidth * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    state.SetIterationTime(seconds_since(start));
  }
  for (std::size_t r = 0; r < rows; ++r)
    if (to[r * kWidth] != static_cast<float>(order[r])) {
      state.SkipWithError("wrong result");
      return;
    }
}

void sort_pass(benchmark::State& state, std::size_t bytes) {
  const std::size_t count = std::max<std::size_t>(bytes / 16, 1);  // key and value, read and written
  std::mt19937 random(2);
  std::vector<std::uint64_t> keys(count), sorted;
  for (auto& key : keys) key = random() % 256;
  while (state.KeepRunning()) {
    sorted = keys;
    const auto start = Clock::now();
    std::stable_sort(sorted.begin(), sorted.end());
    state.SetIterationTime(seconds_since(start));
  }
  if (!std::is_sorted(sorted.begin(), sorted.end())) state.SkipWithError("wrong result");
}

using Collective = std::function<void(benchmark::State*)>;
constexpr int kStop = -1;

struct Suite {
  std::vector<std::string> names;
  std::vector<Collective> collectives;  // by the number that rank 0 broadcasts
};

// Runs on the other ranks what rank 0 broadcasts, until it stops.
void follow(const Suite& suite) {
  for (;;) {
    int which = kStop;
    MPI_Bcast(&which, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (which == kStop) return;
    suite.collectives[static_cast<std::size_t>(which)](nullptr);
  }
}

Suite register_all() {
  Suite suite;
  const auto add = [&](const std::string& name, const std::function<void(benchmark::State&)>& run) {
    suite.names.push_back(name);
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  const auto add_collective = [&](const std::string& name, const Collective& run) {
    const int which = static_cast<int>(suite.collectives.size());
    suite.collectives.push_back(run);
    add(name, [run, which](benchmark::State& state) {
      int called = which;
      MPI_Bcast(&called, 1, MPI_INT, 0, MPI_COMM_WORLD);
      run(&state);
    });
  };
  if (ranks_of_world > 1) {
    for (std::size_t bytes = 1024; bytes <= (16u << 20); bytes *= 4) {
      const std::string tail = "/nodes:1/ranks:" + std::to_string(ranks_of_world) +
                               "/bytes:" + std::to_string(bytes) + "/dtype:float/library:mpi";
      add_collective("all_gather" + tail, [bytes](benchmark::State* s) { all_gather(s, bytes); });
      add_collective("reduce_scatter" + tail, [bytes](benchmark::State* s) { reduce_scatter(s, bytes); });
      add_collective("all_reduce" + tail, [bytes](benchmark::State* s) { all_reduce(s, bytes); });
      add_collective("all_to_all" + tail, [bytes](benchmark::State* s) { all_to_all(s, bytes); });
    }
    return suite;
  }
  for (const auto& [n, k] : {std::pair(256, 512), std::pair(512, 512), std::pair(1024, 256)})
    for (const int m : {1, 8, 32, 128, 512})
      add("gemm/m:" + std::to_string(m) + "/n:" + std::to_string(n) + "/k:" + std::to_string(k) +
              "/dtype:fp32/library:eigen/clocks:burst",
          [m, n = n, k = k](benchmark::State& s) { gemm(s, m, n, k); });
  for (std::size_t bytes = 64 << 10; bytes <= (64u << 20); bytes *= 8) {
    const std::string tail = "/bytes:" + std::to_string(bytes) + "/launches:1";
    add("kernel/class:copy" + tail, [bytes](benchmark::State& s) { copy(s, bytes); });
    add("kernel/class:gather_rows" + tail, [bytes](benchmark::State& s) { gather_rows(s, bytes); });
    add("kernel/class:sort" + tail, [bytes](benchmark::State& s) { sort_pass(s, bytes); });
  }
  return suite;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_of_world);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_of_world);
  const Suite suite = register_all();
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--dry-run") == 0) {
      if (rank_of_world == 0) {
        for (const std::string& name : suite.names) std::printf("%6.1f s  %s\n", 1.0, name.c_str());
        std::printf("%zu benchmarks, about %zu s at the default minimum time\n", suite.names.size(),
                    suite.names.size());
      }
      MPI_Finalize();
      return 0;
    }
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  benchmark::AddCustomContext("gpu", "HOST");
  benchmark::AddCustomContext("host", host);
  benchmark::AddCustomContext("ranks", std::to_string(ranks_of_world));
  // Rank 0 prints; the others run as many iterations as it broadcasts.
  if (rank_of_world == 0) {
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    int stop = kStop;
    MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
  } else {
    follow(suite);
  }
  MPI_Finalize();
  return 0;
}

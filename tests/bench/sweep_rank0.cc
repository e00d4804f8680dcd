// The work of rank 0 of a sweep under MPI for every block of other ranks, apart from computing: it receives
// the message and writes the rows. Alone it measures writing, under `mpirun -n 2` also receiving messages:
//   sweep_rank0 ROWS.csv FILE [LIBMOESIM_MPI]
// prints JSON: processor seconds per byte and per block. ROWS.csv: a table of a sweep, whose rows are used.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "base/file_io.h"
#include "tools/moesim/sweeps/sweep_exchange.h"
#include "tools/moesim/sweeps/sweep_file.h"
#include "tools/moesim/sweeps/sweep_mpi_transport.h"
#include "tools/moesim/sweeps/sweep_run.h"

namespace {

using namespace moesim::tools;  // NOLINT

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Seconds for each of `count` blocks with `rows` that are put into a file in order.
double writing(const std::string& rows, std::uint64_t count, const std::filesystem::path& path) {
  SweepFile file(path, "{}", "", SweepStart::kOverwrite);
  SweepJob job;
  job.end = count;
  const SweepWrite write = [&](const SweepBlock& block) {
    file.append(block.rows, block.first + block.count);
    return true;
  };
  SweepExchange exchange(job, 64, write);
  const double before = processor_seconds();
  while (const auto number = exchange.take_now()) {
    SweepBlock block = job.block_at(*number);
    block.rows = rows;
    exchange.put(*number, std::move(block));
  }
  const double each = (processor_seconds() - before) / double(count);
  file.finish("{}\n");
  std::filesystem::remove(path);
  return each;
}

// A process that waits must not be counted, nor take the processor from the other.
void nap() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

// Rank 1 sends as fast as it can, rank 0 takes.
double taking(const MpiTransport& mpi, std::size_t bytes, int count) {
  const std::string message(bytes, 'x');
  const double before = processor_seconds();
  int taken = 0;
  for (; mpi.rank == 1 && taken < count; ++taken) {
    mpi.send(0, 1, message.data(), message.size());
    MpiMessage answer;
    while (taken % 64 == 63 && !mpi.probe(&answer)) nap();
    if (taken % 64 == 63) mpi.receive(&answer, nullptr);
  }
  while (mpi.rank == 0 && taken < count) {
    MpiMessage one;
    if (!mpi.probe(&one)) {
      nap();
      continue;
    }
    std::string got(one.bytes, '\0');
    mpi.receive(&one, got.data());
    if (++taken % 64 == 0) mpi.send(1, 2, nullptr, 0);
  }
  return (processor_seconds() - before) / count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string table = moesim::read_file(argv[1]);
  const std::size_t from = table.find('\n') + 1;
  constexpr std::size_t kSmall = 4096, kLarge = 400'000;
  if (table.size() < from + kLarge) {
    std::fputs("sweep_rank0: found a table that is too short, expected 400 kB\n", stderr);
    return 2;
  }
  const MpiTransport* mpi = nullptr;
  if (argc > 3) {
    void* library = dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL);
    auto* start =
        library ? reinterpret_cast<const MpiTransport* (*)()>(dlsym(library, "moesim_mpi_start")) : nullptr;
    if (!start) return 2;
    mpi = start();
  }
  double small = 0, large = 0;
  if (mpi) {
    small = taking(*mpi, kSmall, 4096);
    large = taking(*mpi, kLarge, 256);
  }
  if (!mpi || mpi->rank == 0) {
    const double put_small = writing(table.substr(from, kSmall), 4096, argv[2]);
    const double put_large = writing(table.substr(from, kLarge), 256, argv[2]);
    // Two sizes tell what a block costs and what a byte costs.
    const auto print = [](const char* name, double at_small, double at_large) {
      const double byte = std::max(0.0, (at_large - at_small) / double(kLarge - kSmall));
      fmt::print("\"{}\": {{\"block\": {:.4g}, \"byte\": {:.4g}}}", name,
                 std::max(0.0, at_small - byte * kSmall), byte);
    };
    fmt::print("{{");
    print("write", put_small, put_large);
    if (mpi) {
      fmt::print(", ");
      print("message", small, large);
    }
    fmt::print("}}\n");
  }
  if (mpi) mpi->finish(true, 0);
  return 0;
}

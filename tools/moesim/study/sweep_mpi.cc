#include "tools/moesim/study/sweep_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"
#include "base/helper_threads.h"
#include "base/input_error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tools/moesim/study/plugin_path.h"
#include "tools/moesim/study/sweep_mpi_transport.h"
#include "tools/moesim/study/sweep_run.h"

namespace moesim::tools {

namespace {

// Worker to rank 0: kHello (SHA-256 of the definition, threads), kRows, kBye (its last message). Rank 0 to
// worker: kBegin (the first scenario and the size of a block), kBlock (a number), kStop (its last message).
enum Tag : int { kHello = 1, kBegin, kBlock, kRows, kBye, kStop };

// Header of kRows, before the rows and the first error.
struct RowsHead {
  std::uint64_t block, failed, error_bytes;
};

constexpr auto kNap = std::chrono::milliseconds(1);  // more frequent polling costs the workers processor time
constexpr std::uint64_t kAhead = 4;  // blocks on their way to a thread, so that it never waits for an answer

// With few slow blocks each thread has one at a time: blocks queued for one thread delay the others.
std::uint64_t blocks_ahead(const SweepJob& job, std::uint64_t threads) {
  return std::clamp<std::uint64_t>(job.blocks() / (4 * threads), 1, kAhead);
}

constexpr const char* kHowToLaunch =
    "srun --mpi=pmix (`srun --mpi=list` says what it has), the mpirun of the MPI that moesim was built with, "
    "or --shard I/N for parts that share nothing";

// Returns the number of processes that the launcher started: OpenMPI, PMI (MPICH, Slurm), PMIx under Slurm.
// Throws InputError for tasks of Slurm that cannot find each other: each would compute the whole table.
int launched(bool parts_of_their_own) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const char* text = std::getenv(name)) return static_cast<int>(parse_int(text).value_or(1));
  const char *tasks = std::getenv("SLURM_STEP_NUM_TASKS"), *pmix = std::getenv("PMIX_RANK");
  const int count = tasks ? static_cast<int>(parse_int(tasks).value_or(1)) : 1;
  if (count < 2 || pmix) return count;
  if (parts_of_their_own) return 1;
  const char* task = std::getenv("SLURM_PROCID");
  throw InputError(
      fmt::format("sweep: found task {} of {} of srun, which started it without MPI, expected {}",
                  task ? one_line(task) : "?", count, kHowToLaunch));
}

template <typename T>
T unpacked_as(const MpiMessage& message) {
  T value{};
  check(message.bytes.size() == sizeof(value), "a message of rank 0 has its size");
  std::memcpy(&value, message.bytes.data(), sizeof(value));
  return value;
}

std::string packed(std::uint64_t number, const SweepBlock& block) {
  const RowsHead head{number, block.failed, block.first_error.size()};
  std::string bytes(sizeof(head), '\0');
  std::memcpy(bytes.data(), &head, sizeof(head));
  return bytes + block.first_error + block.rows;
}

std::pair<std::uint64_t, SweepBlock> unpacked(const SweepJob& job, const std::string& bytes) {
  RowsHead head{};
  check(bytes.size() >= sizeof(head), "rows from a worker have their head");
  std::memcpy(&head, bytes.data(), sizeof(head));
  SweepBlock block = job.block_at(head.block);
  block.failed = head.failed;
  block.first_error = bytes.substr(sizeof(head), head.error_bytes);
  block.rows = bytes.substr(sizeof(head) + head.error_bytes);
  return {head.block, std::move(block)};
}

}  // namespace

std::unique_ptr<SweepMpi> SweepMpi::start(bool parts_of_their_own) {
  const int processes = launched(parts_of_their_own);
  if (processes < 2) return nullptr;
  const std::filesystem::path library = plugin_path("libmoesim_mpi.so");
  if (!path_exists(library))
    throw InputError(
        fmt::format("sweep: found {} processes, expected one: this moesim was built without MPI "
                    "(no {})",
                    processes, library.string()));
  // MPI's own parts look for its symbols.
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) throw InputError(fmt::format("sweep: cannot load MPI: {}", one_line(::dlerror())));
  auto* begin = reinterpret_cast<const MpiTransport* (*)()>(::dlsym(handle, "moesim_mpi_start"));
  check(begin != nullptr, "libmoesim_mpi.so has moesim_mpi_start");
  const MpiTransport* transport = begin();
  if (transport->size < 2) {
    transport->finish();
    throw InputError(fmt::format(
        "sweep: found one process in MPI where the launcher started {}: they do not speak the same language, "
        "expected {}",
        processes, kHowToLaunch));
  }
  return std::unique_ptr<SweepMpi>(new SweepMpi(transport));
}

SweepMpi::~SweepMpi() {
  if (rank() == 0) {
    for (int other = 1; other < size(); ++other) transport_->send(other, kStop, nullptr, 0);
    while (gone_ + 1 < size()) gone_ += wait().tag == kBye;
  } else {
    transport_->send(0, kBye, nullptr, 0);
    while (!stopped_) stopped_ = wait().tag == kStop;
  }
  transport_->finish();
}

int SweepMpi::rank() const { return transport_->rank; }
int SweepMpi::size() const { return transport_->size; }

MpiMessage SweepMpi::wait() const {
  MpiMessage message;
  while (!transport_->receive(&message)) std::this_thread::sleep_for(kNap);
  return message;
}

void SweepMpi::deal(const SweepJob& job, int threads, const std::string& definition,
                    const SweepWrite& write) {
  const auto own = static_cast<std::uint64_t>(std::max(threads, 1));
  const std::uint64_t all = own * static_cast<std::uint64_t>(size());
  SweepExchange exchange(job, 2 * kAhead * all, write);
  HelperThreads workers(own, [&] { work_on(job, exchange); });

  const std::uint64_t ahead = blocks_ahead(job, all);
  const std::string fingerprint = sha256_hex(definition);
  struct Peer {
    std::uint64_t slots = 0, blocks = 0;  // that it takes at a time, and has
  };
  std::vector<Peer> peers(static_cast<std::size_t>(size()));
  const auto take = [&](const MpiMessage& message) {
    Peer& peer = peers[static_cast<std::size_t>(message.from)];
    if (message.tag == kRows) {
      auto [number, block] = unpacked(job, message.bytes);
      --peer.blocks;
      exchange.put(number, std::move(block));
    } else if (message.tag == kHello) {
      if (!message.bytes.starts_with(fingerprint))
        throw InputError(fmt::format(
            "sweep: rank {} found other input files than rank 0, expected the same on all machines",
            message.from));
      peer.slots =
          ahead * static_cast<std::uint64_t>(parse_int(message.bytes.substr(fingerprint.size())).value_or(1));
      const std::uint64_t begin[2] = {job.first, job.block};
      transport_->send(message.from, kBegin, begin, sizeof(begin));
    } else {
      ++gone_;
      throw InputError(fmt::format(
          "sweep: rank {} ended with an error, expected rows; --resume goes on behind those that are there",
          message.from));
    }
  };
  // A rank that comes late has its files compared, too.
  const auto unheard = [&] {
    return std::any_of(peers.begin() + 1, peers.end(), [](const Peer& peer) { return peer.slots == 0; });
  };
  try {
    while (!exchange.over() || unheard()) {
      bool any = false;
      for (MpiMessage message; transport_->receive(&message); any = true) take(message);
      for (int other = 1; other < size(); ++other)
        for (Peer& peer = peers[static_cast<std::size_t>(other)]; peer.blocks < peer.slots; ++peer.blocks) {
          const auto block = exchange.take_now();
          if (!block) break;
          transport_->send(other, kBlock, &*block, sizeof(*block));
          any = true;
        }
      if (!any) std::this_thread::sleep_for(kNap);
    }
  } catch (...) {
    exchange.fail(std::current_exception());
  }
  workers.join();
  exchange.rethrow();
}

void SweepMpi::work(SweepJob& job, int threads, const std::string& definition) {
  if (threads > 1 && !transport_->threads)
    throw InputError("--threads: found an MPI that one thread must call, expected 1");
  const std::string hello = sha256_hex(definition) + std::to_string(std::max(threads, 1));
  transport_->send(0, kHello, hello.data(), hello.size());
  const MpiMessage begin = wait();
  stopped_ = begin.tag == kStop;
  if (stopped_) return;
  const auto [first, size] = unpacked_as<std::array<std::uint64_t, 2>>(begin);
  job.first = first;
  job.block = size;

  std::mutex mutex;  // MPI is called by one thread at a time
  std::deque<std::uint64_t> dealt;
  std::exception_ptr error;
  const auto next = [&]() -> std::optional<std::uint64_t> {
    for (;; std::this_thread::sleep_for(kNap)) {
      const std::scoped_lock lock(mutex);
      for (MpiMessage message; !stopped_ && transport_->receive(&message);)
        if (message.tag == kStop)
          stopped_ = true;
        else
          dealt.push_back(unpacked_as<std::uint64_t>(message));
      if (stopped_ || error) return std::nullopt;
      if (dealt.empty()) continue;
      const std::uint64_t number = dealt.front();
      dealt.pop_front();
      return number;
    }
  };
  const auto compute = [&] {
    try {
      SweepWorker worker(job);
      while (const auto number = next()) {
        SweepBlock block = job.block_at(*number);
        worker.fill(block);
        const std::string bytes = packed(*number, block);
        const std::scoped_lock lock(mutex);
        transport_->send(0, kRows, bytes.data(), bytes.size());
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      error = std::current_exception();
    }
  };
  HelperThreads others(static_cast<std::size_t>(std::max(threads, 1)) - 1, compute);
  compute();
  others.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace moesim::tools

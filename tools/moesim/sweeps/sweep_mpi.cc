#include "tools/moesim/sweeps/sweep_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"
#include "base/helper_threads.h"
#include "base/input_error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "tools/moesim/sweeps/plugin_path.h"
#include "tools/moesim/sweeps/sweep_exchange.h"
#include "tools/moesim/sweeps/sweep_mpi_transport.h"

namespace moesim::tools {

namespace {

using Clock = std::chrono::steady_clock;

// Worker to rank 0: kHello (SHA-256 of the definition, threads), kRows, kAlive (still computing), kGone (it
// had an error and will send no more). Rank 0 to worker: kBegin (the first scenario and the size of a block),
// kBlock (a number), kAlive (nothing new; to be answered), kStop.
enum Tag : int { kHello = 1, kBegin, kBlock, kRows, kGone, kStop, kAlive };

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

std::string take(const MpiTransport& mpi, const MpiMessage& message) {
  std::string bytes(message.bytes, '\0');
  mpi.receive(&message, bytes.data());
  return bytes;
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
  if (job.keep)
    job.kind->table().read(block.rows, [&](SweepRow&& row) { block.kept.push_back(std::move(row)); });
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
    transport->finish(true, 0);
    throw InputError(fmt::format(
        "sweep: found one process in MPI where the launcher started {}: they do not speak the same language, "
        "expected {}",
        processes, kHowToLaunch));
  }
  return std::unique_ptr<SweepMpi>(new SweepMpi(transport));
}

SweepMpi::~SweepMpi() {
  if (finished_) return;
  // An error of one rank must not leave the others waiting.
  if (rank() > 0) transport_->send(0, kGone, nullptr, 0);
  for (int other = 1; rank() == 0 && other < size(); ++other) transport_->send(other, kStop, nullptr, 0);
  transport_->finish(together_, 2);
}

int SweepMpi::rank() const { return transport_->rank; }
int SweepMpi::size() const { return transport_->size; }

void SweepMpi::deal(const SweepJob& job, int threads, const std::string& definition, double patience,
                    const SweepWrite& write, const std::function<void(const std::string&)>& warn) {
  const MpiTransport& mpi = *transport_;
  const auto own = static_cast<std::uint64_t>(std::max(threads, 1));
  SweepExchange exchange(job, 2 * kAhead * own * static_cast<std::uint64_t>(mpi.size), write);
  HelperThreads workers(own, [&] { work_on(job, exchange); });

  const std::uint64_t ahead = blocks_ahead(job, own * static_cast<std::uint64_t>(mpi.size));
  struct Peer {
    std::uint64_t slots = 0;         // blocks that it requests at a time
    std::set<std::uint64_t> blocks;  // blocks that it computes
    Clock::time_point heard;         // last message from it
    bool silent = false, gone = false;
  };
  std::map<int, Peer> peers;
  const std::string fingerprint = sha256_hex(definition);
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience));
  const auto begun = Clock::now();
  auto next_look = begun + limit / 4;
  try {
    // A rank that was slow to start has no more work, but is not lost.
    const auto all_here = [&] { return peers.size() + 1 == static_cast<std::size_t>(mpi.size); };
    while (!exchange.over() || (!all_here() && Clock::now() - begun < limit)) {
      MpiMessage message;
      bool any = false;
      while (mpi.probe(&message)) {
        any = true;
        const std::string bytes = take(mpi, message);
        Peer& peer = peers[message.from];
        peer.heard = Clock::now();
        if (message.tag == kHello) {
          if (bytes.substr(0, fingerprint.size()) != fingerprint)
            throw InputError(
                fmt::format("sweep: rank {} found other input files than rank 0, expected the same on "
                            "all machines",
                            message.from));
          peer.slots =
              ahead * static_cast<std::uint64_t>(parse_int(bytes.substr(fingerprint.size())).value_or(1));
          const std::uint64_t begin[2] = {job.first, job.block};
          mpi.send(message.from, kBegin, begin, sizeof(begin));
        } else if (message.tag == kGone) {
          peer.silent = peer.gone = true;
          for (const std::uint64_t block : peer.blocks) exchange.again(block);
          peer.blocks.clear();
          warn(fmt::format("rank {} ended with an error: others do its scenarios", message.from));
        } else if (message.tag == kAlive) {
          peer.silent = peer.gone;
        } else {
          auto [number, block] = unpacked(job, bytes);
          peer.blocks.erase(number);
          peer.silent = false;
          exchange.put(number, std::move(block));
        }
      }
      for (auto& [rank, peer] : peers)
        while (!peer.silent && peer.blocks.size() < peer.slots) {
          const auto block = exchange.take_now();
          if (!block) break;
          peer.blocks.insert(*block);
          mpi.send(rank, kBlock, &*block, sizeof(*block));
          any = true;
        }
      if (Clock::now() >= next_look) {
        next_look = Clock::now() + limit / 4;
        for (auto& [rank, peer] : peers) {
          if (!peer.silent) mpi.send(rank, kAlive, nullptr, 0);
          if (peer.silent || peer.blocks.empty() || Clock::now() - peer.heard <= limit) continue;
          peer.silent = true;
          warn(fmt::format("rank {} has not answered for {:.0f} s: others do its {} blocks of scenarios",
                           rank, patience, peer.blocks.size()));
          for (const std::uint64_t block : peer.blocks) exchange.again(block);
        }
      }
      if (!any) std::this_thread::sleep_for(kNap);
    }
  } catch (...) {
    exchange.fail(std::current_exception());
  }
  workers.join();
  exchange.rethrow();
  // A rank that never said hello counts as silent.
  together_ = peers.size() + 1 == static_cast<std::size_t>(mpi.size) &&
              std::none_of(peers.begin(), peers.end(),
                           [](const auto& peer) { return peer.second.silent && !peer.second.gone; });
  for (const auto& [rank, peer] : peers)
    if (!peer.silent) mpi.send(rank, kStop, nullptr, 0);
}

void SweepMpi::finish(const std::function<void(const std::string&)>& warn) {
  finished_ = true;
  if (together_) {
    transport_->finish(true, 0);
    return;
  }
  if (transport_->rank == 0) warn("the rows are complete; the processes that do not answer are ended");
  transport_->finish(false, 0);
}

int SweepMpi::work(SweepJob& job, int threads, const std::string& definition, double patience) {
  const MpiTransport& mpi = *transport_;
  const std::string hello = sha256_hex(definition) + std::to_string(std::max(threads, 1));
  mpi.send(0, kHello, hello.data(), hello.size());

  std::mutex mutex;
  std::condition_variable more;
  std::deque<std::uint64_t> wanted;
  std::deque<std::string> made;
  bool stop = false;
  std::exception_ptr error;
  std::unique_ptr<HelperThreads> workers;
  const auto compute = [&] {
    try {
      SweepWorker worker(job);
      for (;;) {
        std::unique_lock lock(mutex);
        more.wait(lock, [&] { return stop || !wanted.empty(); });
        if (stop) return;
        const std::uint64_t number = wanted.front();
        wanted.pop_front();
        lock.unlock();
        SweepBlock block = job.block_at(number);
        worker.fill(block);
        std::string bytes = packed(number, block);
        lock.lock();
        made.push_back(std::move(bytes));
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      error = std::current_exception();
    }
  };
  const auto going_on = [&] {
    const std::scoped_lock lock(mutex);
    return !stop && !error;
  };
  // Rank 0 reports twenty times as often; an overloaded machine may be late.
  const double silence = std::max(10.0, 5 * patience);
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(silence));
  auto heard = Clock::now();
  while (going_on()) {
    MpiMessage message;
    bool any = false;
    while (!stop && mpi.probe(&message)) {
      any = true;
      heard = Clock::now();
      const std::string bytes = take(mpi, message);
      if (message.tag == kAlive) {
        mpi.send(0, kAlive, nullptr, 0);  // however long a block takes
        continue;
      }
      if (message.tag == kBegin) {
        std::uint64_t begin[2];
        check(bytes.size() == sizeof(begin), "rank 0 says where to begin");
        std::memcpy(begin, bytes.data(), sizeof(begin));
        job.first = begin[0];
        job.block = begin[1];
        workers = std::make_unique<HelperThreads>(static_cast<std::size_t>(std::max(threads, 1)), compute);
        if (workers->size() == 0) throw InputError("sweep: found no thread to work on, expected one");
      } else if (message.tag == kBlock) {
        std::uint64_t number = 0;
        std::memcpy(&number, bytes.data(), sizeof(number));
        const std::scoped_lock lock(mutex);
        wanted.push_back(number);
        more.notify_one();
      } else {
        const std::scoped_lock lock(mutex);
        stop = true;
        more.notify_all();
      }
    }
    std::deque<std::string> ready;
    {
      const std::scoped_lock lock(mutex);
      ready.swap(made);
    }
    for (const std::string& bytes : ready) mpi.send(0, kRows, bytes.data(), bytes.size());
    if (Clock::now() - heard > limit) {
      say(
          fmt::format("moesim: rank {} has not heard of rank 0 for {:.0f} s: it ends the sweep, which "
                      "--resume goes on with\n",
                      mpi.rank, silence));
      mpi.finish(false, 2);
    }
    if (!any && ready.empty()) std::this_thread::sleep_for(kNap);
  }
  {
    const std::scoped_lock lock(mutex);
    stop = true;
    more.notify_all();
  }
  workers.reset();
  if (error) std::rethrow_exception(error);
  return 0;
}

}  // namespace moesim::tools

// Shared parts of the GPU benchmarks: inputs, a GPU stopwatch, checks of whole results, a list of cases.
#pragma once

#include <benchmark/benchmark.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "products.h"

namespace moesim::bench {

// Prints place and cause and exits with 1, like the functions of gpu.h.
void require(ncclResult_t status, const char* what);

enum class Element { kBf16, kFp8, kFloat };
std::size_t bytes_of(Element type);

// Fills with normal random numbers; products of constants draw less power and run faster.
void fill(void* data, Element type, std::size_t count, unsigned seed);
Buffer normal(Element type, std::size_t count, unsigned seed);
// Returns elements `first`, `first + stride`, ... as the GPU holds them.
std::vector<float> values(const void* data, Element type, std::size_t first, std::size_t count);

// Memory for copies of an input that take turns. Cold: copies that together exceed twice the L2, so that none
// is cached when its turn comes; warm: one copy, which stays cached where it fits.
enum class Cache { kCold, kWarm };
class Rotation {
 public:
  Rotation(std::size_t bytes, Cache cache);
  const std::vector<Buffer>& all() const { return all_; }
  template <class T>
  T* at(int turn) const {
    return all_[static_cast<std::size_t>(turn) % all_.size()].as<T>();
  }

 private:
  std::vector<Buffer> all_;
};

// Keeps a thread busy. The virtual GPU of the tests derives the duration from the kernel.
__device__ inline void spin(long long nanoseconds) {
#ifdef __CUDACC__
  long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
#else
  (void)nanoseconds;
#endif
}

// Returns whether so much memory is free; otherwise reports the case as skipped.
bool has_room(benchmark::State* state, std::size_t bytes);

// A stopwatch for one case. A kernel holds the stream while the host queues the calls, so launches are not
// measured; turns continue over all calls of the case, so rotating buffers keep rotating. After a warm-up,
// the time of a call is the median of several repeats. With `together`, all processes make equally many calls
// and the slowest one's time counts.
struct TimedCase {
  cudaStream_t stream = nullptr;
  int launches = 1;  // per call
  bool together = false;
  bool burst = false;  // every repeat begins at full clocks
  std::function<void(int turn)> work;
};
struct Timing {
  double median = 0;  // seconds per call
  double spread = 0;  // interquartile range of the repeats, relative
  int repeats = 0, calls = 0;
  bool launch_bound = false;  // the host did not keep ahead of the GPU
};
Timing timed(const TimedCase& one);
// Reports the timing with the GPU's state right after it; `state` is null in follower processes.
void report(benchmark::State* state, const Timing& timing);
void run_timed(benchmark::State& state, cudaStream_t stream, int launches,
               const std::function<void(int)>& work);
// Likewise for a product at burst or sustained clocks: a burst waits before every repeat until the clocks are
// back, since products heat the GPU and 10 repeats in a row are sustained ones.
enum class Clocks { kBurst, kSustained };
void run_product(benchmark::State& state, cudaStream_t stream, int launches, Clocks clocks,
                 const std::function<void(int)>& work);

// Waits for an event with a time limit: a hanging rank ends the run with a message.
void wait_for(cudaEvent_t event, const char* what);

// Occupies a stream for so many seconds.
void hold(cudaStream_t stream, double seconds);

// A counter of wrong elements for kernels.
class Mismatches {
 public:
  Mismatches();
  int* counter() const { return counter_.as<int>(); }
  int count(cudaStream_t stream);  // waits for the stream

 private:
  Buffer counter_;
};

// Returns whether every element of C is the product of A and B. Columns are folded in groups of 256 with
// signs: C R must equal A (B R), so that all elements are compared with 1/128 of the product's work
// (Freivalds 1977). Sums are in float; the tolerance covers rounding of C to bf16 and fp8 units, which keep
// fewer bits of a sum.
bool right(const Product& product, Element in, cudaStream_t stream);

// Runs matrix products for some seconds, so that the clocks are those of a long job.
void heat(double seconds);

struct Case {
  std::string name;
  double seconds;  // estimated duration
};

// Measuring time of a case in seconds; time after which no further case starts (0: none); whether only the
// most informative cases run.
struct Limits {
  double budget = 0.1, all = 0;
  bool brief = false;
};
Limits& limits();

// Each function registers its benchmarks and lists the cases; collectives for so many nodes and processes.
void register_collectives(std::vector<Case>& cases, int nodes, int processes);
void register_gemms(std::vector<Case>& cases);
void register_kernels(std::vector<Case>& cases);
void register_latencies(std::vector<Case>& cases);

void add_case(std::vector<Case>& cases, const std::string& name, double seconds,
              const std::function<void(benchmark::State&)>& run);

// With several processes, process 0 runs the benchmark library and the others follow its calls with a null
// state.
using Followed = std::function<void(benchmark::State*)>;
void add_followed_case(std::vector<Case>& cases, const std::string& name, double seconds,
                       const Followed& run);
void follow();  // runs in processes other than 0 until stop_followers()
void stop_followers();

}  // namespace moesim::bench

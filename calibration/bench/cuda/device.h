// GPU benches share this: inputs, a stopwatch on the GPU, checks of whole results, a list of cases.
#pragma once

#include <benchmark/benchmark.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gpu.h"
#include "layer/product.h"

namespace moesim::bench {

// Print where and what, and exit 1, as for the calls of gpu.h.
void require(ncclResult_t status, const char* what);

enum class Element { kBf16, kFp8, kFloat };
std::size_t bytes_of(Element type);

// Fills with normal random numbers: products of constants draw less power and run faster.
void fill(void* data, Element type, std::size_t count, unsigned seed);
Buffer normal(Element type, std::size_t count, unsigned seed);
// Elements `first`, `first + stride`, ... of such memory as the GPU holds them.
std::vector<float> values(const void* data, Element type, std::size_t first, std::size_t count);

// Room for many copies of an input. Cold: so many that they are larger than twice the L2 together, so that
// none is in it when its turn comes; warm: one, which stays there where it fits.
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

// Keeps a thread busy. The virtual GPU knows by the kernel how long that takes.
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

// Whether so much memory is free; else the case is reported as skipped.
bool has_room(benchmark::State* state, std::size_t bytes);

// A stopwatch for one case. A kernel holds the stream while the host queues the calls, so that launching them
// is not measured; turns count on over all calls of the case, so that what rotates goes on rotating. After a
// warm-up, the time of a call is the median of several repeats. With `together`, all processes count alike
// and the slowest one's time is taken.
struct TimedCase {
  cudaStream_t stream = nullptr;
  int launches = 1;  // of a call
  bool together = false;
  std::function<void(int turn)> work;
};
struct Timing {
  double median = 0;  // seconds of a call
  double spread = 0;  // between the quartiles of the repeats, relative
  int repeats = 0, calls = 0;
  bool launch_bound = false;  // the host could not stay ahead
};
Timing timed(const TimedCase& one);
// Reports it with the GPU's state right after; `state` is null in processes that follow.
void report(benchmark::State* state, const Timing& timing);
void run_timed(benchmark::State& state, cudaStream_t stream, int launches,
               const std::function<void(int)>& work);

// Waits for an event and not for ever: a rank that hangs ends the run with a line.
void wait_for(cudaEvent_t event, const char* what);

// Holds a stream.
void hold(cudaStream_t stream, double seconds);

// A number that kernels count wrong elements in.
class Mismatches {
 public:
  Mismatches();
  int* counter() const { return counter_.as<int>(); }
  int count(cudaStream_t stream);  // waits for the stream

 private:
  Buffer counter_;
};

// Whether every element of C is what A and B make of it. Columns are folded in groups of 256 with signs: C R
// must be A (B R), so that all elements are compared with 1/128 of the product's work (Freivalds 1977). Sums
// are in float; the tolerance is that of rounding C to bf16 and of fp8 units, which keep fewer bits of a sum.
bool right(const Product& product, Element in, cudaStream_t stream);

// Heats the GPU with matrix products for some seconds, so that the clocks are those of a long job.
void heat(double seconds);

struct Case {
  std::string name;
  double seconds;  // about how long it takes
};

// How long a case is measured, seconds; when no further one is begun (0: never); whether only the cases that
// say most are taken.
struct Limits {
  double budget = 0.1, all = 0;
  bool brief = false;
};
Limits& limits();

// Each registers its benchmarks and says what it will run.
// of so many nodes and processes
void register_collectives(std::vector<Case>& cases, int nodes, int processes);
void register_gemms(std::vector<Case>& cases);
void register_kernels(std::vector<Case>& cases);
void register_latencies(std::vector<Case>& cases);

void add_case(std::vector<Case>& cases, const std::string& name, double seconds,
              const std::function<void(benchmark::State&)>& run);

// Several processes, one benchmark library: process 0 has it, the others run what it calls out with a null
// state.
using Followed = std::function<void(benchmark::State*)>;
void add_followed_case(std::vector<Case>& cases, const std::string& name, double seconds,
                       const Followed& run);
void follow();  // in processes other than 0, until stop_followers()
void stop_followers();

}  // namespace moesim::bench

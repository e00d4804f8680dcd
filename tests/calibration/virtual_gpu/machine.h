// The clock, the memory and the streams of the virtual GPU, which its libraries share: cuda.cc, cublas.cc, nccl.cc,
// nvml.cc and cutlass.cc stand in for the calls that calibration/bench makes, with a clock that only these calls
// move. Streams are in order, the launch queue is finite, the host pays for what it calls, the L2 keeps what
// fits, the clock falls under load. The laws are those of laws.h.
//
// VIRTUAL_GPU="key=value,..." says what the machine is: gpus, name, memory (GB), effects (1: kernels,
// products and collectives really compute; 0: only their time passes), and which fault is planted:
//   wrong=gemm|collective|kernel  one element of a result is wrong
//   dead=R, hang=R      rank R exits, or stops, at its twentieth collective
//   nccl=1              the twentieth collective returns ncclSystemError
//   throttled=SHARE     the clock stays at that share of the most
//   peers=0             GPUs cannot reach each other's memory
//   foreign=PID         another process computes on the GPU
// VIRTUAL_GPU_CLOCK=FILE takes the virtual seconds of every process, a line each, when it ends.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "laws.h"

struct VirtualStream {
  double ready = 0;           // when all that was queued is done
  std::deque<double> queued;  // ends of what is queued
  enum class Kind { kNone, kCompute, kCopy } last_kind = Kind::kNone;
  std::deque<std::pair<double, double>> busy;  // of the last kind
};
struct VirtualEvent {
  double at = 0;
};

namespace moesim::virtual_gpu {

// ---- settings ----

std::string setting(const char* key, const char* otherwise);
double number(const char* key, double otherwise);
std::string name_of_gpu();
int generation();  // the major number of the compute capability
bool effects();    // results are computed
double capacity();
const std::string& wrong();  // the kind of result that is spoiled once
int node_of_this();

// ---- clocks ----

extern double host;  // virtual seconds of this process
double heat();       // from 0 to 1: half a second of products heats the chip, then it runs slower
double clock_share(double now);

// ---- memory ----

extern std::map<const char*, std::size_t> blocks;  // of this process's GPU
// From an address to the end of its allocation.
std::size_t bytes_behind(const void* memory);
double l2_bytes();

// The contents of the L2 by pieces of touched memory, least recently used first.
class Cache {
 public:
  struct Traffic {
    double misses = 0, hits = 0;
    void operator+=(const Traffic& other) { misses += other.misses, hits += other.hits; }
  };
  Traffic touch(const void* memory, std::size_t size);

 private:
  std::list<std::pair<const void*, double>> pieces_;
  std::unordered_map<const void*, std::list<std::pair<const void*, double>>::iterator> where_;
  double held_ = 0;
};
Cache& l2();

// ---- streams ----

using Kind = VirtualStream::Kind;
std::vector<VirtualStream*>& streams();
VirtualStream& of(cudaStream_t stream);
// Queues work; the host waits where the queue is full.
void queue(VirtualStream& stream, double call, double seconds, Kind kind = Kind::kNone);
void wait_for(double time);

// ---- GPUs ----

// "00000000:10:00.0" of the first GPU of the node.
void bus_id(int physical, char* text, int length);

}  // namespace moesim::virtual_gpu

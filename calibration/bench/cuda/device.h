// What all GPU benches share: inputs, a stopwatch on the GPU, a list of cases.
#pragma once

#include <benchmark/benchmark.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gpu.h"

namespace moesim::bench {

// Print where and what, and exit 1, as for the calls of gpu.h.
void require(ncclResult_t status, const char* what);

// Device memory filled with normal random numbers: products of constants draw less power and run faster.
enum class Element { kBf16, kFp8, kFloat };
std::size_t bytes_of(Element type);
Buffer normal(Element type, std::size_t count, unsigned seed);
// Elements `first`, `first + stride`, ... of such memory as the GPU holds them.
std::vector<float> values(const void* data, Element type, std::size_t first, std::size_t stride,
                          std::size_t count);

// Copies of an input that together are larger than twice the L2, so that none is in it when its turn comes.
std::size_t rotation(std::size_t bytes);

// Mean GPU seconds of one call of `work(turn)` over `calls` calls on `stream`, between two events.
double gpu_seconds(cudaStream_t stream, int calls, const std::function<void(int)>& work);

// Runs a benchmark in manual time: warm-up, then each iteration is the mean of `calls` calls. The row carries
// the GPU's condition right after it.
void run_timed(benchmark::State& state, cudaStream_t stream, int calls, const std::function<void(int)>& work);

// Heats the GPU with matrix products for some seconds, so that the clocks are those of a long job.
void heat(double seconds);

// "H200-SXM5-141GB" as published tables call it, or the device's own name.
std::string canonical_gpu(const std::string& name);

// Clocks, power, temperature and driver as nvidia-smi prints them; "unknown" without it.
std::string machine_state();

struct Case {
  std::string name;
  double seconds;  // about how long it takes
};

// Each registers its benchmarks and says what it will run.
void register_collectives(std::vector<Case>& cases, int argc, char** argv);
void register_gemms(std::vector<Case>& cases);
void register_kernels(std::vector<Case>& cases);
void register_latencies(std::vector<Case>& cases);

void add_case(std::vector<Case>& cases, const std::string& name, double seconds,
              const std::function<void(benchmark::State&)>& run);

}  // namespace moesim::bench

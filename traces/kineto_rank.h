// The work of one rank's GPU in one profiled step, from its kernels and their launching threads; inside
// traces/ only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "traces/kineto_events.h"

namespace moesim::traces {

enum class KinetoPhase : std::uint8_t { forward, backward, optimizer };

// One NCCL kernel.
struct KinetoCall {
  std::string comm;   // a word of cmd_comm_functions(), or "send", "recv"
  std::string dtype;  // "torch.bfloat16"; "None" where unknown
  std::optional<std::int64_t> elements;
  std::optional<std::int64_t> group_size;
  std::string group_name;
  std::string group_description;
  std::vector<std::int64_t> group_ranks;  // empty: unknown
  std::optional<std::int64_t> peer;       // for sends and receives
  bool expert_kernel = false;             // of DeepEP or HybridEP, which name no group: the experts' ranks
  std::int64_t start_ns = 0, end_ns = 0;  // of the kernel
  std::int64_t waited_ns = 0;             // part of it for which the main stream waited; ends at end_ns
  std::size_t operation = 0;              // index into KinetoRank::operations
};

struct KinetoOperation {
  KinetoPhase phase = KinetoPhase::forward;
  bool p2p = false;  // contains one call, a send or a receive, and nothing else
  std::int64_t start_ns = 0, end_ns = 0;
};

struct KinetoRank {
  std::string file;
  KinetoFacts facts;
  std::size_t steps = 0;                    // iterations in the file; 0: not marked, and none found
  bool by_repetition = false;               // without marks: iterations are found by repetition
  bool has_backward = false;                // autograd launched some work
  std::size_t expert_kernels = 0;           // DeepEP's and HybridEP's
  std::vector<KinetoOperation> operations;  // in order of time, of the requested step
  std::vector<KinetoCall> calls;            // by end
  std::size_t unsized = 0;                  // calls of unknown size
  std::size_t unknown = 0;                  // NCCL kernels of unknown kind, kept as computing
};

// Reads one file. Times are absolute where the file gives its origin. Iterations are the profiler's own marks
// ("ProfilerStep"), else repetitions on the main stream, `iterations` of them where given. Throws InputError
// for a file that is not a trace (scan_kineto), without work of a GPU, or with fewer steps. `scan` reads the
// file's events.
KinetoRank read_kineto_rank(const std::filesystem::path& path, std::size_t step,
                            std::optional<std::size_t> iterations = std::nullopt,
                            ScanEvents scan = scan_kineto);

}  // namespace moesim::traces

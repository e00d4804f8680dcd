// What one rank's GPU did in one profiled step, told from its kernels and who launched them; inside traces/
// only.
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
  std::string dtype;  // "torch.bfloat16"; "None" where nobody says
  std::optional<std::int64_t> elements;
  std::optional<std::int64_t> group_size;
  std::string group_name;
  std::string group_description;
  std::vector<std::int64_t> group_ranks;  // empty: not known
  std::optional<std::int64_t> peer;       // of sends and receives
  bool expert_kernel = false;             // of DeepEP or HybridEP, which name no group: the experts' ranks
  std::int64_t start_ns = 0, end_ns = 0;  // of the kernel
  std::int64_t waited_ns = 0;             // of it, what the main stream waited; up to end_ns
  std::size_t operation = 0;              // index into KinetoRank::operations
};

struct KinetoOperation {
  KinetoPhase phase = KinetoPhase::forward;
  bool p2p = false;  // holds one call, a send or a receive, and nothing else
  std::int64_t start_ns = 0, end_ns = 0;
};

struct KinetoRank {
  std::string file;
  KinetoFacts facts;
  std::size_t steps = 0;                    // iterations in the file; 0: not marked, and none found
  bool by_repetition = false;               // no marks: iterations are what repeats
  bool has_backward = false;                // some work was launched by autograd
  std::size_t expert_kernels = 0;           // DeepEP's and HybridEP's
  std::vector<KinetoOperation> operations;  // in time, of the step that was asked for
  std::vector<KinetoCall> calls;            // by end
  std::size_t unsized = 0;                  // calls of unknown size
  std::size_t unknown = 0;                  // NCCL kernels of unknown kind, kept as computing
};

// Reads one file. Times are absolute where the file names its origin. Iterations are the profiler's own marks
// ("ProfilerStep"), else what repeats on the main stream, `iterations` times where that is given. Throws
// InputError for a file that is no trace (scan_kineto), has no work of a GPU, or not as many steps.
// `scan` tells the file's events.
KinetoRank read_kineto_rank(const std::filesystem::path& path, std::size_t step,
                            std::optional<std::size_t> iterations = std::nullopt,
                            ScanEvents scan = scan_kineto);

}  // namespace moesim::traces

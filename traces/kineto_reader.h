// Recordings of real runs from traces of the PyTorch profiler and of Chakra: one file per rank.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "traces/recording.h"

namespace moesim::traces {

struct KinetoReadOptions {
  // Index of the "ProfilerStep" from 0; a trace without any is one step.
  std::size_t step = 0;
  // Sizes of the parallel plan, where the process groups of the traces do not determine them.
  std::optional<std::int64_t> tp, pp, ep;
  // Number of iterations in a trace without marks; nullopt: found by repetition.
  std::optional<std::size_t> iterations;
};

// Reads the traces of all ranks (a folder of *.json and *.json.gz files, or one file) as a realistic
// recording.
//
// - A step is cut into operations by the thread that launched the work of the GPU's main stream, the one that
//   computes longest: autograd's threads (backward_step), Optimizer.step and everything after the last
//   backward (optimizer_step), anything else (forward_step). Sends and receives are operations of their own.
// - NCCL kernels become sub-operations with the size, type and process group of the kernel or its launching
//   annotation. Their duration is the wait of the main stream: from the end of the preceding computing to the
//   end of the transfer; nothing where it computed meanwhile. A call that no rank waited for is marked
//   "_async".
// - Computing is the time between. Kernels of other streams count as far as the main stream waits for them.
//
// Ranks without a trace are left out with a warning: replay fills them by symmetry. Kernels of DeepEP and
// HybridEP are exchanges of the experts' ranks with unknown bytes.
//
// Memory grows with the number of kernels, not with the size of the files. Throws InputError with one line
// for unfinished or truncated files and files that are not traces, for repeated ranks, for inconsistent
// clocks, for ranks that differ in their calls on a process group, and for sizes that do not divide.
Recording read_kineto(const std::filesystem::path& path, const KinetoReadOptions& options = {});

// Likewise for Chakra execution traces in JSON (scan_chakra), one file per rank named "NAME.<rank>.json". The
// ranks of a process group are its callers, so files of all ranks are needed. `step` and `iterations` as
// there.
Recording read_chakra(const std::filesystem::path& path, const KinetoReadOptions& options = {});

}  // namespace moesim::traces

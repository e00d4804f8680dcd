// Recordings of real runs out of traces of the PyTorch profiler and of Chakra: one file per rank.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "traces/recording.h"

namespace moesim::traces {

struct KinetoReadOptions {
  // Which "ProfilerStep" of the traces, from 0; a trace without any is one step.
  std::size_t step = 0;
  // Sizes of the parallel plan, where the process groups of the traces do not tell them.
  std::optional<std::int64_t> tp, pp, ep;
  // How many iterations a trace without marks holds; nullopt: what repeats tells.
  std::optional<std::size_t> iterations;
};

// Reads the traces of all ranks (a folder of *.json and *.json.gz files, or one file) as a realistic
// recording.
//
// - A step is cut into operations by who launched the work of the GPU's main stream, the one that computes
//   longest: autograd's threads (backward_step), Optimizer.step and what follows the last backward
//   (optimizer_step), anything else (forward_step). Sends and receives are operations of their own.
// - NCCL kernels become sub-operations with the size, type and process group that the kernel or its launching
//   annotation names. Their duration is what the main stream waited: from the end of the computing before the
//   end of the transfer; nothing where it computed meanwhile. A call that no rank waited for is marked
//   "_async".
// - Computing is what lies between. Kernels of other streams are kept as far as the main stream waits for
// them.
//
// Ranks that have no trace are left out with a warning: replay fills them by symmetry. Kernels of DeepEP and
// HybridEP are exchanges of the experts' ranks, whose bytes they do not tell.
//
// Memory follows the number of kernels, not the size of the files. Throws InputError with one line for files
// that are unfinished, cut short or no traces, for ranks that stand there twice, for clocks
// that do not fit together, for ranks that differ in their calls on a process group, and for sizes that do
// not divide.
Recording read_kineto(const std::filesystem::path& path, const KinetoReadOptions& options = {});

// The same of Chakra execution traces in JSON (scan_chakra), one file per rank named "NAME.<rank>.json": the
// ranks of a process group are those that call it, so that files of all ranks are needed. `step` and
// `iterations` as there.
Recording read_chakra(const std::filesystem::path& path, const KinetoReadOptions& options = {});

}  // namespace moesim::traces

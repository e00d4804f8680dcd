// Router choices as written by Megatron-Core: `--moe-routing-trace-path` makes a file
// router_trace_rank<N>.jsonl per rank with a record per (step, layer): {"step", "stage", "block", "layer",
// "rank", "num_tokens", "topk", "top_indices": [[...], ...]}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "traces/dispatching.h"

namespace moesim::traces {

struct RouterTraceOptions {
  std::size_t step = 0;                 // index of the recorded step, from 0
  std::optional<std::int64_t> ep;       // ranks of a dispatch group; nullopt: all that recorded a layer
  std::optional<std::int64_t> experts;  // nullopt: one more than the largest chosen index
};

struct RouterTrace {
  Dispatching dispatching;  // a table per layer and microbatch
  std::vector<std::string> warnings;
};

// Reads a folder of such files, or one of them. The ranks that recorded a layer form its pipeline stage, and
// the first `ep` of them a dispatch group; the k-th record of a step and layer is microbatch k. Layers are
// those of the decoder. Throws InputError naming file and line for invalid records, for ranks that differ in
// what they recorded, and for sizes that do not divide.
RouterTrace read_router_trace(const std::filesystem::path& path, const RouterTraceOptions& options = {});

// Returns whether `path` is such a file, or a folder with some.
bool is_router_trace(const std::filesystem::path& path);

}  // namespace moesim::traces

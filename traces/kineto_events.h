// The events of one PyTorch profiler (Kineto) trace, read as a stream: the file is JSON in Chrome's trace
// event format, often gigabytes of it, so that events are handed on one at a time and nothing else is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moesim::traces {

// A complete event (ph "X") with those of its arguments that say what was launched and what was communicated.
struct KinetoEvent {
  std::string category;  // "kernel", "gpu_memcpy", "cuda_runtime", "user_annotation", "cpu_op", ...
  std::string name;
  std::string thread;         // tid as written
  std::int64_t start_ns = 0;  // as written, in nanoseconds; files may have an origin of their own
  std::int64_t duration_ns = 0;
  std::optional<std::int64_t> correlation;  // of a launch and the kernel that it launched
  std::optional<std::int64_t> stream;
  // Of communication. Kernels carry these since PyTorch 2.2; before, the host's annotation "nccl:..." has the
  // dimensions and the type of the input.
  std::string collective;                // "allreduce", "_allgather_base", "all_to_allv", "send", ...
  std::string dtype;                     // "BFloat16", "float", ...
  std::optional<std::int64_t> elements;  // of the input
  std::optional<std::int64_t> bytes;     // of the same, where no elements are known
  std::optional<std::int64_t> group_size;
  std::string group_name;
  std::string group_description;
  std::vector<std::int64_t> group_ranks;  // empty: not written, or cut with "..."
  std::optional<std::int64_t> source_rank, destination_rank;
};

struct KinetoGroup {
  std::string name, description;
  std::vector<std::int64_t> ranks;
};

// What the file says beside its events.
struct KinetoFacts {
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world;
  std::string backend;
  std::int64_t base_ns = 0;  // origin of the times, nanoseconds of the Unix epoch; 0: they are absolute
  std::vector<KinetoGroup> groups;
  std::string device;  // name of the GPU
  std::size_t events = 0;
  std::vector<std::string> notes;  // what a reader should know of how the file was read, a sentence each
};

// A reader of one rank's file as events: scan_kineto(), or another format's that tells itself in these words.
using ScanEvents = KinetoFacts (*)(const std::filesystem::path&,
                                   const std::function<void(const KinetoEvent&)>&);

// Reads `path` (plain or gzip) from its beginning to its end and calls `event` for every complete event, in
// the order of the file. Memory does not grow with the file. Throws InputError naming file and line for
// anything but a whole JSON text with trace events: cut short, damaged, no events, times that are no numbers.
KinetoFacts scan_kineto(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event);

}  // namespace moesim::traces

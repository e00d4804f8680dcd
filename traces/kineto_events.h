// Streams the events of one PyTorch profiler (Kineto) trace: JSON in Chrome's trace event format, often
// gigabytes, so that events are passed on one at a time and nothing else is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moesim::traces {

// A complete event (ph "X") with its arguments on launches and communication.
struct KinetoEvent {
  std::string category;  // "kernel", "gpu_memcpy", "cuda_runtime", "user_annotation", "cpu_op", ...
  std::string name;
  std::string thread;         // tid as written
  std::int64_t start_ns = 0;  // as written, in nanoseconds; the origin depends on the file
  std::int64_t duration_ns = 0;
  std::optional<std::int64_t> correlation;  // links a launch and its kernel
  std::optional<std::int64_t> stream;
  // For communication. Kernels carry these since PyTorch 2.2; before, the host's annotation "nccl:..." has
  // the dimensions and the type of the input.
  std::string collective;                // "allreduce", "_allgather_base", "all_to_allv", "send", ...
  std::string dtype;                     // "BFloat16", "float", ...
  std::optional<std::int64_t> elements;  // of the input
  std::optional<std::int64_t> bytes;     // of the input, where elements are unknown
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

// Facts of the file besides its events.
struct KinetoFacts {
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world;
  std::string backend;
  std::int64_t base_ns = 0;  // origin of the times, nanoseconds of the Unix epoch; 0: they are absolute
  std::vector<KinetoGroup> groups;
  std::string device;  // name of the GPU
  std::size_t events = 0;
  std::vector<std::string> notes;  // notes on how the file was read, one sentence each
};

// A reader of one rank's file as events: scan_kineto(), or another format's.
using ScanEvents = KinetoFacts (*)(const std::filesystem::path&,
                                   const std::function<void(const KinetoEvent&)>&);

// Reads `path` (plain or gzip) from beginning to end and calls `event` for every complete event, in file
// order. Memory does not grow with the file. Throws InputError naming file and line for anything but a
// complete JSON text with trace events: truncated, damaged, no events, invalid times.
KinetoFacts scan_kineto(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event);

// Likewise for one rank's Chakra execution trace in JSON (MLCommons; schema/protobuf/et_def.proto of
// mlcommons/chakra) of at most 1 GiB unpacked, with an event for the work of every node, in order of time.
// Nodes have their own times where the trace was linked with a profiler's; else each begins when its
// dependencies have ended and its stream, or its thread, is free. Nodes of a GPU become kernels, launched by
// the node that calls them; collectives keep their kind, bytes and process group, whose members are the
// callers. Throws InputError for any other content: damaged, without work of a GPU, without durations, with
// cyclic or missing dependencies, sends without a receiver.
KinetoFacts scan_chakra(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event);

// Returns whether a file begins with Chakra nodes: output of chakra_jsonizer (consecutive objects), or the
// "workload_graph" of Chakra's feeder.
bool is_chakra(const std::filesystem::path& path);

}  // namespace moesim::traces

// Reads a Chakra execution trace in JSON (MLCommons; schema/protobuf/et_def.proto of mlcommons/chakra) as
// profiler events: the work of every node of the graph, at the time when its dependencies allow it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "traces/kineto_events.h"

namespace moesim::traces {

// Returns whether a file with this beginning holds Chakra nodes: output of chakra_jsonizer (consecutive
// objects), or the "workload_graph" of Chakra's feeder.
bool is_chakra(std::string_view beginning);

// Reads one rank's file (plain or gzip, at most 1 GiB unpacked) and calls `event` for every node in order of
// time. Nodes have their own times where the trace was linked with a profiler's; else each begins when its
// dependencies have ended and its stream, or its thread, is free. Nodes of a GPU become kernels, launched by
// the node that calls them; collectives keep their kind, bytes and process group, whose members are the
// callers. Throws InputError naming the file and mostly the line for any other content: damaged, without work
// of a GPU, without durations, with cyclic or missing dependencies, sends without a receiver.
KinetoFacts scan_chakra(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event);

}  // namespace moesim::traces

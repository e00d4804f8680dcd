// A Chakra execution trace in JSON (MLCommons; schema/protobuf/et_def.proto of mlcommons/chakra), told as the
// events of a profiler: what every node of the graph does, when its dependencies let it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "traces/kineto_events.h"

namespace moesim::traces {

// Whether a file that begins like this holds Chakra nodes: what chakra_jsonizer writes (objects one behind
// the other), or the "workload_graph" of Chakra's feeder.
bool is_chakra(std::string_view beginning);

// Reads one rank's file (plain or gzip, 1 GiB unpacked at most) and calls `event` for every node in the order
// of their times. Nodes name times of their own where the trace was linked with a profiler's; else each
// begins when what it depends on has ended and its stream, or its thread, is free. Nodes of a GPU become
// kernels, sent by the node that calls them; collectives keep their kind, bytes and process group, which the
// members of a group tell by calling it. Throws InputError naming the file and mostly the line for anything
// but such a trace: damaged, without work of a GPU, without durations, with dependencies that go in a circle
// or on nodes that are not there, sends without a receiver.
KinetoFacts scan_chakra(const std::filesystem::path& path,
                        const std::function<void(const KinetoEvent&)>& event);

}  // namespace moesim::traces

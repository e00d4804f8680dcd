#include "traces/foreign_format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/text.h"
#include "traces/chakra_events.h"
#include "traces/gzip_stream.h"

namespace moesim::traces {
namespace {

constexpr std::size_t kBeginning = 64 * 1024;
constexpr std::size_t kFirstFiles = 3;  // of a folder

constexpr const char* kProfile =
    "traces of the PyTorch profiler from every rank (torch.profiler), for 'moesim trace convert'";
// Chakra's own tools join times to a host's trace like this (mlcommons/chakra, USER_GUIDE.md).
constexpr const char* kLinked =
    "it linked with the profiler's trace (chakra_trace_link, chakra_converter, chakra_jsonizer), one "
    "NAME.<rank>.json of every rank, for 'moesim trace convert'";
constexpr const char* kJsonized =
    "its JSON form, one NAME.<rank>.json of every rank, for 'moesim trace convert': chakra_jsonizer "
    "--input_filename NAME.0.et --output_filename NAME.0.json";
constexpr const char* kDescribe = "the model and its plan for 'moesim compare --scope step'";

bool has(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }

std::string_view line_of(std::string_view text, std::size_t number) {
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return trim(text.substr(0, text.find('\n')));
}

// A workload of SimAI or ASTRA-sim: a word for the parallelism, a number of layers, layers with a collective
// each.
bool is_layer_table(std::string_view text) {
  const std::string_view first = line_of(text, 0);
  const std::string_view word = first.substr(0, first.find_first_of(" \t"));
  const bool parallelism = word.size() >= 4 && std::all_of(word.begin(), word.end(), [](char c) {
                             return std::isupper(static_cast<unsigned char>(c)) || c == '_';
                           });
  const std::string_view layer = line_of(text, 2);
  static constexpr std::array<std::string_view, 5> kCollectives{"ALLREDUCE", "ALLGATHER", "ALLTOALL",
                                                                "REDUCESCATTER", "NONE"};
  return parallelism && parse_int(line_of(text, 1)) &&
         std::any_of(kCollectives.begin(), kCollectives.end(),
                     [&](std::string_view one) { return has(layer, one); });
}

// An object, or a list of them; logs begin with "[2025-09-05 16:08:14]".
bool is_json(std::string_view text) {
  return text.starts_with('{') || (text.starts_with('[') && trim(text.substr(1)).starts_with('{'));
}

std::optional<ForeignFormat> of_json(std::string_view text) {
  if (has(text, "\"traceEvents\"") || is_chakra(text)) return std::nullopt;
  if (has(text, "chakra"))
    return ForeignFormat{"a Chakra trace of the host alone (PyTorch's execution trace)", kLinked};
  if (has(text, "\"ctrl_deps\"") || has(text, "[pytorch|profiler|execution_"))
    return ForeignFormat{"a PyTorch execution trace", kProfile};
  if (has(text, "\"coll_perf\"") || has(text, "\"coll_sn\"") || has(text, "\"dump_stats\""))
    return ForeignFormat{"a log of NCCL Inspector",
                         "a recording; 'moesim calibrate import nccl-inspector' reads it"};
  if (has(text, "rocprofiler-sdk")) return ForeignFormat{"a rocprofv3 result (JSON)", kProfile};
  if (has(text, "\"device_expert\""))
    return ForeignFormat{"a map of experts to devices (vLLM Ascend)",
                         "a recording; a placement is \"placement\" of a scenario"};
  if (has(text, "\"results\"") && has(text, "\"alg_bw\""))
    return ForeignFormat{"a result of nccl-tests (JSON)",
                         "a recording; 'moesim calibrate import nccl-tests' reads it"};
  return std::nullopt;
}

std::optional<ForeignFormat> of_binary(std::string_view data, std::string_view name) {
  if (data.size() > 262 && data.substr(257, 5) == "ustar")
    return ForeignFormat{"an archive (tar)", "the folder that it unpacks to"};
  if (data.starts_with("PK\x03\x04"))
    return ForeignFormat{"an archive (zip)", "the folder that it unpacks to"};
  if (data.starts_with("SQLite format 3")) {
    if (has(data, "CUPTI_ACTIVITY")) return ForeignFormat{"an export of Nsight Systems (SQLite)", kProfile};
    if (has(data, "rocpd") || has(data, "rocprof"))
      return ForeignFormat{"a rocprof database (SQLite)", kProfile};
    return ForeignFormat{"an SQLite database", kProfile};
  }
  if (name.ends_with(".nsys-rep") || name.ends_with(".qdrep") || name.ends_with(".qdstrm"))
    return ForeignFormat{"a report of Nsight Systems", kProfile};
  if (name.ends_with(".pftrace") || name.ends_with(".perfetto-trace"))
    return ForeignFormat{"a Perfetto trace (protobuf)", kProfile};
  if (first_not_utf8(data) == std::string_view::npos && !has(data, std::string_view("\0", 1)))
    return std::nullopt;
  if (has(data, "start_ts") || has(data, "comm_size") || has(data, "is_cpu_op") || has(data, "COMM_"))
    return ForeignFormat{"a Chakra execution trace (protobuf)", kJsonized};
  if (name.ends_with(".et")) return ForeignFormat{"an execution trace (protobuf)", kJsonized};
  return std::nullopt;
}

// Returns the unpacked beginning of a file; empty where it cannot be read.
std::string beginning_of(const std::filesystem::path& path) {
  if (!is_file(path)) return "";
  try {
    GzipStream stream(path);
    std::string text(kBeginning, '\0');
    text.resize(
        static_cast<std::size_t>(stream.sgetn(text.data(), static_cast<std::streamsize>(text.size()))));
    return text;
  } catch (const InputError&) {
    return "";
  }
}

}  // namespace

bool is_chakra_file(const std::filesystem::path& path) { return is_chakra(beginning_of(path)); }

std::optional<ForeignFormat> foreign_format(std::string_view beginning, std::string_view name) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  const std::string_view text = trim(beginning);
  if (text.starts_with("rank:") || text.starts_with("# recorded")) return std::nullopt;
  // The last character of cut text may be incomplete.
  if (auto binary = of_binary(beginning.substr(0, std::min(beginning.size(), kBeginning - 4)), name))
    return binary;
  if (is_json(text)) return of_json(text);
  if (text.starts_with("num_ranks ") && has(text, "rank 0 {"))
    return ForeignFormat{
        "a GOAL schedule",
        std::string(kDescribe) + "; GOAL holds messages without the work between them that a plan needs"};
  if (is_layer_table(text)) return ForeignFormat{"a workload of SimAI or ASTRA-sim", kDescribe};
  // Megatron's own lines, its list of arguments, and a common launcher of it.
  if (has(text, "elapsed time per iteration (ms)") || has(text, "micro_batch_size ....") ||
      has(text, "Setting ds_accelerator to"))
    return ForeignFormat{
        "a training log of Megatron or DeepSpeed",
        std::string(kDescribe) + "; 'moesim validate --log' holds its steps against the forecast"};
  if (has(text, "_perf") && has(text, "algbw"))
    return ForeignFormat{"a log of nccl-tests", "a recording; 'moesim calibrate import nccl-tests' reads it"};
  const std::string_view first = line_of(text, 0);
  if ((has(first, "KernelName") && has(first, "gpu-id")) || (has(first, "Kind") && has(first, "Agent_Id")))
    return ForeignFormat{"a rocprof table", kProfile};
  return std::nullopt;
}

void refuse_foreign(const std::filesystem::path& path, Traces kineto) {
  std::vector<std::filesystem::path> files{path};
  if (is_folder(path)) {
    files.clear();
    for (const std::filesystem::path& entry : entries_of(path))
      if (files.size() < kFirstFiles && is_file(entry)) files.push_back(entry);
  }
  for (const std::filesystem::path& file : files) {
    const std::string beginning = beginning_of(file);
    if (const auto foreign = foreign_format(beginning, file.filename().string()))
      throw InputError(SourcePlace{file.string()}, foreign->name, foreign->instead);
    if (kineto == Traces::kRead || !is_json(trim(beginning))) continue;
    const bool profile = has(beginning, "\"traceEvents\"");
    if (profile || is_chakra(beginning))
      throw InputError(SourcePlace{file.string()},
                       profile ? "a trace of the PyTorch profiler" : "a Chakra execution trace (JSON)",
                       "rank files; 'moesim trace convert TRACES FOLDER' makes them");
  }
}

}  // namespace moesim::traces

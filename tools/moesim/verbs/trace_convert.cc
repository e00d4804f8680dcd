// `moesim trace convert`: writes a recording in any readable format as CMD files.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/trace.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/kineto_events.h"
#include "traces/kineto_reader.h"
#include "traces/router_trace.h"

namespace moesim::tools {
namespace {

struct ConvertOptions {
  std::string from;
  std::string to;
  std::string format;
  std::size_t pass = 0;
  std::optional<std::int64_t> tp, pp, ep;
  std::optional<std::size_t> iterations;
  std::optional<std::int64_t> experts;
};

// Recognises the format of a path.
std::string format_of(const std::string& path) {
  namespace fs = std::filesystem;
  const auto has = [&](const fs::path& file, const char* ending) {
    return file.filename().string().ends_with(ending);
  };
  const auto is_trace = [&](const fs::path& file) { return has(file, ".json") || has(file, ".json.gz"); };
  if (!is_folder(path))
    return traces::is_router_trace(path) ? "router-trace"
           : is_trace(path)              ? (traces::is_chakra(path) ? "chakra" : "kineto")
                                         : "cmd";
  bool traces = false, chakra = false;
  for (const fs::path& entry : entries_of(path)) {
    // A recording with router choices beside it, as moesim-capture writes them, is still a recording.
    if (has(entry, ".txt")) return "cmd";
    if (traces || !is_trace(entry) || !is_file(entry)) continue;
    traces = true;
    chakra = traces::is_chakra(entry);
  }
  return traces::is_router_trace(path) ? "router-trace" : chakra ? "chakra" : traces ? "kineto" : "cmd";
}

traces::Recording read(const ConvertOptions& options, const std::string& format) {
  if (format == "kineto" || format == "chakra") {
    const traces::KinetoReadOptions how{options.pass, options.tp, options.pp, options.ep, options.iterations};
    return format == "kineto" ? traces::read_kineto(options.from, how)
                              : traces::read_chakra(options.from, how);
  }
  if (options.iterations)
    throw InputError("found --iterations with --from " + format +
                     ", expected it with --from kineto or chakra only");
  if (options.tp || options.pp || options.ep)
    throw InputError(
        "found --tp, --pp or --ep with --from " + format +
        ", expected them with --from kineto or chakra only: other recordings are named after their sizes");
  return traces::read_cmd(options.from, {options.pass});
}

struct Converted {
  std::string from, output;
  std::size_t files = 0, operations = 0;
};

Columns<Converted> columns_of(Of<Converted>) {
  return {{"from", &Converted::from, "the format that was read"},
          {"output", &Converted::output},
          {"files", &Converted::files},
          {"operations", &Converted::operations}};
}

// Converts router choices to a dispatching file, not a recording.
int convert_router_trace(const ConvertOptions& options, const CommonOptions& common) {
  if (options.tp || options.pp || options.iterations)
    throw InputError("found --tp, --pp or --iterations with --from router-trace, expected --ep or --experts");
  if (!options.to.ends_with(".json"))
    throw InputError(SourcePlace{options.to}, "a name without .json",
                     "the dispatching file that routers' choices become, e.g. routing.json");
  const traces::RouterTrace trace =
      traces::read_router_trace(options.from, {options.pass, options.ep, options.experts});
  write_file(options.to, traces::write_dispatching(trace.dispatching));
  for (const std::string& warning : trace.warnings) warn(common, warning);
  const std::size_t tables = trace.dispatching.entries.size();
  if (common.format == Format::kJson) {
    print_result("trace-convert", describe_inputs(common),
                 json_of(Converted{"router-trace", options.to, 1, tables}), trace.warnings);
  } else {
    print(fmt::format("{}: {} tables of {} ranks and {} experts\n", options.to, tables, trace.dispatching.ep,
                      trace.dispatching.experts));
  }
  return 0;
}

int run(const ConvertOptions& options, const CommonOptions& common) {
  const std::string format = options.format.empty() ? format_of(options.from) : options.format;
  if (format == "router-trace") return convert_router_trace(options, common);
  if (options.experts)
    throw InputError("found --experts with --from " + format + ", expected it with --from router-trace only");
  traces::Recording recording = read(options, format);
  traces::write_cmd(recording, options.to);
  if (!(traces::named_topology(entries_of(options.to).front()) == recording.named))
    recording.warnings.push_back(options.to +
                                 ": its name lacks sizes of the job, which no line holds; name it as the "
                                 "recording's folder (pp2_tp1_ep4_...)");
  for (const std::string& warning : recording.warnings) warn(common, warning);
  if (common.format == Format::kJson) {
    print_result("trace-convert", describe_inputs(common),
                 json_of(Converted{format, options.to, recording.ranks.size(), recording.operation_count()}),
                 recording.warnings);
  } else {
    print(fmt::format("{}: {} files, {} operations\n", options.to, recording.ranks.size(),
                      recording.operation_count()));
  }
  return 0;
}

}  // namespace

Run declare_trace_convert(CLI::App& app) {
  const auto options = std::make_shared<ConvertOptions>();
  app.add_option(
         "recording", options->from,
         "a folder of rank files, of *.json[.gz] traces or of Megatron-Core's router_trace_rank*.jsonl, "
         "one per rank; one file")
      ->required();
  app.add_option("folder", options->to, "where to write; new or empty")->required();
  app.add_option("--from", options->format,
                 "cmd, kineto, chakra or router-trace; default: what the files look like")
      ->check(CLI::IsMember({"cmd", "kineto", "chakra", "router-trace"}).description(""));
  app.add_option("--pass", options->pass,
                 "which pass of a folder, or profiled step of traces, that holds several, from 0")
      ->capture_default_str();
  struct Size {
    const char* option;
    std::optional<std::int64_t>* value;
    const char* help;
  };
  for (const Size& size : {Size{"--tp", &options->tp, "tensor-parallel size"},
                           {"--pp", &options->pp, "pipeline stages"},
                           {"--ep", &options->ep, "expert-parallel size"}})
    app.add_option(size.option, *size.value, std::string(size.help) + " of traces, where they do not tell")
        ->check(CLI::Range(1, 1 << 20).description(""));
  app.add_option("--iterations", options->iterations,
                 "how many a trace without ProfilerStep marks holds; default: what repeats")
      ->check(CLI::Range(1, 1 << 20).description(""));
  app.add_option("--experts", options->experts, "of a router-trace; default: as the largest that was chosen")
      ->check(CLI::Range(1, 1 << 16).description(""));
  return [options](const CommonOptions& common) { return run(*options, common); };
}

const ResultSchema kTraceConvertSchema("trace-convert", "trace convert", schema_of<Converted>);

}  // namespace moesim::tools

// `moesim trace convert`: a recording read and written again as CMD files.
#include <fmt/format.h>

#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/moesim/inputs.h"
#include "tools/moesim/output.h"
#include "tools/moesim/trace.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::tools {
namespace {

struct ConvertOptions {
  std::string from;
  std::string to;
  std::size_t pass = 0;
};

int run(const ConvertOptions& options, const CommonOptions& common) {
  const traces::Recording recording = traces::read_cmd(options.from, {options.pass});
  traces::write_cmd(recording, options.to);
  for (const std::string& warning : recording.warnings) warn(common, warning);
  if (common.format == Format::kJson) {
    nlohmann::ordered_json inputs = describe_inputs(common);
    for (const traces::RankRecording& rank : recording.ranks) add_input_file(inputs, rank.file);
    nlohmann::ordered_json out = envelope("trace-convert", inputs, recording.warnings);
    out["output"] = options.to;
    out["files"] = recording.ranks.size();
    out["operations"] = recording.operation_count();
    print_json(out);
  } else {
    print(fmt::format("{}: {} files, {} operations\n", options.to, recording.ranks.size(),
                      recording.operation_count()));
  }
  return 0;
}

}  // namespace

TraceCommand declare_trace_convert(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand("convert", "write a recording (one pass of it) as CMD files");
  const auto options = std::make_shared<ConvertOptions>();
  command->add_option("recording", options->from, "a folder of rank files, or one rank file")->required();
  command->add_option("folder", options->to, "where to write; new or empty")->required();
  command->add_option("--pass", options->pass, "which pass of a folder that holds several, from 0")
      ->capture_default_str();
  return {command, [options](const CommonOptions& common) { return run(*options, common); }};
}

}  // namespace moesim::tools

// `moesim trace info` and `moesim trace check`: facts and findings about a recording.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/verbs/trace.h"
#include "traces/cmd_reader.h"
#include "traces/recording_check.h"
#include "traces/recording_facts.h"

namespace moesim::tools {
namespace {

using traces::Finding;
using traces::Recording;
using traces::RecordingFacts;
using traces::Severity;

constexpr std::size_t kMostRuns = 8;  // of ranks in a line

struct TraceOptions {
  std::string path;
  std::size_t pass = 0;
};

// A recording with everything known about it.
struct Examined {
  Recording recording;
  RecordingFacts facts;
  std::vector<Finding> findings;
};

std::shared_ptr<TraceOptions> declare_options(CLI::App& command) {
  auto options = std::make_shared<TraceOptions>();
  command.add_option("recording", options->path, "a folder of rank files, or one rank file")->required();
  command.add_option("--pass", options->pass, "which pass of a folder that holds several, from 0")
      ->capture_default_str();
  return options;
}

// `whole`: for rules that need the whole job, which is replayed.
Examined examine(const TraceOptions& options, bool whole) {
  Examined out;
  out.recording = traces::read_cmd(options.path, {options.pass});
  out.facts = traces::describe(out.recording);
  out.findings = traces::examine(out.recording, out.facts);
  if (const auto refusal = replay_refusal(out.recording, whole))
    out.findings.insert(out.findings.begin(), {Severity::kProblem, {}, "replay refuses it: " + *refusal});
  return out;
}

std::string sentence(const Finding& finding) {
  return finding.place.file.empty() ? finding.text : finding.place.str() + ": " + finding.text;
}

std::vector<std::string> warnings_of(const Examined& examined) {
  std::vector<std::string> out;
  if (const std::string text = examined.facts.without_role.sentence(); !text.empty()) out.push_back(text);
  out.insert(out.end(), examined.recording.warnings.begin(), examined.recording.warnings.end());
  for (const Finding& finding : examined.findings)
    if (finding.severity != Severity::kNote) out.push_back(sentence(finding));
  return out;
}

nlohmann::ordered_json named_json(const traces::NamedTopology& named) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  const auto put = [&](const char* key, const std::optional<std::int64_t>& value) {
    if (value) out[key] = *value;
  };
  put("world", named.world);
  put("tp", named.tp);
  put("pp", named.pp);
  put("ep", named.ep);
  put("experts", named.experts);
  put("dp", named.dp);
  put("layers", named.layers);
  put("hidden", named.hidden);
  put("seq", named.seq);
  put("micro_batch", named.micro_batch);
  return out;
}

nlohmann::ordered_json stats_json(const traces::DurationStats& stats) {
  nlohmann::ordered_json out;
  if (!stats.parent.empty()) out["parent"] = stats.parent;
  out["name"] = stats.name;
  out["group"] = stats.group;
  if (!stats.parent.empty()) out["comm_func"] = stats.comm_func;
  out["count"] = stats.count;
  out["mean_us"] = 1e3 * stats.mean_ms;
  out["min_us"] = 1e3 * stats.min_ms;
  out["max_us"] = 1e3 * stats.max_ms;
  return out;
}

nlohmann::ordered_json findings_json(const Examined& examined) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  if (const auto& strangers = examined.facts.without_role; strangers.count > 0)
    out.push_back({{"severity", "warning"},
                   {"file", strangers.first.file},
                   {"line", strangers.first.line},
                   {"text", strangers.sentence()}});
  for (const std::string& warning : examined.recording.warnings)
    out.push_back({{"severity", "warning"}, {"text", warning}});
  for (const Finding& finding : examined.findings) {
    nlohmann::ordered_json one;
    one["severity"] = to_string(finding.severity);
    if (!finding.place.file.empty()) one["file"] = finding.place.file;
    if (finding.place.line > 0) one["line"] = finding.place.line;
    one["text"] = finding.text;
    out.push_back(one);
  }
  return out;
}

nlohmann::ordered_json header_json(std::string_view verb, const Examined& examined,
                                   const CommonOptions& common) {
  nlohmann::ordered_json inputs = describe_inputs(common);
  return envelope(verb, inputs, warnings_of(examined));
}

nlohmann::ordered_json info_json(const Examined& examined, const CommonOptions& common) {
  const RecordingFacts& facts = examined.facts;
  nlohmann::ordered_json out = header_json("trace-info", examined, common);
  out["source"] = examined.recording.source;
  out["about"] = examined.recording.ranks.front().header;
  if (facts.device) out["device"] = {{"cpu", facts.device->cpu}, {"name", facts.device->name}};
  out["side"] = to_string(facts.side);
  out["side_evidence"] = facts.side_evidence;
  out["writer"] = facts.newer_writer ? "v2" : "v1";
  out["pass"] = examined.recording.pass;
  out["passes"] = examined.recording.passes;
  out["named"] = named_json(examined.recording.named);
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const traces::RankRecording& rank : examined.recording.ranks) ranks.push_back(rank.rank);
  out["ranks"] = ranks;
  if (facts.world) out["world"] = *facts.world;
  out["missing_ranks"] = facts.missing_ranks;
  out["stages"] = facts.stages;
  out["microbatches"] = facts.microbatches;
  out["dispatcher"] = facts.expert.dispatcher.empty() ? "none" : facts.expert.dispatcher;
  out["experts"] = facts.expert.experts;
  out["moe_layers"] = facts.expert.moe_layers;
  out["calls_without_role"] = facts.without_role.count;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const traces::RankRows& rank : facts.expert.ranks)
    rows.push_back({{"rank", rank.rank},
                    {"stage", rank.stage},
                    {"moe_layers", rank.moe_layers},
                    {"sent_rows", rank.sent},
                    {"received_rows", rank.received},
                    {"constant", rank.constant}});
  out["rows"] = rows;
  out["clock_domains"] = facts.clock_domains;
  out["fused_p2p_pairs"] = facts.fused_pairs;
  nlohmann::ordered_json operations = nlohmann::ordered_json::array();
  for (const auto& stats : facts.operations) operations.push_back(stats_json(stats));
  out["ops"] = operations;
  nlohmann::ordered_json subs = nlohmann::ordered_json::array();
  for (const auto& stats : facts.sub_operations) subs.push_back(stats_json(stats));
  out["sub_ops"] = subs;
  out["findings"] = findings_json(examined);
  return out;
}

std::string named_text(const traces::NamedTopology& named) {
  std::vector<std::string> parts;
  const nlohmann::ordered_json values = named_json(named);
  for (const auto& [key, value] : values.items())
    parts.push_back(key == "experts" && value == 0 ? "dense" : key + " " + value.dump());
  return parts.empty() ? "nothing" : join(parts, ", ");
}

// Describes the rows that each expert-parallel rank receives, where one stage shows them all.
std::string rows_text(const Examined& examined) {
  std::vector<std::string> received;
  const auto ep = static_cast<std::size_t>(examined.recording.named.ep.value_or(0));
  const std::int64_t tp = examined.recording.named.tp.value_or(1);  // ranks of an expert, fastest
  for (const traces::RankRows& rows : examined.facts.expert.ranks)
    if (received.size() < ep && rows.stage == 0 && rows.received > 0 && rows.rank % tp == 0)
      received.push_back(std::to_string(rows.received));
  if (ep == 0 || ep > 16 || received.size() != ep) return "";
  return fmt::format("{} rows sent per rank and layer; received by EP rank: {}",
                     examined.facts.expert.ranks.front().sent, join(received, ", "));
}

Table stats_table(const std::vector<traces::DurationStats>& stats, bool subs) {
  std::vector<Table::Column> columns{{"operation", Table::Align::kLeft}};
  if (subs) columns = {{"in", Table::Align::kLeft}, {"sub-operation", Table::Align::kLeft}};
  columns.push_back({"group", Table::Align::kLeft});
  if (subs) columns.push_back({"collective", Table::Align::kLeft});
  for (const char* name : {"count", "mean ms", "min ms", "max ms"})
    columns.push_back({name, Table::Align::kRight});
  Table table(columns);
  for (const traces::DurationStats& row : stats) {
    std::vector<std::string> cells{row.name};
    if (subs) cells = {row.parent, row.name};
    cells.push_back(row.group == "None" ? "-" : row.group);
    if (subs) cells.push_back(row.comm_func);
    cells.push_back(std::to_string(row.count));
    for (double ms : {row.mean_ms, row.min_ms, row.max_ms}) cells.push_back(fmt::format("{:.3f}", ms));
    table.row(std::move(cells));
  }
  return table;
}

std::string without_role_text(const Examined& examined) {
  const std::string text = examined.facts.without_role.sentence();
  return text.empty() ? "" : "warning: " + text + "\n";
}

std::string findings_text(const Examined& examined, bool with_notes) {
  std::string out = without_role_text(examined);
  for (const std::string& warning : examined.recording.warnings) out += "warning: " + warning + "\n";
  for (const Finding& finding : examined.findings)
    if (with_notes || finding.severity != Severity::kNote)
      out += fmt::format("{}: {}\n", to_string(finding.severity), sentence(finding));
  return out;
}

std::string info_text(const Examined& examined) {
  const RecordingFacts& facts = examined.facts;
  const Recording& recording = examined.recording;
  std::vector<std::int32_t> ranks;
  for (const traces::RankRecording& rank : recording.ranks) ranks.push_back(rank.rank);
  std::string out = without_role_text(examined) + recording.source + "\n";
  const auto line = [&](const char* key, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {:<13} {}\n", key, value);
  };
  for (const std::string& about : recording.ranks.front().header) line("about", std::string(trim(about)));
  if (facts.device)
    line("device", facts.device->cpu ? fmt::format("a CPU ({})", facts.device->name) : facts.device->name);
  line("side", fmt::format("{} ({})", to_string(facts.side), join(facts.side_evidence, "; ")));
  line("writer", facts.newer_writer ? "v2 (2026): sub-operations carry their start time"
                                    : "v1 (2025): sub-operations carry their end time");
  if (recording.passes > 1) line("pass", fmt::format("{} of 0-{}", recording.pass, recording.passes - 1));
  line("names say", named_text(recording.named));
  line("ranks", fmt::format("{} ({}){}", ranks.size(), traces::runs_of(ranks, kMostRuns),
                            facts.missing_ranks.empty()
                                ? ""
                                : fmt::format("; {} missing ({})", facts.missing_ranks.size(),
                                              traces::runs_of(facts.missing_ranks, kMostRuns))));
  line("schedule", fmt::format("{} pipeline stage{}, {} microbatch{}, {} fused send-receive pairs",
                               facts.stages, facts.stages == 1 ? "" : "s", facts.microbatches,
                               facts.microbatches == 1 ? "" : "es", facts.fused_pairs));
  line("dispatcher",
       facts.expert.dispatcher.empty()
           ? "none seen"
           : fmt::format(
                 "{}, {} experts, {} MoE layers over all stages", facts.expert.dispatcher,
                 facts.expert.experts == 0 ? "unknown number of" : std::to_string(facts.expert.experts),
                 facts.expert.moe_layers));
  line("routing", rows_text(examined));
  std::vector<std::string> clocks;
  for (const auto& domain : facts.clock_domains)
    clocks.push_back("{" + traces::runs_of(domain, kMostRuns) + "}");
  line("clocks", fmt::format("{}: ranks {}", clocks.size(), join(clocks, " ")));
  out += "\n" + stats_table(facts.operations, false).text();
  if (!facts.sub_operations.empty()) out += "\n" + stats_table(facts.sub_operations, true).text();
  std::string findings = findings_text(examined, true);
  findings.erase(0, without_role_text(examined).size());  // printed above
  if (!findings.empty()) out += "\n" + findings;
  return out;
}

nlohmann::ordered_json check_json(const Examined& examined, const CommonOptions& common, bool passed) {
  nlohmann::ordered_json out = header_json("trace-check", examined, common);
  out["source"] = examined.recording.source;
  out["passed"] = passed;
  out["findings"] = findings_json(examined);
  return out;
}

int run_info(const TraceOptions& options, const CommonOptions& common) {
  const Examined examined = examine(options, false);
  switch (common.format) {
    case Format::kTable:
      print(info_text(examined));
      break;
    case Format::kJson:
      print_json(info_json(examined, common));
      break;
    case Format::kCsv:
      print(stats_table(examined.facts.operations, false).csv());
      break;
  }
  return 0;
}

int run_check(const TraceOptions& options, const CommonOptions& common) {
  const Examined examined = examine(options, true);
  const auto problems = std::ranges::count(examined.findings, Severity::kProblem, &Finding::severity);
  if (common.format == Format::kJson) {
    print_json(check_json(examined, common, problems == 0));
  } else if (common.format == Format::kCsv) {
    Table table(
        {{"severity", Table::Align::kLeft}, {"place", Table::Align::kLeft}, {"text", Table::Align::kLeft}});
    if (const auto& strangers = examined.facts.without_role; strangers.count > 0)
      table.row({"warning", strangers.first.str(), strangers.sentence()});
    for (const std::string& warning : examined.recording.warnings) table.row({"warning", "", warning});
    for (const Finding& finding : examined.findings)
      table.row({std::string(to_string(finding.severity)), finding.place.str(), finding.text});
    print(table.csv());
  } else {
    print(findings_text(examined, false) +
          fmt::format("{}: {} operations of {} ranks, {}\n", examined.recording.source,
                      examined.recording.operation_count(), examined.recording.ranks.size(),
                      problems == 0 ? "no problems"
                                    : fmt::format("{} problem{}", problems, problems == 1 ? "" : "s")));
  }
  return problems == 0 ? 0 : 1;
}

}  // namespace

TraceCommand declare_trace_info(CLI::App& trace) {
  CLI::App* command =
      trace.add_subcommand("info", "what a recording is: side, topology, operations, what is missing");
  const auto options = declare_options(*command);
  return {command, [options](const CommonOptions& common) { return run_info(*options, common); }};
}

TraceCommand declare_trace_check(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand("check", "exit 1 when a replay of the recording would stumble");
  const auto options = declare_options(*command);
  return {command, [options](const CommonOptions& common) { return run_check(*options, common); }};
}

}  // namespace moesim::tools

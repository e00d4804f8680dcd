// `moesim trace info` and `moesim trace check`: facts and findings about a recording.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tools/moesim/questions/recordings.h"
#include "tools/moesim/show/cell.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_inputs.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/verbs/trace.h"
#include "traces/cmd_reader.h"
#include "traces/recording_check.h"
#include "traces/recording_facts.h"

namespace moesim::tools {

Columns<traces::NamedTopology> columns_of(Of<traces::NamedTopology>) {
  using N = traces::NamedTopology;
  return {{"world?", &N::world},
          {"tp?", &N::tp},
          {"pp?", &N::pp},
          {"ep?", &N::ep},
          {"experts?", &N::experts, "0: a dense model"},
          {"dp?", &N::dp},
          {"layers?", &N::layers},
          {"hidden?", &N::hidden},
          {"seq?", &N::seq},
          {"micro_batch?", &N::micro_batch}};
}

Columns<traces::Device> columns_of(Of<traces::Device>) {
  return {{"cpu", &traces::Device::cpu}, {"name", &traces::Device::name}};
}

Columns<traces::RankRows> columns_of(Of<traces::RankRows>) {
  using R = traces::RankRows;
  return {{"rank", &R::rank},
          {"stage", &R::stage},
          {"moe_layers", &R::moe_layers},
          {"sent_rows", &R::sent, "into the dispatch of the first layer; 0: unknown"},
          {"received_rows", &R::received},
          {"constant", &R::constant, "equal in every layer and microbatch"}};
}

Columns<traces::DurationStats> columns_of(Of<traces::DurationStats>) {
  using S = traces::DurationStats;
  return {
      {"parent?", [](const S& s) { return where(!s.parent.empty(), s.parent); }, "the operation of a part"},
      {"name", &S::name},
      {"group", &S::group},
      {"comm_func?", [](const S& s) { return where(!s.parent.empty(), s.comm_func); }},
      {"count", &S::count},
      {"mean_us", [](const S& s) { return 1e3 * s.mean_ms; }},
      {"min_us", [](const S& s) { return 1e3 * s.min_ms; }},
      {"max_us", [](const S& s) { return 1e3 * s.max_ms; }}};
}

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

// A line of the findings: of reading, of the roles of calls, or of a rule.
struct Found {
  std::string severity, text;
  SourcePlace place = {};
};

std::vector<Found> findings_of(const Examined& examined) {
  std::vector<Found> all;
  if (const auto& strangers = examined.facts.without_role; strangers.count > 0)
    all.push_back({"warning", strangers.sentence(), strangers.first});
  for (const std::string& warning : examined.recording.warnings) all.push_back({"warning", warning});
  for (const Finding& finding : examined.findings)
    all.push_back({std::string(to_string(finding.severity)), finding.text, finding.place});
  return all;
}

Columns<Found> columns_of(Of<Found>) {
  return {{"severity", &Found::severity},
          {"file?", [](const Found& f) { return where(!f.place.file.empty(), f.place.file); }},
          {"line?", [](const Found& f) { return where(f.place.line > 0, f.place.line); }},
          {"text", &Found::text}};
}

Columns<Examined> columns_of(Of<Examined>) {
  using E = Examined;
  const auto fact = [](auto member) { return [member](const E& e) { return e.facts.*member; }; };
  const auto expert = [](auto member) { return [member](const E& e) { return e.facts.expert.*member; }; };
  const auto ranks = [](const E& e) {
    std::vector<std::int32_t> all;
    for (const traces::RankRecording& rank : e.recording.ranks) all.push_back(rank.rank);
    return all;
  };
  using F = RecordingFacts;
  using R = traces::ExpertRows;
  return {{"source", [](const E& e) { return e.recording.source; }},
          {"about", [](const E& e) { return e.recording.ranks.front().header; },
           "comment lines of the first rank"},
          {"device?", fact(&F::device), "that made it, where the recorder wrote it down"},
          {"side", [](const E& e) { return to_string(e.facts.side); }},
          {"side_evidence", fact(&F::side_evidence)},
          {"writer", [](const E& e) { return e.facts.newer_writer ? "v2" : "v1"; },
           "v2: sub-operations carry their start time, v1: their end time"},
          {"pass", [](const E& e) { return e.recording.pass; }},
          {"passes", [](const E& e) { return e.recording.passes; }},
          {"named", [](const E& e) { return e.recording.named; }, "what names of folders and files say"},
          {"ranks", ranks},
          {"world?", fact(&F::world)},
          {"missing_ranks", fact(&F::missing_ranks)},
          {"stages", fact(&F::stages)},
          {"microbatches", fact(&F::microbatches)},
          {"dispatcher",
           [](const E& e) { return e.facts.expert.dispatcher.empty() ? "none" : e.facts.expert.dispatcher; }},
          {"experts", expert(&R::experts)},
          {"moe_layers", expert(&R::moe_layers)},
          {"calls_without_role", [](const E& e) { return e.facts.without_role.count; }},
          {"rows", expert(&R::ranks)},
          {"clock_domains", fact(&F::clock_domains), "ranks with comparable clocks"},
          {"fused_p2p_pairs", fact(&F::fused_pairs)},
          {"ops", fact(&F::operations)},
          {"sub_ops", fact(&F::sub_operations)},
          {"findings", findings_of}};
}

struct Checked {
  const Examined& examined;
  bool passed;
};

Columns<Checked> columns_of(Of<Checked>) {
  return {{"source", [](const Checked& c) { return c.examined.recording.source; }},
          {"passed", &Checked::passed},
          {"findings", [](const Checked& c) { return findings_of(c.examined); }}};
}

std::string named_text(const traces::NamedTopology& named) {
  std::vector<std::string> parts;
  const nlohmann::ordered_json values = json_of(named);
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
  using S = traces::DurationStats;
  const auto group = [](const S& s) { return s.group == "None" ? "-" : s.group; };
  return table_of(Columns<S>{{"", &S::parent, "", subs ? "in" : ""},
                             {"", &S::name, "", subs ? "sub-operation" : "operation"},
                             {"", group, "", "group"},
                             {"", &S::comm_func, "", subs ? "collective" : ""},
                             {"", &S::count, "", "count"},
                             {"", &S::mean_ms, "", {"mean ms", 3}},
                             {"", &S::min_ms, "", {"min ms", 3}},
                             {"", &S::max_ms, "", {"max ms", 3}}},
                  stats);
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

int run_info(const TraceOptions& options, const CommonOptions& common) {
  const Examined examined = examine(options, false);
  switch (common.format) {
    case Format::kTable:
      print(info_text(examined));
      break;
    case Format::kJson:
      print_result("trace-info", describe_inputs(common), json_of(examined), warnings_of(examined));
      break;
    case Format::kCsv:
      print(csv_of(json_of(examined).at("ops")));
      break;
  }
  return 0;
}

int run_check(const TraceOptions& options, const CommonOptions& common) {
  const Examined examined = examine(options, true);
  const auto problems = std::ranges::count(examined.findings, Severity::kProblem, &Finding::severity);
  if (common.format == Format::kJson) {
    print_result("trace-check", describe_inputs(common), json_of(Checked{examined, problems == 0}),
                 warnings_of(examined));
  } else if (common.format == Format::kCsv) {
    print(csv_of(json_of(Checked{examined, problems == 0}).at("findings")));
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

Run declare_trace_info(CLI::App& app) {
  const auto options = declare_options(app);
  return [options](const CommonOptions& common) { return run_info(*options, common); };
}

Run declare_trace_check(CLI::App& app) {
  const auto options = declare_options(app);
  return [options](const CommonOptions& common) { return run_check(*options, common); };
}

const ResultSchema kTraceInfoSchema("trace-info", "trace info", schema_of<Examined>);

const ResultSchema kTraceCheckSchema("trace-check", "trace check", schema_of<Checked>);

}  // namespace moesim::tools

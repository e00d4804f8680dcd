// Output of a comparison of dispatchers for a layer or a step: JSON, CSV, and tables for people.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/answers/answer.h"
#include "models/answers/energy.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/show/output.h"
#include "tools/moesim/show/result_json.h"
#include "tools/moesim/show/timeline_view.h"

namespace moesim::tools {

// Details besides the summary: parts of the time, every message with its bytes per rank, every operation as
// the critical rank ran it, the share of each rank, parts of the memory.
enum class Detail : std::uint8_t { kNone, kTimes, kMessages, kOperations, kRanks, kMemory };
Detail parse_detail(const std::string& name);  // "messages", ...; other text is kNone

// Bytes that ranks of the dispatch group send for one MoE layer.
struct SentBytes {
  std::int64_t min = 0, max = 0;
  double mean = 0;
};
SentBytes sent_bytes(const models::Answer& answer);

// One dispatcher's answer: the figures that every verb shows, and all that `compare` shows.
Columns<models::Answer> figures();
nlohmann::ordered_json answer_json(const models::Answer& answer, const models::Scenario& scenario,
                                   Detail detail = Detail::kNone);
// Formats "12.3 USD per step, 0.5 per million tokens on 64 GPUs"; needs prices.
std::string cost_text(const models::Answer& answer, const models::Scenario& scenario);
Columns<models::MemoryCause> columns_of(Of<models::MemoryCause>);
Columns<models::RankMemory> columns_of(Of<models::RankMemory>);
Columns<models::StageMemory> columns_of(Of<models::StageMemory>);
Columns<models::TimedCollective> columns_of(Of<models::TimedCollective>);
Columns<models::StepQuantiles> columns_of(Of<models::StepQuantiles>);
Columns<models::Energy> columns_of(Of<models::Energy>);
std::string energy_text(const models::Energy& energy);
// The dispatcher to run and what that can cost.
Columns<models::Comparison> recommendation();
Columns<models::Anchor> columns_of(Of<models::Anchor>);
// How far a number of the machine or the plan was moved, and the nearest values on both sides with which another
// dispatcher is the fastest. Values are for people.
struct Around {
  struct Turned {
    std::string value, dispatcher;
  };
  std::string path, what, now, from, to;
  std::optional<Turned> below, above;
};
// An answer among others, and what is told of it.
struct Told {
  const models::Answer& answer;
  const models::Scenario& scenario;
  Detail detail = Detail::kNone;
  const models::Comparison* all = nullptr;

  // Its share of something that is known with draws, of those that can be chosen.
  template <class Value>
  std::optional<double> of_ranked(Value value) const {
    if (!all || all->decision.fastest.empty() || !answer.ranked()) return std::nullopt;
    return value(all->decision, static_cast<std::size_t>(&answer - all->answers.data()));
  }
};
// The figures of a row of CSV, and what is known of it among others with draws.
Columns<models::Answer> row_figures();
Columns<Told> chances();
// A comparison as it is told.
struct ComparisonResult {
  const models::Comparison& comparison;
  Detail detail = Detail::kNone;
  std::vector<Around> around;
};
Columns<ComparisonResult> columns_of(Of<ComparisonResult>);
nlohmann::ordered_json comparison_json(const models::Comparison& comparison, Detail detail,
                                       const CommonOptions& common, const std::vector<Around>& around = {});
std::string comparison_csv(const models::Comparison& comparison, Detail detail);
// One paragraph on what was asked: model, machine, scope and plan, and what decides how they run.
std::string question_text(const models::Comparison& comparison, bool explain = false);
// Names the assumptions that move the answer, the most first: "assumed: --precision bf16 (with fp8 9 %
// faster)"; `explain`: all of them. Empty where none moves it.
std::string assumed_text(const models::Comparison& comparison, bool explain = false);
// A first screen; `explain`: with all that it leaves out. `chosen`: what was searched, for people.
void print_comparison(const models::Comparison& comparison, Detail detail, bool explain,
                      std::string_view chosen);
// The warnings that another option or file answers: without those of what the profile's laws were measured on
// and of what a dispatcher's program counts, which --explain tells.
std::vector<std::string> to_act_on(const std::vector<std::string>& warnings, const models::Cluster& cluster,
                                   std::span<const models::Answer> answers);
// Returns all dispatchers as Chrome trace events: for a layer one process per dispatcher and rank, for a step
// one per dispatcher and stage. Needs AnswerOptions::trace.
std::string comparison_timeline(const models::Comparison& comparison, const CommonOptions& common,
                                const TimelineBounds& bounds);

// Returns the comparison as one HTML page. Needs AnswerOptions::trace.
std::string comparison_report(const models::Comparison& comparison, const CommonOptions& common,
                              TimelineBounds bounds, const std::vector<Around>& around);

}  // namespace moesim::tools

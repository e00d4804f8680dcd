// Is a run normal, and if not, why: a sentence, and causes that would explain its slowness, ranked.
//
// causes.json holds the causes: a change of the job that a forecast prices, or the ratio that public threads
// report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/answers/answer.h"
#include "models/hardware/estimate.h"
#include "tools/moesim/questions/ask.h"
#include "tools/moesim/show/columns.h"

namespace moesim::tools {

inline constexpr double kSlowerThanNormal = 0.1;  // beyond the interval of what is normal

struct SlowCause {
  std::string what, check, link;
  std::vector<std::string> ids;  // one, or two that act together
  models::Estimate ratio;        // time over the normal time under it
  double score = 0;              // log probability, up to a constant
};

struct Verdict {
  bool normal = true;
  double ratio = 1;               // time over the normal time
  double usual_us = 0;            // the normal time of a step; 0: of a row
  std::optional<double> slower;   // share of what is compared with that is slower
  std::int64_t rows = 0;          // published rows that it is compared with; 0: the forecast
  std::string sentence;           // the answer
  std::vector<SlowCause> causes;  // the likeliest first
};
Columns<Verdict> columns_of(Of<Verdict>);

// Describes the likeliest causes, a line for a normal run.
std::string verdict_text(const Verdict& verdict);

// What is known about a slow run.
struct Circumstances {
  std::string kind;     // "step", "collective", "kernel"
  std::string op;       // of a collective: "all_reduce"; "kernel"
  std::string gpu;      // profile
  std::string network;  // kind, "roce"; "" where nothing leaves a node
  int nodes = 1;
  std::vector<std::string> needs;  // what a step has: "moe", "fp8", "mbs1", "pp", "fsdp"
  double sigma = 0.15;             // log standard deviation of what is normal
  std::string_view log;            // whose lines may tell
};

// Time over the normal time under a change "path=value"; nullopt where it changes nothing or cannot be had.
using PriceOf = std::function<std::optional<double>(const std::string& change)>;

// Returns the causes that explain a ratio, at most `most`, the likeliest first.
std::vector<SlowCause> causes_of(const Circumstances& run, double ratio, const PriceOf& price,
                                 std::size_t most = 5);

// Judges a step or layer of `answer` that took `us`. `base`: the question, whose changes are priced; `slack`:
// by how much a normal run may exceed the interval.
Verdict judge_run(const Base& base, const models::Comparison& asked, const models::Answer& answer,
                  const models::Estimate& forecast, double us, std::string_view log = {},
                  double slack = kSlowerThanNormal);

}  // namespace moesim::tools

// The answer of `moesim replay`: for people (replay_text.cc) and for programs (replay_json.cc).
#pragma once

#include <array>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "models/hardware/rental.h"
#include "replay/run/forecast_recording.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

// The times of a rank, described once: the letter is that of the bars.
struct RankTime {
  const char *key, *head, *csv_head;
  char letter;
  Ink ink;
  sim::Time sim::RankSummary::*time;
};
inline constexpr std::array<RankTime, 5> kRankTimes{{
    {"busy_us", "computing", "computing ms", 'C', Ink::kBlue, &sim::RankSummary::busy},
    {"exposed_comm_us", "transfer", "transfer ms", 'T', Ink::kYellow, &sim::RankSummary::exposed_comm},
    {"straggler_wait_us", "waiting", "straggler wait ms", 'w', Ink::kGrey, &sim::RankSummary::straggler_wait},
    {"bubble_us", "bubble", "bubble ms", 'b', Ink::kSoft, &sim::RankSummary::bubble},
    {"host_us", "host", "host ms", 'H', Ink::kPurple, &sim::RankSummary::host},
}};

// Prints the answer; `explain`: all ranks and operations, the critical path and the effects, too.
void print_replay(const replay::RecordingForecast& answer, const replay::Topology& recorded,
                  const models::PriceTable& prices, bool explain);

// Returns a table for programs: the iteration is on every row.
Table rank_table(const replay::RecordingForecast& answer, const models::PriceTable& prices);

// `model`: named by the user for a recording, which itself contains only sizes; `effects`: adds their list.
nlohmann::ordered_json replay_json(const replay::RecordingForecast& answer,
                                   const nlohmann::ordered_json& inputs, const models::PriceTable& prices,
                                   const std::string& model, bool effects);

}  // namespace moesim::tools

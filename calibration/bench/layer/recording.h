// What a measured world becomes: a scaling recording (docs/formats.md, CMD recordings), the routing beside
// it, what was measured, and constants for a profile.
#pragma once

#include <string>
#include <vector>

#include "layer/check.h"
#include "layer/measure.h"

namespace moesim::bench {

struct RecordingFacts {
  std::string command;
  std::string profile;  // whose constants `constants.json` holds; empty: none are written
  MeasurePlan plan;
  std::vector<Finding> checked;
};

// <out>/pp1_tp1_exp8_expn128_dp8_nl1_hs2048_sl4096
std::string recording_folder(const std::string& out, const LayerShape& shape);

// Writes <folder>/scaling/*rank<N>*.txt, dispatching.json, layer.json, and constants.json where a profile is
// named. Throws std::runtime_error with one line where a file cannot be written.
void write_recording(const std::string& folder, World& world, const std::vector<RankTimes>& times,
                     const RecordingFacts& facts);

// One rank's file as text; `stamp` are 14 digits.
std::string rank_file(const RankLayer& rank, const LayerDevice& device, const RankTimes& times,
                      const RecordingFacts& facts);

}  // namespace moesim::bench

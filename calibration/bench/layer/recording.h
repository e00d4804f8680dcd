// Writes a measured world: a scaling recording (docs/formats.md, CMD recordings), its routing, the
// measurements, and constants for a profile.
#pragma once

#include <string>
#include <vector>

#include "layer/check.h"
#include "layer/measure.h"

namespace moesim::bench {

struct RecordingFacts {
  std::string command;
  std::string profile;  // profile that `constants.json` extends; empty: not written
  Repeats plan;
  std::vector<Finding> checked;
};

// <out>/pp1_tp1_exp8_expn128_dp8_nl1_hs2048_sl4096
std::string recording_folder(const std::string& out, const LayerShape& shape);

// Writes <folder>/scaling/*rank<N>*.txt, dispatching.json, layer.json, and constants.json where a profile is
// named. Throws std::runtime_error with one line where a file cannot be written.
void write_recording(const std::string& folder, World& world, const std::vector<RankTimes>& times,
                     const RecordingFacts& facts);

// Returns one rank's file as text; `stamp`: 14 digits.
std::string rank_file(const RankLayer& rank, const LayerDevice& device, const RankTimes& times,
                      const RecordingFacts& facts);

}  // namespace moesim::bench

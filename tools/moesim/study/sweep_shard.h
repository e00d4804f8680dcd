// Sweeps in parts, for job arrays that share neither MPI nor a disk: the scenarios of a part, and merging the
// tables of all parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/study/sweep_file.h"

namespace moesim::tools {

// Part `index` (from 0) of `count`.
struct SweepShard {
  std::uint64_t index = 0, count = 1;

  // Parses "2/16". Throws InputError for other text.
  static SweepShard parse(const std::string& text);
  // Returns the first scenario of the part and the one past its last; sizes differ by at most one.
  std::pair<std::uint64_t, std::uint64_t> of(std::uint64_t scenarios) const;
};

// Adds the part to the definition of the whole sweep.
void add_shard(nlohmann::ordered_json& definition, const SweepShard& shard);

// Merges the tables of all parts, in any order given, into the bytes and the record of the undivided sweep.
// Throws InputError for a table that does not match its record, for parts of different sweeps, and for a
// missing or repeated part.
void merge_sweeps(const std::vector<std::string>& parts, const std::string& out, SweepStart start);

}  // namespace moesim::tools

// Sweeps in parts, for job arrays that share neither MPI nor a disk: which scenarios a part has, and one
// table out of the tables of all parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/sweeps/sweep_file.h"

namespace moesim::tools {

// Part `index` (from 0) of `count`.
struct SweepShard {
  std::uint64_t index = 0, count = 1;

  // "2/16". Throws InputError for what is no part.
  static SweepShard parse(const std::string& text);
  // The scenarios of the part, first and behind the last: as many in each, to one.
  std::pair<std::uint64_t, std::uint64_t> of(std::uint64_t scenarios) const;
};

// The definition of a part's sweep: that of the whole, with the part.
void add_shard(nlohmann::ordered_json& definition, const SweepShard& shard);

// Puts the tables of all parts together, in any order given: the bytes of the sweep that was not shared out,
// and its record. Throws InputError for a table that is not the one of its record, for parts of different
// sweeps, and where one is missing or there twice.
void merge_sweeps(const std::vector<std::string>& parts, const std::string& out, SweepStart start);

}  // namespace moesim::tools

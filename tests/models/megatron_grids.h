// Megatron's two grids of the same ranks (docs/spec.md 5.1), from its order string: what placements are held
// against.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "models/workload/parallel.h"

namespace moesim::models::testing {

struct MegatronGrids {
  RankGrid dense;    // axes tp, cp, dp, pp
  RankGrid experts;  // axes tp (= ETP), ep, dp (= EDP), pp
};

inline MegatronGrids megatron_grids(const Parallel& p, std::string_view order = "tp-cp-ep-dp-pp") {
  const auto grid = [&](const std::map<std::string_view, std::int64_t>& sizes) {
    std::vector<Axis> axes;
    for (const std::string_view name : split(order, '-')) axes.push_back({std::string(name), sizes.at(name)});
    return RankGrid::fastest_first(std::move(axes));
  };
  return {grid({{"tp", p.tp}, {"cp", p.cp}, {"ep", 1}, {"dp", p.dp}, {"pp", p.pp}}),
          grid({{"tp", p.etp}, {"cp", 1}, {"ep", p.ep}, {"dp", p.edp()}, {"pp", p.pp}})};
}

}  // namespace moesim::models::testing

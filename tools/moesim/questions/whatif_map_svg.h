// A map of the fastest dispatchers as an SVG picture.
#pragma once

#include <string>

#include "tools/moesim/questions/whatif_map.h"

namespace moesim::tools {

// Returns an SVG document: a cell per scenario in the colour of its fastest dispatcher, stronger for a larger
// lead over the second; hatched where the winner is unsure, grey where there is no forecast. Values grow to
// the right and upwards. Hovering over a cell shows its times.
std::string map_svg(const WinnerMap& map, const std::string& title);

// "mixtral-8x7b on dgx-h100x4, one MoE layer".
std::string title_of(const Base& base);

// Formats a value on an axis in its usual unit.
std::string label_of(const ScenarioPath& path, const PathValue& value);

}  // namespace moesim::tools

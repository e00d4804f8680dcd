// A map of the fastest dispatchers as a picture.
#pragma once

#include <string>

#include "tools/moesim/questions/whatif_map.h"

namespace moesim::tools {

// An SVG document: a cell per scenario in the colour of its fastest dispatcher, the stronger the further the
// second is behind; hatched where the winner is unsure, grey where there is no forecast. Values grow to the
// right and upwards. Hovering over a cell shows its times.
std::string map_svg(const WinnerMap& map, const std::string& title);

// "mixtral-8x7b on dgx-h100x4, one MoE layer".
std::string title_of(const Base& base);

// A value on an axis, in the unit that people use.
std::string label_of(const ScenarioPath& path, const PathValue& value);

}  // namespace moesim::tools

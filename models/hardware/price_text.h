// Parses prices as people write them.
#pragma once

#include <string>

#include "models/hardware/rental.h"

namespace moesim::models {

// Reads "2.10" (of a GPU), "h100=2.10,b200=4" by machine or profile, JSON, or the path of a JSON file.
// Throws InputError.
PriceTable parse_prices(const std::string& text, const PriceTable::Keys& keys = PriceTable::kHours);

}  // namespace moesim::models

// Built-in rental prices and power of GPUs, each with source and date (models/hardware/rental_prices.json).
// They are public list prices, not offers, and all from one provider, because price ratios between machines
// differ less over days than between providers.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "models/hardware/rental.h"

namespace moesim::models {

struct RentalList {
  struct Entry {
    double value = 0;
    std::string source, read;  // "2026-09-20"; empty for a data sheet
  };
  std::map<std::string, Entry, std::less<>> gpu_hour;  // by profile
  std::map<std::string, Entry, std::less<>> watts;     // maximum power of a GPU's board, by profile
  // Maximum power of a node per GPU, by profile; without a data sheet of a node, scaled as that of DGX H100.
  std::map<std::string, Entry, std::less<>> node_watts;

  // Returns the built-in list.
  static const RentalList& shipped();
  PriceTable prices() const;
  // Returns the maximum power of a node per GPU; 0: unknown.
  double node_watts_of(std::string_view profile) const;
};

// Parses prices as people write them.

// Reads "2.10" (of a GPU), "h100=2.10,b200=4" by machine or profile, JSON, or the path of a JSON file.
// Throws InputError.
PriceTable parse_prices(const std::string& text, const PriceTable::Keys& keys = PriceTable::kHours);

}  // namespace moesim::models

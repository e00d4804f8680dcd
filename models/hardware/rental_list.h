// Rental prices and power of GPUs that ship with moesim, each with where it was read and when
// (models/hardware/rental_prices.json). They are public list prices and no offer, all of one provider,
// because what one machine costs more than another differs less between days than between providers.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "models/hardware/rental.h"

namespace moesim::models {

struct RentalList {
  struct Entry {
    double value = 0;
    std::string source, read;  // "2026-09-20"; of a data sheet: empty
  };
  std::map<std::string, Entry, std::less<>> gpu_hour;  // by profile
  std::map<std::string, Entry, std::less<>> watts;     // of a GPU's board at most, by profile
  // Of a node at most, a GPU; where no data sheet of a node is known, in the proportion of DGX H100's.
  std::map<std::string, Entry, std::less<>> node_watts;

  // The list that is compiled in.
  static const RentalList& shipped();
  PriceTable prices() const;
  // Of a node, a GPU. 0: nobody says.
  double node_watts_of(std::string_view profile) const;
};

}  // namespace moesim::models

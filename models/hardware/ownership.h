// What a machine costs an hour, rented or bought: its price over the years that it serves, its place, its
// power.
#pragma once

#include <cstdint>
#include <string>

#include "models/hardware/rental.h"

namespace moesim::models {

struct Cluster;

// What somebody said of buying the machine. Numbers of 0 are those that nobody said.
struct Ownership {
  // Of a GPU with its share of server, network and storage, as clusters are compared; or of a whole node.
  PriceTable buy;
  double years = 0;       // that it serves; 0: kYears
  double kwh = 0;         // price of a kWh: of what is bought; where nothing is, beside the rent
  double pue = 0;         // energy of the building over that of the machines; 0: kPue
  double hosting = 0;     // a month of a kW of the nodes' power in a data center
  double idle_share = 0;  // of those years without a training: the others pay for it

  // As Amazon writes servers off since 2025 (10-K of 2024; Meta takes 5.5, Alphabet and Microsoft 6).
  static constexpr double kYears = 5;
  // The mean of data centers (Uptime Institute, Global Data Center Survey 2024).
  static constexpr double kPue = 1.56;
  static constexpr PriceTable::Keys kKeys{"gpu", "node", "ownership.buy"};

  double years_used() const { return years > 0 ? years : kYears; }
  double pue_used() const { return pue > 0 ? pue : kPue; }
  // Throws InputError for what has nothing to say: years, hosting and idle_share of a machine that nobody
  // buys, a PUE without a price of energy, that price beside no other; and for two currencies.
  void check_beside(const PriceTable& rent) const;
};

// An hour of GPUs, by what is paid for.
struct HourCost {
  bool bought = false;
  double rent = 0;                  // paid where it is not bought; else what it would be; 0: nobody says
  double capital = 0, hosting = 0;  // of an hour with work, over which idle hours are spread
  double power = 0;                 // of all that the nodes take at most, cooling included
  double total() const { return (bought ? capital + hosting : rent) + power; }
  double of(double seconds) const { return total() * seconds / 3600; }
  // Of one of `gpus` GPUs.
  HourCost each(double gpus) const;
  // What buying the GPUs takes at once; 0: rented.
  double purchase = 0;
  // The share of its years from which on a bought machine has to work to cost less than its rent; above 1:
  // the rent is less always; 0: nobody says the rent.
  double pays_from = 0;
};

// Of `gpus` GPUs of a cluster, which is bought where a price to buy it is known. Throws InputError for a
// machine without any price, and for one whose power nobody says where it is paid for.
HourCost hour_cost(const PriceTable& rent, const Ownership& own, const Cluster& cluster, std::int64_t gpus);

// Whether the cluster has a price.
bool has_price(const PriceTable& rent, const Ownership& own, const Cluster& cluster);
// What all of it is counted in.
const std::string& currency_of(const PriceTable& rent, const Ownership& own);

}  // namespace moesim::models

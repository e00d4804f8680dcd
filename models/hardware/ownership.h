// Cost of an hour of a machine, rented or bought: its price over its years of service, hosting, power.
#pragma once

#include <cstdint>
#include <string>

#include "models/hardware/rental.h"

namespace moesim::models {

struct Cluster;

// Terms of buying a machine, as the user gave them; 0: not given.
struct Ownership {
  // Price of a GPU with its share of server, network and storage, or of a whole node.
  PriceTable buy;
  double years = 0;       // of service; 0: kYears
  double kwh = 0;         // price of a kWh; part of a bought machine's cost, or added to the rent
  double pue = 0;         // energy of the building over that of the machines; 0: kPue
  double hosting = 0;     // price of a kW of the nodes' power in a data center for a month
  double idle_share = 0;  // share of the years without work; the rest pays for it

  // Amazon's depreciation of servers since 2025 (10-K of 2024; Meta takes 5.5, Alphabet and Microsoft 6).
  static constexpr double kYears = 5;
  // The mean of data centers (Uptime Institute, Global Data Center Survey 2024).
  static constexpr double kPue = 1.56;
  static constexpr PriceTable::Keys kKeys{"gpu", "node", "ownership.buy"};

  double years_used() const { return years > 0 ? years : kYears; }
  double pue_used() const { return pue > 0 ? pue : kPue; }
  // Throws InputError for terms without effect (years, hosting and idle_share of a machine that is not
  // bought, a PUE without a price of energy, that price without a rent or a purchase) and for two currencies.
  void check_beside(const PriceTable& rent) const;
};

// Cost of an hour of GPUs by its parts.
struct HourCost {
  bool bought = false;
  double rent = 0;                  // paid unless the machine is bought, then for comparison; 0: unknown
  double capital = 0, hosting = 0;  // for an hour with work, idle hours included
  double power = 0;                 // of the nodes' maximum power, cooling included
  double total() const { return (bought ? capital + hosting : rent) + power; }
  double of(double seconds) const { return total() * seconds / 3600; }
  // Returns the cost of one of `gpus` GPUs.
  HourCost each(double gpus) const;
  // Price of buying the GPUs; 0: rented.
  double purchase = 0;
  // Share of its years that a bought machine has to work to cost less than its rent; above 1: the rent is
  // always less; 0: the rent is unknown.
  double pays_from = 0;
};

// Returns the cost of an hour of `gpus` GPUs of a cluster, bought where `own` has a price for it, else
// rented. Throws InputError for a machine without any price, and for one of unknown power where power is paid
// for.
HourCost hour_cost(const PriceTable& rent, const Ownership& own, const Cluster& cluster, std::int64_t gpus);

// Returns whether the cluster has a price.
bool has_price(const PriceTable& rent, const Ownership& own, const Cluster& cluster);
// Returns the currency of all prices.
const std::string& currency_of(const PriceTable& rent, const Ownership& own);

}  // namespace moesim::models

#include "models/hardware/ownership.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <tuple>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/hardware/rental_list.h"

namespace moesim::models {

namespace {

constexpr double kHoursOfYear = 8766, kMonthsOfYear = 12;

// kW of the nodes of so many GPUs.
double power_of(const Cluster& cluster, std::int64_t gpus) {
  const std::string name = cluster.profile.name();
  const double watts = RentalList::shipped().node_watts_of(name);
  if (watts == 0)
    throw InputError(fmt::format(
        "prices: found --kwh or --hosting with {}, expected neither: the power of its node is not published",
        name));
  return watts * static_cast<double>(gpus) * 1e-3;
}

}  // namespace

void Ownership::check_beside(const PriceTable& rent) const {
  for (const auto& [name, flag, value] : {std::tuple{"years", "--years", years},
                                          {"hosting", "--hosting", hosting},
                                          {"idle_share", "--idle-share", idle_share}})
    if (value > 0 && !buy.given())
      throw InputError(fmt::format(
          "ownership.{}: found {} ({}) of a machine that is not bought, expected it with --buy PRICE", name,
          value, flag));
  if (pue > 0 && kwh == 0)
    throw InputError(fmt::format(
        "ownership.pue: found {} (--pue) without a price of energy, expected it with --kwh PRICE", pue));
  if (kwh > 0 && !buy.given() && (!rent.given() || rent.counts_gpu_hours()))
    throw InputError(
        fmt::format("ownership.kwh: found {} (--kwh) without a price of the machine, expected it with "
                    "--prices or --buy",
                    kwh));
  if (buy.given() && rent.given() && !rent.counts_gpu_hours() && buy.currency != rent.currency)
    throw InputError(fmt::format("ownership.buy: found {} beside prices in {}, expected one currency",
                                 buy.currency, rent.currency));
}

HourCost hour_cost(const PriceTable& rent, const Ownership& own, const Cluster& cluster, std::int64_t gpus) {
  const std::string name = cluster.profile.name();
  HourCost hour;
  hour.bought = own.buy.has(name);
  if (!hour.bought || (rent.has(name) && !rent.counts_gpu_hours()))
    hour.rent = rent.per_hour(name, gpus, cluster.gpus_per_node);
  // The rent has its power in it where other machines are bought.
  if (own.kwh > 0 && (hour.bought || !own.buy.given()))
    hour.power = power_of(cluster, gpus) * own.pue_used() * own.kwh;
  if (!hour.bought) return hour;
  hour.purchase = own.buy.per_hour(name, gpus, cluster.gpus_per_node);
  hour.capital = hour.purchase / (own.years_used() * kHoursOfYear);
  if (own.hosting > 0) hour.hosting = power_of(cluster, gpus) * own.hosting * kMonthsOfYear / kHoursOfYear;
  if (hour.rent > 0)
    hour.pays_from = hour.rent > hour.power ? (hour.capital + hour.hosting) / (hour.rent - hour.power)
                                            : std::numeric_limits<double>::infinity();
  hour.capital /= 1 - own.idle_share;
  hour.hosting /= 1 - own.idle_share;
  return hour;
}

HourCost HourCost::each(double gpus) const {
  HourCost one = *this;
  for (double* part : {&one.rent, &one.capital, &one.hosting, &one.power, &one.purchase}) *part /= gpus;
  return one;
}

bool has_price(const PriceTable& rent, const Ownership& own, const Cluster& cluster) {
  return rent.has(cluster.profile.name()) || own.buy.has(cluster.profile.name());
}

const std::string& currency_of(const PriceTable& rent, const Ownership& own) {
  return own.buy.given() ? own.buy.currency : rent.currency;
}

}  // namespace moesim::models

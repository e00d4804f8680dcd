#include "models/hardware/rental.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/profile.h"

namespace moesim::models {

namespace {

constexpr double kLeast = 1e-6, kMost = 1e9;

}  // namespace

PriceTable PriceTable::parse(const JsonNode& node, const Keys& keys) {
  JsonObject object(node);
  PriceTable table;
  const auto gpu = object.find(keys.gpu), whole = object.find(keys.node);
  if (gpu && whole) whole->fail(fmt::format("both {} and {}", keys.gpu, keys.node), "one of them");
  if (!gpu && !whole) node.fail("no price", fmt::format("{} or {}", keys.gpu, keys.node));
  const JsonNode& price = gpu ? *gpu : *whole;
  table.per_node = !gpu;
  if (price.is_object()) {
    for (const std::string& name : price.keys()) {
      const JsonNode value = *price.find(name);
      bool known = false;
      for (const std::string& profile : Profile::names()) known = known || profile == name;
      if (!known)
        value.fail("a price of " + in_quotes(name),
                   "one of the profiles of `moesim list profiles`" + did_you_mean(name, Profile::names()));
      table.by_profile[name] = value.number(kLeast, kMost);
    }
    if (table.by_profile.empty()) price.fail("an empty table", "a price for each profile");
  } else {
    table.price = price.number(kLeast, kMost);
  }
  table.currency = object.string("currency", table.currency);
  object.finish();
  return table;
}

nlohmann::ordered_json PriceTable::to_json(const Keys& keys) const {
  nlohmann::ordered_json table;
  if (!given()) return table;
  table[per_node ? keys.node : keys.gpu] =
      by_profile.empty() ? nlohmann::ordered_json(price) : nlohmann::ordered_json(by_profile);
  table["currency"] = currency;
  return table;
}

PriceTable PriceTable::gpu_hours() {
  PriceTable table;
  table.price = 1;
  table.currency = kGpuHours;
  return table;
}

double PriceTable::per_hour(std::string_view profile, std::int64_t gpus, int gpus_per_node) const {
  double each = price;
  if (const auto found = by_profile.find(profile); found != by_profile.end()) each = found->second;
  if (each <= 0) throw InputError(fmt::format("prices: found none for {}, expected one", in_quotes(profile)));
  const std::int64_t units = per_node ? (gpus + gpus_per_node - 1) / gpus_per_node : gpus;
  return each * static_cast<double>(units);
}

}  // namespace moesim::models

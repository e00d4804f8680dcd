// Rental prices of GPUs: converts seconds of a plan to money.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace moesim {
class JsonNode;
}

namespace moesim::models {

// {"gpu_hour": 2.5} or {"node_hour": 20}; either is a number, or an object of numbers by profile
// ({"h100-sxm": 2.5, "gb200": 6}), so that a change of the GPU changes the price. "currency" is text. Under
// other keys, the price of something else than an hour.
struct PriceTable {
  struct Keys {
    const char *gpu, *node, *whole;  // the last for messages
  };
  static constexpr Keys kHours{"gpu_hour", "node_hour", "prices"};

  bool per_node = false;  // whole nodes are paid even where a plan leaves GPUs of the last one idle
  double price = 0;       // for every profile that by_profile does not name; 0: not given
  std::map<std::string, double, std::less<>> by_profile;
  std::string currency = "USD";

  bool given() const { return price > 0 || !by_profile.empty(); }
  bool has(std::string_view profile) const { return price > 0 || by_profile.contains(profile); }
  // Returns a table that prices a GPU-hour at 1, where no price is known.
  static PriceTable gpu_hours();
  bool counts_gpu_hours() const { return currency == kGpuHours; }
  static constexpr std::string_view kGpuHours = "GPU-hours";
  // Throws InputError for unknown keys, both or none of the two prices, and prices that are not positive.
  static PriceTable parse(const JsonNode& node, const Keys& keys = kHours);
  // Returns the object that parse() reads back; null where nothing is given.
  nlohmann::ordered_json to_json(const Keys& keys = kHours) const;

  // Returns the price of an hour of `gpus` GPUs of a profile on nodes of `gpus_per_node`. Throws InputError
  // for a profile without a price.
  double per_hour(std::string_view profile, std::int64_t gpus, int gpus_per_node) const;
};

}  // namespace moesim::models

#include "models/hardware/rental_list.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/json_reader.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/profile.h"

namespace moesim::models {

namespace {

void read_entries(const JsonNode& node, const char* key,
                  std::map<std::string, RentalList::Entry, std::less<>>& to) {
  for (const std::string& name : node.keys()) {
    JsonObject object(*node.find(name));
    RentalList::Entry& entry = to[name];
    entry.value = object.at(key).number(1e-6, 1e9);
    if (const auto gpus = object.find("gpus")) entry.value /= gpus->number(1, 1024);
    entry.source = object.at("source").string();
    entry.read = object.string("read", "");
    object.finish();
  }
}

}  // namespace

const RentalList& RentalList::shipped() {
  static const RentalList list = [] {
    RentalList all;
    JsonObject object(JsonNode::parse(embedded_table("rental_prices"), "rental_prices.json"));
    check(object.string("currency", "") == "USD", "the currency that prices() says");
    object.string("kind", "");
    read_entries(object.at("gpu_hour"), "price", all.gpu_hour);
    read_entries(object.at("watts"), "watts", all.watts);
    read_entries(object.at("node_watts"), "watts", all.node_watts);
    object.finish();
    const char* known = "h100-sxm";
    const double beside = all.node_watts.at(known).value / all.watts.at(known).value;
    for (const auto& [profile, board] : all.watts)
      all.node_watts.try_emplace(
          profile, RentalList::Entry{board.value * beside,
                                     fmt::format("{:g} W of the board x {:.2f}, as of a node of {}",
                                                 board.value, beside, known),
                                     ""});
    return all;
  }();
  return list;
}

PriceTable RentalList::prices() const {
  PriceTable table;
  for (const auto& [profile, entry] : gpu_hour) table.by_profile[profile] = entry.value;
  return table;
}

double RentalList::node_watts_of(std::string_view profile) const {
  const auto found = node_watts.find(profile);
  return found == node_watts.end() ? 0 : found->second.value;
}

}  // namespace moesim::models

#include "models/hardware/rental_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"
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

namespace {

constexpr double kLeast = 1e-6, kMost = 1e9;

}  // namespace

PriceTable parse_prices(const std::string& text, const PriceTable::Keys& keys) {
  if (text.starts_with('{')) return PriceTable::parse(JsonNode::parse(text, keys.whole), keys);
  PriceTable table;
  const auto price_of = [&](std::string_view amount) {
    if (amount.starts_with('$')) amount.remove_prefix(1);
    const auto value = parse_number(trim(amount));
    if (!value || !(*value >= kLeast && *value <= kMost))
      throw InputError(
          fmt::format("{}: found {}, expected the price of a GPU such as 2.10, h100=2.10,b200=4, or JSON",
                      keys.whole, in_quotes(text)));
    return *value;
  };
  if (text.find('=') == std::string::npos) {
    if (is_file(text)) return PriceTable::parse(JsonNode::read(text), keys);
    table.price = price_of(text);
    return table;
  }
  for (const std::string_view one : split(text, ',')) {
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string name(trim(one.substr(0, equals)));
    const double price = price_of(one.substr(std::min(one.size(), equals + 1)));
    table.by_profile[Cluster::load(name).profile.name()] = price;
  }
  return table;
}

}  // namespace moesim::models

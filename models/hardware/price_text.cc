#include "models/hardware/price_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/hardware/cluster.h"

namespace moesim::models {

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

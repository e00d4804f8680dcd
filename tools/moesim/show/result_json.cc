#include "tools/moesim/show/result_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster_fabric.h"
#include "models/hardware/estimate.h"

namespace moesim::tools {

nlohmann::ordered_json estimate_json(const models::Estimate& e) {
  return {{"value", e.value}, {"low", e.low}, {"high", e.high}};
}

nlohmann::ordered_json link_json(const models::LinkLoad& link) {
  return {{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}, {"utilisation", link.utilisation}};
}

std::string microseconds(double us) { return fmt::format("{:.1f}", us); }

}  // namespace moesim::tools

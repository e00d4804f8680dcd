#include "tools/moesim/show/result_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/hardware/cluster_fabric.h"
#include "models/hardware/estimate.h"
#include "models/workload/parallel.h"

namespace moesim::tools {

nlohmann::ordered_json estimate_json(const models::Estimate& e) {
  return {{"value", e.value}, {"low", e.low}, {"high", e.high}};
}

nlohmann::ordered_json parallel_json(const models::Parallel& p) {
  return {{"tp", p.tp},
          {"cp", p.cp},
          {"ep", p.ep},
          {"etp", p.etp},
          {"dp", p.dp},
          {"pp", p.pp},
          {"vpp", p.vpp},
          {"microbatches", p.microbatches},
          {"micro_batch", p.micro_batch},
          {"seq", p.seq}};
}

nlohmann::ordered_json link_json(const models::LinkLoad& link) {
  return {{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}, {"utilisation", link.utilisation}};
}

std::string microseconds(double us) { return fmt::format("{:.1f}", us); }

}  // namespace moesim::tools

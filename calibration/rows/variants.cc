#include "calibration/rows/variants.h"

#include <map>
#include <tuple>

#include "base/input_error.h"
#include "calibration/rows/devices.h"
#include "models/hardware/dtype.h"

namespace moesim::calibration {

models::DType dtype_of(const std::string& text) {
  return models::dtype_named(text.substr(0, text.find(' ')));
}

bool known_dtype(const std::string& text) {
  try {
    dtype_of(text);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::string collective_key(sim::CollectiveOp op, bool network) {
  return "collective/" + std::string(sim::name(op)) + (network ? "/network" : "/scaleup");
}

bool integer_reduction(const CollectiveRow& row) {
  return (row.op == sim::CollectiveOp::all_reduce || row.op == sim::CollectiveOp::reduce_scatter) &&
         row.datatype.starts_with("int");
}

bool inside_domain(const CollectiveRow& row, const models::Profile& profile) {
  return !shape_of(row, profile.device()).across_domains();
}

models::GroupShape shape_of(const CollectiveRow& row, const models::DeviceLimits& device) {
  if (row.nodes == 1) return models::GroupShape::uniform(1, row.ranks());
  if (device.scaleup_domain <= device.gpus_per_node)
    return models::GroupShape::uniform(row.nodes, row.gpus_per_node);
  int racks = (row.ranks() + device.scaleup_domain - 1) / device.scaleup_domain;
  while (row.nodes % racks != 0) ++racks;
  models::GroupShape shape = models::GroupShape::uniform(racks, row.ranks() / racks);
  shape.nodes = row.nodes;
  shape.max_per_node = row.gpus_per_node;
  return shape;
}

std::vector<CollectiveRow> fastest_algorithms(const std::vector<CollectiveRow>& rows) {
  std::map<std::tuple<std::string, int, int, double>, CollectiveRow> forced;
  std::vector<CollectiveRow> result;
  for (const CollectiveRow& row : rows) {
    const auto at = row.origin.source.find("; algorithm ");
    if (at == std::string::npos) {
      result.push_back(row);
      continue;
    }
    const std::tuple key(row.origin.source.substr(0, at), row.nodes, row.gpus_per_node, row.bytes);
    const auto [entry, added] = forced.try_emplace(key, row);
    if (!added && row.seconds < entry->second.seconds) entry->second = row;
  }
  for (const auto& [key, row] : forced) result.push_back(row);
  return result;
}

std::vector<std::string> law_keys(const CollectiveRow& row, bool network) {
  const std::string key = collective_key(row.op, network);
  if (network) {
    const Machine* machine = machine_of(row.origin);
    if (machine) return {key + "@" + std::string(machine->name), key};
    return {key};
  }
  if (integer_reduction(row))
    return {key + "@" + row.library + ",int", key + "@int", key + "@" + row.library, key};
  return {key + "@" + row.library, key};
}

std::vector<std::string> law_keys(const GemmRow& row) {
  const std::string key = "gemm/" + std::string(models::name_of(dtype_of(row.dtype)));
  if (row.sustained) return {key + "@sustained", key};
  return {key + "@" + row.kernel, key};
}

std::vector<std::string> law_keys(const FfnRow& row) {
  const std::string key = "ffn/" + std::string(models::name_of(dtype_of(row.dtype)));
  return {key + "@" + row.kernel, key};
}

}  // namespace moesim::calibration

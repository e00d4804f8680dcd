// A torch DeviceMesh as a plan.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

constexpr double kMostRanks = 1 << 30;

constexpr std::array<std::pair<const char*, std::int64_t DeviceMesh::*>, 6> kAxes{
    {{"pp", &DeviceMesh::pp},
     {"replicate", &DeviceMesh::replicate},
     {"shard", &DeviceMesh::shard},
     {"cp", &DeviceMesh::cp},
     {"ep", &DeviceMesh::ep},
     {"tp", &DeviceMesh::tp}}};

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  names.reserve(kAxes.size());
  for (const auto& [name, size] : kAxes) names.emplace_back(name);
  return names;
}

std::int64_t& size_of(DeviceMesh& mesh, const std::string& name) {
  for (const auto& [axis, size] : kAxes)
    if (name == axis) return mesh.*size;
  throw InputError(fmt::format("mesh: found axis {}, expected one of {}{}", in_quotes(name),
                               join(axis_names(), ", "), did_you_mean(name, axis_names())));
}

}  // namespace

DeviceMesh DeviceMesh::parse(const JsonNode& node) {
  DeviceMesh mesh;
  mesh.given = true;
  if (!node.is_string()) {
    JsonObject object(node);
    for (const auto& [name, size] : kAxes)
      mesh.*size = object.integer(name, 1, 1, static_cast<std::int64_t>(kMostRanks));
    object.finish();
    return mesh;
  }
  const std::string text = node.string();
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      throw InputError(fmt::format("mesh: found {}, expected axis=size, such as replicate=2,shard=2,tp=2",
                                   in_quotes(part)));
    std::int64_t& size = size_of(mesh, std::string(trim(part.substr(0, equals))));
    const auto number = parse_int(std::string(trim(part.substr(equals + 1))));
    if (!number || *number < 1 || static_cast<double>(*number) > kMostRanks)
      throw InputError(fmt::format("mesh: found {}, expected a size of at least 1", in_quotes(part)));
    size = *number;
  }
  return mesh;
}

nlohmann::ordered_json DeviceMesh::to_json() const {
  if (!given) return {};
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, size] : kAxes)
    if (this->*size > 1) object[name] = this->*size;
  return object;
}

RankGrid DeviceMesh::grid() const {
  std::vector<Axis> axes;
  for (const auto& [name, size] : kAxes) {
    const std::string axis = name;
    if (this->*size > 1 || axis == "replicate" || axis == "shard" || axis == "tp")
      axes.push_back({axis, this->*size});
  }
  return RankGrid::fastest_last(std::move(axes));
}

}  // namespace moesim::models

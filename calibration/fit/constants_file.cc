#include "calibration/fit/constants_file.h"

#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/text.h"
#include "calibration/rows/devices.h"

namespace moesim::calibration {
namespace {

constexpr std::string_view kSchema = "moesim.constants/1";
constexpr double kHuge = 1e18;
constexpr std::string_view kUnderCompute = "communication_under_compute";

std::string stated(JsonObject& object, const char* key) {
  const JsonNode node = object.at(key);
  std::string text = node.string();
  if (trim(text).empty()) node.fail("an empty " + std::string(key), "a text");
  return text;
}

}  // namespace

ConstantsByProfile parse_constants(std::string_view json, const std::string& file) {
  JsonObject object(JsonNode::parse(json, file));
  const JsonNode schema = object.at("schema");
  if (schema.string() != kSchema) schema.fail(schema.describe(), "'" + std::string(kSchema) + "'");
  const JsonNode profiles = object.at("profiles");
  if (!profiles.is_object()) profiles.fail(profiles.describe(), "an object");
  ConstantsByProfile result;
  for (const std::string& name : profiles.keys()) {
    const JsonNode list = *profiles.find(name);
    if (!find_device(name)) list.fail("the profile " + in_quotes(name), "a GPU that profiles are fitted for");
    if (!list.is_object()) list.fail(list.describe(), "an object");
    for (const std::string& key : list.keys()) {
      JsonObject inner(*list.find(key));
      models::Constant constant;
      constant.value = inner.at("value").number(-kHuge, kHuge);
      constant.sigma = inner.number("sigma", 0, 0, kHuge);
      constant.unit = stated(inner, "unit");
      constant.source = stated(inner, "source");
      inner.finish();
      result[name][key] = std::move(constant);
    }
  }
  object.finish();
  return result;
}

void add_constants(models::Profile& profile, const ConstantsByProfile& constants) {
  const auto found = constants.find(profile.name());
  if (found == constants.end()) return;
  for (const auto& [key, constant] : found->second) {
    if (key == kUnderCompute) {
      profile.overlap().communication_under_compute = constant.value;
      std::vector<std::string> gaps = profile.gaps();
      std::erase_if(gaps, [](const std::string& gap) { return gap.starts_with("overlap:"); });
      gaps.push_back("overlap: communication under computing from " + constant.source +
                     "; computing under communication was not measured, 1 stands for it");
      profile.describe(profile.name(), profile.gpu(), profile.provenance(), gaps);
    } else if (!profile.find_constant(key)) {
      profile.set_constant(key, constant);
    }
  }
}

}  // namespace moesim::calibration

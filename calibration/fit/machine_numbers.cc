#include "calibration/fit/machine_numbers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/statistics.h"
#include "base/text.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"

namespace moesim::calibration {

namespace {

template <class Profile>
auto number_in(Profile& profile, const std::string& what) -> decltype(&profile.launch().kernel) {
  if (what == "launch") return &profile.launch().kernel;
  if (what == "host_sync") return &profile.launch().host_sync;
  if (what == "smallest_kernel") return &profile.launch().kernel_floor;
  if (what == "d2h_copy") return &profile.launch().d2h_copy;
  if (what == "compute_under_communication") return &profile.overlap().compute_under_communication;
  return nullptr;
}

}  // namespace

std::optional<double> machine_number(const models::Profile& profile, const std::string& what) {
  const double* number = number_in(profile, what);
  return number ? std::optional(*number) : std::nullopt;
}

std::vector<MachineNumber> set_machine_numbers(models::Profile& profile,
                                               const std::vector<Measurements::MachineRow>& rows) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& row : rows) values[row.what].push_back(row.value);
  std::vector<MachineNumber> set;
  for (auto& [what, list] : values) {
    double* number = number_in(profile, what);
    if (!number) continue;
    double after = median(list);
    // Computing is never faster because of other work.
    if (what == "compute_under_communication") after = std::max(1.0, after);
    set.push_back({what, *number, after, list.size()});
    *number = after;
  }
  return set;
}

namespace {

constexpr double kMostlyLaunch = 0.5;  // largest share of a call that may be transfer

}  // namespace

void fit_call_overheads(models::Profile& profile, const Measurements& measurements) {
  std::map<std::string, std::vector<double>> overheads;
  std::string source;
  for (const CollectiveRow& row : measurements.exposed_calls) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (!device || device != device_of_gpu(profile.gpu()) || !inside_domain(row, profile)) continue;
    if (!profile.find(collective_key(row.op, false))) continue;
    const models::CollectiveModel model(cluster_of(profile, nullptr, 1, row.gpus_per_node));
    const double transfer =
        model.seconds(row.op, models::GroupShape::uniform(1, row.ranks()), call_bytes(row));
    if (transfer > kMostlyLaunch * row.seconds) continue;
    overheads[std::string(sim::name(row.op))].push_back((row.seconds - transfer) * 1e6);
    source = row.origin.source.substr(0, row.origin.source.find(','));
  }
  for (auto& [op, values] : overheads) {
    const double middle = median(values);
    double squares = 0;
    for (const double value : values) squares += (value - middle) * (value - middle);
    const auto tenths = [](double value) { return std::round(value * 10) / 10; };
    profile.set_constant(
        "exposed_call/" + op,
        {tenths(middle), tenths(std::sqrt(squares / static_cast<double>(values.size()))), "us",
         std::to_string(values.size()) + " kinds of calls of " + source +
             ", recorded less the transfer by the law of this profile"});
  }
}

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

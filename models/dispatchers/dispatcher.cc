#include "models/dispatchers/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/input_error.h"
#include "base/text.h"
#include "models/dispatchers/parts/balanced.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

std::vector<DispatcherSpec> every_dispatcher() {
  std::vector<DispatcherSpec> specs;
  for (const DispatcherEntry& entry : dispatcher_registry()) {
    DispatcherSpec spec;
    spec.name = std::string(entry.name);
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace

DispatcherOptions::DispatcherOptions(std::string dispatcher,
                                     std::map<std::string, std::string, std::less<>> values,
                                     std::string origin)
    : dispatcher_(std::move(dispatcher)), origin_(std::move(origin)), values_(std::move(values)) {}

void DispatcherOptions::fail(const std::string& message) const {
  throw InputError(fmt::format("{}: dispatcher {}: {}", origin_, dispatcher_, message));
}

bool DispatcherOptions::given(std::string_view key) const { return values_.find(key) != values_.end(); }

bool DispatcherOptions::flag(std::string_view key, bool fallback) {
  static constexpr std::array<std::string_view, 4> kYes{"true", "1", "yes", "on"},
      kNo{"false", "0", "no", "off"};
  known_.emplace_back(key);
  const auto value = values_.find(key);
  if (value == values_.end()) return fallback;
  if (std::find(kYes.begin(), kYes.end(), value->second) != kYes.end()) return true;
  if (std::find(kNo.begin(), kNo.end(), value->second) != kNo.end()) return false;
  fail(fmt::format("found {}={}, expected true or false", key, in_quotes(value->second)));
}

std::int64_t DispatcherOptions::integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                                        std::int64_t high) {
  known_.emplace_back(key);
  const auto value = values_.find(key);
  if (value == values_.end()) return fallback;
  const std::optional<long long> number = parse_int(value->second);
  if (!number || *number < low || *number > high)
    fail(fmt::format("found {}={}, expected an integer from {} to {}", key, in_quotes(value->second), low,
                     high));
  return *number;
}

double DispatcherOptions::number(std::string_view key, double fallback, double low, double high) {
  known_.emplace_back(key);
  const auto value = values_.find(key);
  if (value == values_.end()) return fallback;
  const std::optional<double> number = parse_number(value->second);
  if (!number || *number < low || *number > high)
    fail(fmt::format("found {}={}, expected a number from {} to {}", key, in_quotes(value->second), low,
                     high));
  return *number;
}

std::size_t DispatcherOptions::choice(std::string_view key, std::size_t fallback,
                                      std::span<const std::string_view> choices) {
  known_.emplace_back(key);
  const auto value = values_.find(key);
  if (value == values_.end()) return fallback;
  const auto found = std::find(choices.begin(), choices.end(), value->second);
  if (found == choices.end()) {
    const std::vector<std::string> names(choices.begin(), choices.end());
    fail(fmt::format("found {}={}, expected {}{}", key, in_quotes(value->second), join(names, ", "),
                     did_you_mean(value->second, names)));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

void DispatcherOptions::finish() const {
  for (const auto& [key, value] : values_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    if (known_.empty()) fail(fmt::format("found option {}, expected none", in_quotes(key)));
    fail(fmt::format("found option {}, expected one of {}{}", in_quotes(key), join(known_, ", "),
                     did_you_mean(key, known_)));
  }
}

std::optional<std::string> rule_against(const Dispatcher& dispatcher, const MoeLayer& layer) {
  if (layer.experts() % layer.ep != 0 && !dispatcher.splits_experts())
    return fmt::format("ep {} must divide the {} experts: a rank holds whole experts", layer.ep,
                       layer.experts());
  return dispatcher.illegal(layer);
}

std::vector<DispatcherSpec> parse_dispatchers(const std::string& text) {
  if (trim(text) == "all") return every_dispatcher();
  std::vector<DispatcherSpec> specs = DispatcherSpec::parse_list(text);
  for (const DispatcherSpec& spec : specs) make_dispatcher(spec);  // reports a mistake before anything runs
  return specs;
}

void name_dispatchers(Scenario& scenario) {
  if (scenario.model.hidden > 0 && scenario.model.experts == 0) return;  // resolve() reports errors
  if (scenario.dispatchers.size() == 1 && scenario.dispatchers.front().name == "all")
    scenario.dispatchers = every_dispatcher();
  for (const DispatcherSpec& spec : scenario.dispatchers) make_dispatcher(spec);
  if (scenario.job_dispatcher.empty()) return;
  DispatcherSpec own = DispatcherSpec::parse(scenario.job_dispatcher);
  own.origin = "job.dispatcher";
  make_dispatcher(own);
}

std::unique_ptr<Dispatcher> make_dispatcher(const DispatcherSpec& spec) {
  const auto registry = dispatcher_registry();
  const auto entry = std::find_if(registry.begin(), registry.end(),
                                  [&](const DispatcherEntry& e) { return e.name == spec.name; });
  if (entry == registry.end()) {
    std::vector<std::string> names;
    for (const DispatcherEntry& e : registry) names.emplace_back(e.name);
    throw InputError(fmt::format("{}: found dispatcher {}, expected one of {}{}", spec.origin,
                                 in_quotes(spec.name), join(names, ", "), did_you_mean(spec.name, names)));
  }
  DispatcherOptions options(spec.name, spec.options, spec.origin);
  std::unique_ptr<Dispatcher> dispatcher = balanced(entry->make(options), options);
  options.finish();
  return dispatcher;
}

}  // namespace moesim::models

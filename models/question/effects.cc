#include "models/question/effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/input_error.h"
#include "models/workload/fields.h"
#include "models/workload/without_effect.h"

namespace moesim::models {

namespace {

// Returns the origin of a setting, or of the short form that contains it ("training.overlap").
Origin said_origin(const Scenario& said, std::string_view path) {
  if (const Origin* part = said.origins.find(path)) return *part;
  const std::string_view whole = path.substr(0, path.rfind('.'));
  for (const std::string_view each : {path, whole})
    if (find_field(each) && said.gave(each)) return said.origin_of(each);
  return {};
}

// Returns a resolved scenario with the settings that resolve() drops; nullopt for an impossible plan.
std::optional<Scenario> sized_as_said(const Scenario& s) {
  Scenario sized = s;
  try {
    sized.resolve();
  } catch (const InputError&) {  // answer() reports it
    return std::nullopt;
  }
  sized.training.overlap = s.training.overlap;
  for (const Field& field : scenario_fields()) {
    const std::size_t bit = index_of(field);
    if (!s.given.test(bit) || sized.given.test(bit)) continue;
    field.take(sized, s);
    sized.given.set(bit);
  }
  return sized;
}

bool is_among(const std::vector<ScenarioPath>& paths, std::string_view path) {
  return std::ranges::any_of(paths, [&](const ScenarioPath& one) {
    return path.starts_with(one.path) && (path.size() == one.path.size() || path[one.path.size()] == '.');
  });
}

}  // namespace

std::string place_of(const Origin& origin) {
  return origin.kind == Origin::Kind::kFile ? origin.where + ": " : "";
}

void check_effects(const Question& question, Resolved& resolved, const std::vector<ScenarioPath>* changed) {
  const std::optional<Scenario> sized = sized_as_said(resolved.scenario);
  if (!sized) return;
  for (const WithoutEffect& one : without_effect(*sized)) {
    if (changed && !is_among(*changed, one.path)) continue;
    const Origin origin = said_origin(question.said, one.path);
    const bool of_user =
        origin.kind == Origin::Kind::kSaid || (origin.kind == Origin::Kind::kFile && !question.job);
    if (!of_user) continue;
    if (one.cause.empty() || sized->origin_of(one.cause).kind != Origin::Kind::kSearched)
      throw InputError(place_of(origin) + one.message());
    resolved.notes.push_back(fmt::format("{}: no effect: {}", one.path, one.found));
    resolved.scenario.model.remarks.push_back(resolved.notes.back());
  }
}

}  // namespace moesim::models

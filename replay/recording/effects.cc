#include "replay/recording/effects.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/random.h"
#include "models/hardware/embedded_profiles.h"
#include "models/hardware/profile.h"

namespace moesim::replay {

namespace {

std::array<Effect, kEffects> read_shipped() {
  // The effects look into its texts.
  static const auto file = nlohmann::json::parse(models::embedded_table("effects"));
  std::array<Effect, kEffects> all;
  const nlohmann::json& list = file.at("effects");
  check(list.size() == all.size(), "effects.json has every effect");
  std::ranges::transform(list, all.begin(), [](const nlohmann::json& one) {
    const auto text = [&](const char* key) -> std::string_view {
      return one.at(key).get_ref<const std::string&>();
    };
    return Effect{text("name"), one.at("value"), one.at("sigma"), text("unit"), std::string(text("source")),
                  text("what")};
  });
  return all;
}

}  // namespace

Effects::Effects() {
  static const std::array<Effect, kEffects> shipped = read_shipped();
  list_ = shipped;
}

Effects::Effects(const models::Profile& profile) : Effects() {
  for (Effect& effect : list_)
    if (const models::Constant* own = profile.find_constant(effect.name)) {
      effect.value = own->value;
      effect.sigma = own->sigma;
      effect.source = own->source;
    }
}

Effects Effects::without(EffectKind kind) const {
  Effects other = *this;
  // A bandwidth is not a cost by itself: switched off, passes take no time.
  const bool bandwidth = kind == EffectKind::memory_bandwidth || kind == EffectKind::pipeline_bandwidth;
  other.set(kind, bandwidth ? 1e12 : 0.0);
  return other;
}

Effects Effects::draw(Random& random) const {
  Effects drawn = *this;
  for (Effect& effect : drawn.list_)
    effect.value = std::max(0.0, effect.value + effect.sigma * random.normal());
  return drawn;
}

}  // namespace moesim::replay

#include "models/workload/origin.h"

#include <algorithm>
#include <array>
#include <utility>

namespace moesim::models {

std::string_view name_of(Origin::Kind kind) {
  static constexpr std::array<std::string_view, 8> kNames{"default", "said",   "file",     "log",
                                                          "model",   "recipe", "searched", "recording"};
  return kNames[static_cast<std::size_t>(kind)];
}

const Origins::Map& Origins::all() const {
  static const Map kNone;
  return map_ ? *map_ : kNone;
}

const Origin* Origins::find(std::string_view path) const {
  const auto at = all().find(path);
  return at == all().end() ? nullptr : &at->second;
}

void Origins::set(std::string_view path, Origin origin) {
  own().insert_or_assign(std::string(path), std::move(origin));
}

void Origins::erase(std::string_view path) {
  const auto below = [&](const auto& one) {
    return one.first == path || (one.first.starts_with(path) && one.first[path.size()] == '.');
  };
  if (std::any_of(all().begin(), all().end(), below)) std::erase_if(own(), below);
}

Origins::Map& Origins::own() {
  if (!map_)
    map_ = std::make_shared<Map>();
  else if (map_.use_count() > 1)
    map_ = std::make_shared<Map>(*map_);
  return *map_;
}

}  // namespace moesim::models

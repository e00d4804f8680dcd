// The origin of a setting's value: a user's option, a line of a file, a recipe, a search.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace moesim::models {

struct Origin {
  enum class Kind : std::uint8_t {
    kDefault,   // the field's own default
    kSaid,      // a flag, --set, an axis, a Python keyword
    kFile,      // a line of a script, a table or a scenario file
    kLog,       // a line of a training log
    kModel,     // the model's card or its published training
    kRecipe,    // a framework's recipe
    kSearched,  // a search of plans
    kRecording  // a recording of the job
  };

  Kind kind = Kind::kDefault;
  std::string where;  // "--ep", "train.sh:12", "megatron-bridge@26.04"

  static Origin said(std::string where) { return {Kind::kSaid, std::move(where)}; }
  static Origin file(std::string where) { return {Kind::kFile, std::move(where)}; }
  friend bool operator==(const Origin&, const Origin&) = default;
};

// "default", "said", "file", "log", "model", "recipe", "searched", "recording".
std::string_view name_of(Origin::Kind kind);

// Origins by path. Copies share the map until one of them changes, since scenarios are copied by the million.
class Origins {
 public:
  using Map = std::map<std::string, Origin, std::less<>>;

  const Map& all() const;
  // Returns nullptr where the path has none.
  const Origin* find(std::string_view path) const;
  void set(std::string_view path, Origin origin);
  // Erases the path and its parts ("model.layers" with "model").
  void erase(std::string_view path);

 private:
  Map& own();

  std::shared_ptr<Map> map_;
};

}  // namespace moesim::models

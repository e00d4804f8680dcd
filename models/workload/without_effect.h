// Settings that change nothing beside the rest of a scenario, such as sequence parallelism at TP 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moesim::models {

struct Scenario;

struct WithoutEffect {
  std::string_view path;  // of a field, or of a part of one: "model.dense_ffn"
  std::string found;      // value and reason: "false with tp 1, whose ranks hold all rows"
  std::string expected;
  std::string_view cause = {};  // path of the size that leaves the value without effect; empty: others do

  std::string message() const;
};

// Returns the settings of a scenario with known sizes that differ from their defaults and change no answer.
std::vector<WithoutEffect> without_effect(const Scenario& sized);

// Sets the fields among them to their defaults, as if they had not been given.
void drop_without_effect(Scenario& sized);

}  // namespace moesim::models

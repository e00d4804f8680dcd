// Pieces of results that several verbs write.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace moesim::models {
struct Estimate;
struct LinkLoad;
}  // namespace moesim::models

namespace moesim::tools {

// {"value", "low", "high"}.
nlohmann::ordered_json estimate_json(const models::Estimate& estimate);

// A link and what it carried, under timing `flow`.
nlohmann::ordered_json link_json(const models::LinkLoad& link);

// "1234.5", as tables show them.
std::string microseconds(double us);

}  // namespace moesim::tools

// The machine of an answer in one line, with all that differs from the built-in one of its name.
#pragma once

#include <span>
#include <string>

namespace moesim::models {
struct Scenario;
struct ScenarioPath;
}  // namespace moesim::models

namespace moesim::tools {

// "dgx-h100x4 (network infiniband-ndr; nic.bandwidth 100.0 GB/s instead of 50.0 GB/s)". Needs a resolved
// scenario.
std::string machine_text(const models::Scenario& scenario);
// "qwen3-30b-a3b on dgx-h100x4 (network infiniband-ndr): one MoE layer", for questions of many scenarios.
// Model and machine are left out where they vary, and the sizes of the plan need not be known.
std::string asked_text(const models::Scenario& scenario, std::span<const models::ScenarioPath> varied = {});

}  // namespace moesim::tools

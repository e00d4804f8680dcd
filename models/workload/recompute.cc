#include "models/workload/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/input_error.h"
#include "base/text.h"

namespace moesim::models {

namespace {

struct RecomputeName {
  std::string_view name;
  bool StepRecompute::*flag;
};
constexpr std::array<RecomputeName, 9> kRecompute{{{"full", &StepRecompute::full},
                                                   {"core_attn", &StepRecompute::attention},
                                                   {"mla_up_proj", &StepRecompute::latent},
                                                   {"layernorm", &StepRecompute::norms},
                                                   {"moe_act", &StepRecompute::activation},
                                                   {"moe", &StepRecompute::moe},
                                                   {"mlp", &StepRecompute::dense},
                                                   {"shared_experts", &StepRecompute::shared},
                                                   {"mhc", &StepRecompute::streams}}};

}  // namespace

std::string StepRecompute::text() const {
  std::string all;
  for (const RecomputeName& r : kRecompute)
    if (this->*r.flag) all += (all.empty() ? "" : "+") + std::string(r.name);
  return all.empty() ? "none" : all;
}

StepRecompute StepRecompute::parse(std::string_view text) {
  StepRecompute result;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find_first_of("+, \t", from), text.size());
    std::string_view name = text.substr(from, end - from);
    from = end + 1;
    if (name.empty() || name == "none") continue;
    if (name == "selective") name = "core_attn";
    if (name == "activation" || name == "act") name = "moe_act";
    if (name == "norm") name = "layernorm";
    const auto found =
        std::find_if(kRecompute.begin(), kRecompute.end(), [&](const auto& r) { return r.name == name; });
    if (found == kRecompute.end()) {
      std::vector<std::string> known{"none", "selective"};
      for (const RecomputeName& r : kRecompute) known.emplace_back(r.name);
      throw InputError(fmt::format("recompute: found {}, expected {}{}", in_quotes(name), join(known, ", "),
                                   did_you_mean(name, known)));
    }
    result.*found->flag = true;
  }
  return result;
}

}  // namespace moesim::models

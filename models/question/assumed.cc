#include "models/question/assumed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"

namespace moesim::models {

namespace {

// Fields with two usual values, the default first.
struct Alternative {
  std::string_view path, value;
};
constexpr std::array<Alternative, 9> kAlternatives{{{"training.launch", "graphs"},
                                                    {"training.framework", "megatron-stock"},
                                                    {"training.framework", "megatron-recipe"},
                                                    {"training.overlap.expert_communication", "true"},
                                                    {"training.fused_kernels", "true"},
                                                    {"training.precision", "fp8"},
                                                    {"training.precision", "mxfp8"},
                                                    {"routing", "zipf:0.5"},
                                                    {"parallel.micro_batch", "2"}}};

// Adjusts the microbatches to keep the batch.
void keep_batch(Scenario& s) {
  if (!s.is_step() || s.batch.given()) return;
  s.batch.sequences = s.parallel.dp * s.parallel.microbatches * s.parallel.micro_batch;
  s.given.reset(index_of(*find_field("parallel.microbatches")));
}

// Returns the answer without draws. Throws InputError for an illegal job.
Answer plain_answer(Scenario s) {
  s.routing.shared = true;
  AnswerOptions options;
  options.draws = 0;
  options.breakdown = false;
  return answer(std::move(s), options).answers.front();
}

double seconds_per_token(const Answer& a) { return a.seconds() / a.tokens; }

std::string text_of(const Field& field, const Scenario& s) {
  const nlohmann::ordered_json value = field.write(s);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string Assumed::option() const {
  const Field& field = *find_field(path);
  return field.flag.empty() ? fmt::format("--set {}={}", path, alternative)
                            : fmt::format("{} {}", field.flag, alternative);
}

std::string Assumed::text() const {
  const std::string_view flag = find_field(path)->flag;
  return fmt::format("{} (with {} {:.0f} % {})",
                     flag.empty() ? fmt::format("{}={}", path, value) : fmt::format("{} {}", flag, value),
                     alternative, 100 * std::abs(effect), effect < 0 ? "faster" : "slower");
}

std::vector<Assumed> assumed_of(const Comparison& c) {
  const Answer* winner = c.winner();
  if (!winner || !winner->ok()) return {};
  Scenario base = *c.scenario;
  if (base.model.experts > 0) {
    base.set_dispatchers(winner->dispatcher);
    base.give("dispatcher");
  }
  keep_batch(base);
  std::vector<Assumed> found;
  double before = 0;
  for (const Alternative& one : kAlternatives) {
    const Field& field = *find_field(one.path);
    if (c.scenario->gave(field.path) || !field.used_in(scope_of(base)) || text_of(field, base) == one.value)
      continue;
    if (field.path == "routing" &&
        (base.model.experts == 0 || base.routing.kind != RoutingSpec::Kind::kBalanced))
      continue;
    if (field.path == "training.precision" && !base.cluster->profile.device().has_precision(one.value))
      continue;
    try {
      Scenario other = base;
      set_field(field, other, one.value);
      const Answer after = plain_answer(std::move(other));
      if (winner->memory.fits && !after.memory.fits) continue;
      if (before == 0) before = seconds_per_token(plain_answer(base));
      const double effect = seconds_per_token(after) / before - 1;
      if (std::abs(effect) > kMatters)
        found.push_back({std::string(one.path), text_of(field, base), std::string(one.value), effect});
    } catch (const InputError&) {  // illegal job
    }
  }
  std::ranges::stable_sort(
      found, [](const Assumed& a, const Assumed& b) { return std::abs(a.effect) > std::abs(b.effect); });
  // One line per setting.
  std::vector<Assumed> kept;
  for (Assumed& one : found)
    if (std::ranges::find(kept, one.path, &Assumed::path) == kept.end()) kept.push_back(std::move(one));
  return kept;
}

}  // namespace moesim::models

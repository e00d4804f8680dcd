#include "models/question/assumed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

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

constexpr std::string_view kCapacity = ":capacity_factor=1.25";

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

namespace {

// The winner with other values of single fields.
class Alternatives {
 public:
  Alternatives(const Comparison& c, const Answer& winner) : base_(*c.scenario), fits_(winner.memory.fits) {
    if (base_.model.experts > 0) {
      base_.set_dispatchers(winner.dispatcher);
      base_.give("dispatcher");
    }
    keep_batch(base_);
    const bool one_routing =
        base_.routing.kind == RoutingSpec::Kind::kBalanced || base_.routing.shared || !base_.is_step();
    if (one_routing && !c.anchor && winner.network.groups == 0) before_ = seconds_per_token(winner);
  }

  const Scenario& base() const { return base_; }
  // nullopt for an illegal job, and for one that no longer fits the memory.
  std::optional<Assumed> at(const Field& field, std::string_view value) {
    try {
      Scenario other = base_;
      set_field(field, other, value);
      const Answer after = plain_answer(std::move(other));
      if (fits_ && !after.memory.fits) return std::nullopt;
      return Assumed{std::string(field.path), text_of(field, base_), std::string(value),
                     seconds_per_token(after) / per_token() - 1};
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  // Seconds of the winner as it is, with the first layer's routing for all: its answer has them where that is its
  // routing, and neither a measured run nor the traffic of others moved it.
  double per_token() {
    if (before_ == 0) before_ = seconds_per_token(plain_answer(base_));
    return before_;
  }

 private:
  Scenario base_;
  bool fits_;
  double before_ = 0;  // seconds per token, once asked for
};

}  // namespace

std::vector<Assumed> assumed_of(const Comparison& c) {
  const Answer* winner = c.winner();
  if (!winner || !winner->ok()) return {};
  Alternatives alternatives(c, *winner);
  const Scenario& base = alternatives.base();
  std::vector<Assumed> found;
  for (const Alternative& one : kAlternatives) {
    const Field& field = *find_field(one.path);
    if (c.scenario->gave(field.path) || !field.used_in(scope_of(base)) || text_of(field, base) == one.value)
      continue;
    if (field.path == "routing" &&
        (base.model.experts == 0 || base.routing.kind != RoutingSpec::Kind::kBalanced))
      continue;
    if (field.path == "training.precision" && !base.cluster->profile.device().has_precision(one.value))
      continue;
    if (auto other = alternatives.at(field, one.value); other && std::abs(other->effect) > kMatters)
      found.push_back(*std::move(other));
  }
  std::ranges::stable_sort(
      found, [](const Assumed& a, const Assumed& b) { return std::abs(a.effect) > std::abs(b.effect); });
  // One line per setting.
  std::vector<Assumed> kept;
  for (Assumed& one : found)
    if (std::ranges::find(kept, one.path, &Assumed::path) == kept.end()) kept.push_back(std::move(one));
  return kept;
}

std::string Imbalance::text(std::size_t most_remedies) const {
  std::string cure;
  for (const Assumed& one : std::span(remedies).first(std::min(most_remedies, remedies.size())))
    cure += fmt::format("{}{} ({:.0f} % faster{})", cure.empty() ? "; less of it with " : ", ", one.option(),
                        -100 * one.effect, one.alternative.ends_with(kCapacity) ? ", drops rows" : "");
  return fmt::format("imbalance: against balanced tokens, {} costs {:.2f} {} a {}, {:.0f} % of it{}{}",
                     routing, us * (step ? 1e-6 : 1e-3), step ? "s" : "ms", step ? "step" : "layer",
                     100 * share, step ? fmt::format(", {:.1f} hours a day", hours_a_day()) : "", cure);
}

std::optional<Imbalance> imbalance_of(const Comparison& c) {
  constexpr double kRemedy = 0.01;
  const Answer* winner = c.winner();
  const Scenario& s = *c.scenario;
  if (!winner || !winner->ok() || s.model.experts == 0 || s.routing.kind == RoutingSpec::Kind::kBalanced)
    return std::nullopt;
  Alternatives alternatives(c, *winner);
  const auto balanced = alternatives.at(*find_field("routing"), "balanced");
  if (!balanced) return std::nullopt;
  // Every layer's own routing is in the winner's time, but for one that was anchored.
  const double own = c.anchor ? alternatives.per_token() : seconds_per_token(*winner);
  const double share = 1 - (1 + balanced->effect) * alternatives.per_token() / own;
  if (share <= kRemedy) return std::nullopt;
  Imbalance found{s.routing.text, share * winner->time_us.value, share, s.is_step(), {}};
  std::vector<std::pair<std::string_view, std::string>> cures;
  for (const std::string& option : {fmt::format(":balance=eplb:slots={}", s.model.experts + s.parallel.ep),
                                    std::string(":balance=least-loaded"), std::string(kCapacity)})
    cures.emplace_back("dispatcher", winner->dispatcher + option);
  if (s.parallel.ep > 1) cures.emplace_back("parallel.ep", std::to_string(s.parallel.ep / 2));
  for (const auto& [path, value] : cures)
    if (auto cure = alternatives.at(*find_field(path), value); cure && cure->effect < -kRemedy)
      found.remedies.push_back(*std::move(cure));
  std::ranges::stable_sort(found.remedies, {}, &Assumed::effect);
  return found;
}

}  // namespace moesim::models

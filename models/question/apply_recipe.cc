#include "models/question/apply_recipe.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/hardware/cluster.h"
#include "models/workload/fields.h"
#include "models/workload/model_json.h"
#include "models/workload/scenario.h"

namespace moesim::models {

namespace {

// Returns whether the path, or an object that contains it, was given.
bool said(const Scenario& s, std::string_view path) {
  // Either of them implies the other.
  if (path == "parallel.global_batch" && s.gave("parallel.microbatches")) return true;
  if (path == "parallel.microbatches" && s.gave("parallel.global_batch")) return true;
  for (std::size_t end = path.size(); end != std::string_view::npos; end = path.rfind('.', end - 1)) {
    const std::string_view part = path.substr(0, end);
    if (find_field(part) && s.gave(part)) return true;
    if (end == 0) break;
  }
  return false;
}

// Returns whether a path concerns experts, which a dense model lacks.
bool is_of_experts(std::string_view path) {
  return path == "dispatcher" || path == "parallel.ep" || path == "parallel.etp" || path == "router_dtype" ||
         path == "training.recompute" || path == "training.overlap.expert_communication" ||
         path == "training.overlap.delayed_wgrad" || path == "training.folding";
}

std::optional<std::int64_t> number_in(const RecipeFacts& facts, std::string_view name) {
  const auto at = facts.find(name);
  if (at == facts.end()) return std::nullopt;
  const auto* number = std::get_if<std::int64_t>(&at->second);
  return number ? std::optional(*number) : std::nullopt;
}

// Computes "=a" or "=a/b" from the facts' numbers; nullopt where one is unknown or the quotient is not
// integral.
std::optional<std::int64_t> computed(std::string_view text, const RecipeFacts& facts) {
  const std::size_t slash = text.find('/');
  const auto number = number_in(facts, text.substr(1, slash == std::string_view::npos ? slash : slash - 1));
  if (!number || slash == std::string_view::npos) return number;
  const auto divisor = number_in(facts, text.substr(slash + 1));
  if (!divisor || *divisor == 0 || *number % *divisor != 0 || *number < *divisor) return std::nullopt;
  return *number / *divisor;
}

// Drops the multi-token-prediction layers of a built-in model for a framework that trains without them,
// unless their number was given.
bool take_prediction(Scenario& s, const RecipeSetting& setting, const Origin& origin) {
  if (s.origins.find(kPrediction) || !to_json(s.model).is_string()) return false;
  const std::int64_t layers = setting.value->get<std::int64_t>();
  if (layers == s.model.mtp_layers) return false;
  s.model.mtp_layers = layers;
  s.origins.set(kPrediction, origin);
  return true;
}

// A dispatcher named without options gets the framework's options.
void take_options(Scenario& s, const DispatcherSpec& of_recipe) {
  for (DispatcherSpec& spec : s.dispatchers)
    if (spec.name == of_recipe.name && spec.options.empty()) spec.options = of_recipe.options;
  if (s.job_dispatcher == of_recipe.name) s.job_dispatcher = of_recipe.text();
}

}  // namespace

RecipeFacts facts_of(const Scenario& s, const RecipeFacts& more) {
  RecipeFacts facts = more;
  facts.emplace("model", s.model.name);
  facts.emplace("gpu", s.cluster ? s.cluster->profile.name() : std::string("h100-sxm"));
  facts.emplace("precision", s.training.precision);
  facts.emplace("launch", std::string(name_of(s.training.launch)));  // as said, or as a line before set it
  const Parallel& p = s.parallel;
  facts.emplace("tp", p.tp), facts.emplace("cp", p.cp), facts.emplace("pp", p.pp), facts.emplace("ep", p.ep);
  facts.emplace("layers", s.model.layers);
  if (s.cluster) facts.emplace("gpus_per_node", std::int64_t{s.cluster->gpus_per_node});
  const std::int64_t ranks = p.tp * p.cp * p.pp;
  std::int64_t gpus = s.gpus_open() ? 0 : s.job_gpus();
  std::int64_t dp = s.gave("parallel.dp") ? p.dp : 0;
  if (gpus == 0) gpus = dp * ranks;
  if (dp == 0 && ranks > 0 && gpus % ranks == 0) dp = gpus / ranks;
  if (gpus > 0) facts.emplace("gpus", gpus);
  if (dp > 0) facts.emplace("dp", dp);
  if (s.batch.sequences > 0) facts.emplace("batch", s.batch.sequences);
  const std::int64_t microbatches = !s.batch.given() ? p.microbatches
                                    : dp > 0         ? s.batch.microbatches(dp, p.micro_batch, p.seq)
                                                     : 0;
  if (microbatches > 0) facts.emplace("microbatches", microbatches);
  return facts;
}

std::vector<std::string> apply(const FrameworkRecipe& recipe, Scenario& s, const RecipeFacts& more) {
  const Origin origin{Origin::Kind::kRecipe, recipe.id()};
  // The first line that holds sets a path; an earlier value is not the recipe's.
  std::vector<std::string> done;
  for (const RecipeLine& line : recipe.lines) {
    const RecipeFacts facts = facts_of(s, more);
    if (!line.holds(facts)) continue;
    for (const RecipeSetting& setting : line.set) {
      if (setting.path == kPrediction) {
        if (take_prediction(s, setting, origin)) done.push_back(setting.path);
        continue;
      }
      const Field* field = find_field(setting.path);
      check(field != nullptr, "a recipe sets fields of a scenario");
      if (setting.path == "dispatcher" && setting.value->is_string() && s.gave("dispatcher"))
        take_options(s, DispatcherSpec::parse(setting.value->get<std::string>()));
      if (said(s, setting.path) || !field->used_in(scope_of(s))) continue;
      if (s.model.experts == 0 && is_of_experts(setting.path)) continue;
      nlohmann::json value = *setting.value;
      if (const auto* text = value.get_ptr<const std::string*>(); text && text->starts_with('=')) {
        const auto number = computed(*text, facts);
        if (!number) continue;
        value = *number;
      }
      const Scenario before = s;
      set_field(*field, s, JsonNode::from_json(value, recipe.id()), &origin);
      // A text that sets several fields, like sharding, keeps those that were given.
      for (const Field& other : scenario_fields())
        if (before.gave(other.path)) other.take(s, before);
      done.push_back(setting.path);
    }
  }
  return done;
}

void take_recipe(Scenario& s, const std::string& name) {
  const auto forget = [&](std::string_view below) {
    for (const Field& field : scenario_fields()) {
      if (s.origin_of(field.path).kind != Origin::Kind::kRecipe || !field.path.starts_with(below)) continue;
      field.take(s, Scenario{});
      s.given.reset(index_of(field));
    }
  };
  forget("");
  const FrameworkRecipe recipe = FrameworkRecipe::find(name);
  s.recipe = recipe.id();
  s.give("recipe");
  apply(recipe, s);
  forget("parallel.");
}

double spread_of_unknown(const Scenario& scenario, const std::function<double(const Scenario&)>& seconds) {
  std::vector<double> logs;
  const auto all = FrameworkRecipe::all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool newest = i + 1 == all.size() || all[i + 1].name != all[i].name;
    if (!newest || !all[i].trains) continue;
    Scenario as = scenario;
    apply(all[i], as);
    try {
      const double time = seconds(as);
      if (time > 0) logs.push_back(std::log(time));
    } catch (const InputError&) {
      continue;  // the framework cannot run this plan
    }
  }
  if (logs.size() < 2) return 0;
  double mean = 0, sum = 0;
  for (const double x : logs) mean += x / static_cast<double>(logs.size());
  for (const double x : logs) sum += (x - mean) * (x - mean);
  return std::sqrt(sum / static_cast<double>(logs.size() - 1));
}

}  // namespace moesim::models

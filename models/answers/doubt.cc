#include "models/answers/doubt.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/json_reader.h"
#include "base/statistics.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"
#include "models/recipes/framework_recipe.h"

namespace moesim::models {

std::string launches_of(std::string_view dispatcher) {
  return "launches of " + std::string(dispatcher.substr(0, dispatcher.find(':')));
}

std::string exchanges_of(std::string_view dispatcher) { return "exchanges of " + std::string(dispatcher); }

std::string unpublished_kernels_of(std::string_view dispatcher) {
  return "kernels of " + std::string(dispatcher) + ", not published for this machine";
}

double unpublished_kernel_factor(std::string_view dispatcher, std::size_t draw) {
  return unmeasured_factor(unpublished_kernels_of(dispatcher), draw, kUnpublishedSpread);
}

void doubt_part(Forecast& f, std::string part, double share, double sigma) {
  const DomainReport::Unmeasured one{std::move(part), share};
  doubt_unmeasured(std::span(&one, 1), f.time_us.value, f.draws_us, sigma);
}

Estimate widened(double value, const std::vector<double>& draws, double sigma) {
  Estimate e = Estimate::from_samples(value, draws);
  const auto bound = [&](double by, double sign) {
    return value * std::exp(sign * std::hypot(std::log(by / value), kZ90 * sigma));
  };
  if (sigma > 0) e = {value, bound(e.low, -1), bound(e.high, 1)};
  return e;
}

void add_doubt(Forecast& f, const Doubt& doubt) {
  if (f.draws_us.empty()) return;
  const double us = f.time_us.value, sigma = doubt.step_sigma;
  doubt_unmeasured(f.unmeasured, us, f.draws_us);
  double unpublished = 0;  // share of the GPU's time, which the host may partly hide
  for (const DomainReport::Unmeasured& one : f.unmeasured)
    if (one.exchange) unpublished += one.share;
  unpublished = std::min(unpublished, doubt.exchanges);
  if (unpublished > 0)
    for (std::size_t d = 0; d < f.draws_us.size(); ++d)
      f.draws_us[d] *= 1 + unpublished * (unpublished_kernel_factor(doubt.dispatcher, d) - 1);
  f.time_us = widened(us, f.draws_us, sigma);
  doubt_part(f, launches_of(doubt.dispatcher), doubt.launches, launch_sigma(sigma > 0));
  doubt_part(f, exchanges_of(doubt.dispatcher), doubt.exchanges, kExchangeSigma);
  doubt_part(f, "steps of " + doubt.dispatcher, 1, kArmSigma);
  const Estimate drawn = Estimate::from_samples(us, f.draws_us);
  f.time_us.low = std::min(f.time_us.low, drawn.low);
  f.time_us.high = std::max(f.time_us.high, drawn.high);
}

namespace {

// From 342 steps of 13 publications, each forecast without its own (moesim validate --training --leave-out
// source): with what the prices' draws hold, 90 % of the errors are within 1.645 x 0.20 for models and
// frameworks that other publications have, 0.23 for other frameworks, 0.30 for other models.
constexpr double kKnown = 0.15, kOtherRecipe = 0.10, kOtherModel = 0.19;
constexpr double kNear = 0.5;  // difference of logarithms that is a new model for the most part

std::vector<std::string> texts(const JsonNode& list) {
  std::vector<std::string> all;
  for (const JsonNode& one : list.items()) all.push_back(one.string());
  return all;
}

KindsOfLayers kinds_of(const Architecture& model) {
  KindsOfLayers kinds;
  for (const LayerKind& layer : layer_stack(model))
    if (!layer.mtp && layer.ffn != LayerKind::Ffn::kDense) kinds.emplace(layer.mixer, layer.ffn);
  return kinds;
}

PublishedSteps read() {
  PublishedSteps all;
  JsonObject file(JsonNode::parse(embedded_table("published_steps"), "published_steps.json"));
  file.string("about", "");
  for (const JsonNode& node : file.at("models").items()) {
    JsonObject one(node);
    Architecture model = Architecture::parse(one.at("model"));
    KindsOfLayers kinds = kinds_of(model);
    all.models.push_back({std::move(model), std::move(kinds), texts(one.at("publications"))});
    one.finish();
  }
  for (const JsonNode& node : file.at("recipes").items()) {
    JsonObject one(node);
    all.recipes.push_back({one.at("recipe").string(), texts(one.at("publications"))});
    one.finish();
  }
  for (const JsonNode& node : file.at("runs").items()) {
    JsonObject one(node);
    all.runs.push_back({.model = one.at("model").string(),
                        .gpu = one.at("gpu").string(),
                        .precision = one.at("precision").string(),
                        .source = one.at("source").string(),
                        .recipe = one.string("recipe", ""),
                        .gpus = one.at("gpus").integer(1, 1 << 20),
                        .sequences = one.at("sequences").integer(1, 1 << 30),
                        .seq = one.at("seq").integer(1, 1 << 30),
                        .step_s = one.at("step_s").number(),
                        .plan_s = one.at("plan_s").number()});
    one.finish();
  }
  file.finish();
  return all;
}

bool holds(const std::vector<std::string>& publications, std::string_view without) {
  return std::ranges::any_of(publications, [&](const std::string& one) { return one != without; });
}

// A recipe may state its own deviation; another one without published steps has kOtherRecipe.
double recipe_sigma(const std::string& id, std::string_view without) {
  if (id.empty()) return 0;
  if (const double own = FrameworkRecipe::find(id).spread; own > 0) return own;
  const std::string name = id.substr(0, id.find('@'));
  const bool known = std::ranges::any_of(published_steps().recipes, [&](const PublishedRecipe& one) {
    return one.recipe == name && holds(one.publications, without);
  });
  return known ? 0 : kOtherRecipe;
}

double difference_of_layers(const Architecture& a, const KindsOfLayers& kinds_of_a, const Architecture& b,
                            const KindsOfLayers& kinds_of_b) {
  if ((a.experts > 0) != (b.experts > 0) || a.attention.kind != b.attention.kind ||
      (a.attention.index_topk > 0) != (b.attention.index_topk > 0) || a.residual.kind != b.residual.kind ||
      kinds_of_a != kinds_of_b)
    return 1;
  const auto log_ratio = [](std::int64_t x, std::int64_t y) {
    return std::log(static_cast<double>(std::max<std::int64_t>(x, 1)) /
                    static_cast<double>(std::max<std::int64_t>(y, 1)));
  };
  const auto rows = [](const Architecture& m) { return m.topk * m.expert_ffn + m.shared_ffn; };
  const double distance =
      std::hypot(log_ratio(a.hidden, b.hidden), log_ratio(a.experts, b.experts), log_ratio(rows(a), rows(b)));
  return 1 - std::exp(-distance / kNear);
}

}  // namespace

const PublishedSteps& published_steps() {
  static const PublishedSteps all = read();
  return all;
}

double difference_of_layers(const Architecture& a, const Architecture& b) {
  return difference_of_layers(a, kinds_of(a), b, kinds_of(b));
}

double step_sigma(const Scenario& s, std::string_view without) {
  const KindsOfLayers kinds = kinds_of(s.model);
  double model = 1;
  for (const PublishedModel& one : published_steps().models)
    if (model > 0 && holds(one.publications, without))
      model = std::min(model, difference_of_layers(s.model, kinds, one.model, one.kinds));
  return std::hypot(kKnown, recipe_sigma(s.recipe, without), kOtherModel * model);
}

PlanSpread plan_spread() {
  const std::vector<PublishedRun>& runs = published_steps().runs;
  const auto count = static_cast<double>(runs.size());
  double mean = 0, square = 0;
  for (const PublishedRun& run : runs) mean += std::log(run.step_s / run.plan_s) / count;
  for (const PublishedRun& run : runs)
    square += std::pow(std::log(run.step_s / run.plan_s) - mean, 2) / (count - 1);
  return {mean, std::sqrt(std::max(0.0, square - kKnown * kKnown))};
}

const PublishedRun* best_published(const Scenario& s) {
  const PublishedRun* best = nullptr;
  for (const PublishedRun& run : published_steps().runs)
    if (run.model == s.model.name && run.gpu == s.cluster->profile.name() &&
        run.precision == s.training.precision &&
        (!best || run.tokens_per_s_per_gpu() > best->tokens_per_s_per_gpu()))
      best = &run;
  return best;
}

}  // namespace moesim::models

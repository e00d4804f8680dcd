// How far a step is from those whose times were published, and what that distance costs its interval.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// The kinds of a model's layers. Layers with a dense FFN, with which many models begin, are not among them.
using KindsOfLayers = std::set<std::pair<LayerKind::Mixer, LayerKind::Ffn>>;

// A model or a framework's recipe with the publications that hold steps of it.
struct PublishedModel {
  Architecture model;
  KindsOfLayers kinds;
  std::vector<std::string> publications;
};
struct PublishedRecipe {
  std::string recipe;  // name without its version
  std::vector<std::string> publications;
};

// published_steps.json: what the tables of steps cover that the constants of steps were fitted to.
struct PublishedSteps {
  std::vector<PublishedModel> models;
  std::vector<PublishedRecipe> recipes;
};
const PublishedSteps& published_steps();

// Returns 0 for equal layers, 1 for kinds of layers that the other has not, and between them what differs in
// width, number of experts and rows: 1 - exp(-d / 0.5) of the distance d of their logarithms.
double difference_of_layers(const Architecture& a, const Architecture& b);

// Standard deviation of log(measured / forecast) of a step, beside what its prices' draws hold: that of known
// models and frameworks, more for a model and a framework without published steps. `without`: a publication
// that does not count (moesim validate --leave-out).
double step_sigma(const Scenario& scenario, std::string_view without = {});

}  // namespace moesim::models

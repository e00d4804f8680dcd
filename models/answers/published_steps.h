// Uncertainty of a step's forecast by its distance from steps with published times.
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

// published_steps.json: models and frameworks in the tables to which the constants of steps were fitted.
struct PublishedSteps {
  std::vector<PublishedModel> models;
  std::vector<PublishedRecipe> recipes;
};
const PublishedSteps& published_steps();

// Returns 0 for equal layers, 1 where one model has a kind of layer that the other lacks, and otherwise
// 1 - exp(-d / 0.5) for the distance d between the logarithms of width, number of experts and rows.
double difference_of_layers(const Architecture& a, const Architecture& b);

// Returns the standard deviation of log(measured / forecast) of a step beyond its prices' draws. It grows for
// a model and for a framework without published steps. `without`: a publication that does not count (moesim
// validate --leave-out).
double step_sigma(const Scenario& scenario, std::string_view without = {});

}  // namespace moesim::models

// Adds to a forecast the uncertainty that its price draws do not contain.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/step/forecast.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/scenario.h"

namespace moesim::models {

// Log standard deviations of a dispatcher's launch time. For a layer alone: ratios between two dispatchers in
// twelve host-bound layers are off by a factor of 1.5 (root mean square), 2.5 at worst (marin-community/marin
// #3666). For a step: ratios of two dispatchers in four host-bound decisions, three on EFA
// (awslabs/awsome-distributed-ai) and one in JAX (marin-community/marin #7279), are off by 4, 9, 1 and 10 %,
// where all doubts together are 10 to 12 % with this value.
inline constexpr double kLayerLaunchSigma = 0.5, kStepLaunchSigma = 0.15;
inline double launch_sigma(bool step) { return step ? kStepLaunchSigma : kLayerLaunchSigma; }
// Names under which the launches and the exchanges of a dispatcher with its options are drawn, and its kernels
// where no one published them for the machine; the options do not change the launches.
std::string launches_of(std::string_view dispatcher);
std::string exchanges_of(std::string_view dispatcher);
std::string unpublished_kernels_of(std::string_view dispatcher);

// Log standard deviations of one dispatcher's exchanges and of all its operations: the scatter of measured
// ratios between dispatchers that nothing else explains (moesim validate --decisions).
inline constexpr double kExchangeSigma = 0.15;
inline constexpr double kArmSigma = 0.03;
// Likewise for a framework that is not known, where a dispatcher may be integrated well or badly: ratios
// between dispatchers of levanter, MaxText and verl, one of which its authors call immature.
inline constexpr double kStrangerArmSigma = 0.09;
// Some dispatch kernels have no published times on a machine. A layer prices such a kernel at e^kUnpublishedInLayer times
// its stand-in: HybridEP inside a node of H100, NCCL EP on GB200 and UCCL-EP on H200 took 1.4 to 4 times as long as
// theirs (marin-community/marin #3666, #7331; uccl-project/uccl). A step prices it like its stand-in, since steps of
// Megatron-Bridge on H100 take that long. Draws multiply the price by a log-normal factor whose median is 1 and
// whose log standard deviation is kUnpublishedSpread.
inline constexpr double kUnpublishedInLayer = 0.9, kUnpublishedSpread = 0.4;
// Returns the factor of one draw around the price.
double unpublished_kernel_factor(std::string_view dispatcher, std::size_t draw);

// The uncertain parts of a forecast that its price draws do not contain.
struct Doubt {
  double step_sigma = 0;   // log standard deviation of the whole, common to all dispatchers; 0 for a layer
  std::string dispatcher;  // dispatcher with options, whose own factors are drawn
  double launches = 0;     // share of the time in which the GPU waits for the dispatcher's launches
  double exchanges = 0;    // share of the time in its dispatch and combine
};

// Multiplies a part of each draw by the part's own log-normal factor (unmeasured_factor). `share`: the part's
// share of the time.
void doubt_part(Forecast& forecast, std::string part, double share, double sigma);

// Returns the interval of draws around a value, widened by an independent log standard deviation.
Estimate widened(double value, const std::vector<double>& draws, double sigma);

// Widens the draws by what no profile measured and recomputes the interval.
void add_doubt(Forecast& forecast, const Doubt& doubt);

// Uncertainty of a step's forecast by its distance from steps with published times.

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

// A published step of a tuned run, and that of the best plan for the same job as `moesim plan` once found it.
struct PublishedRun {
  std::string model, gpu, precision, source;
  std::string recipe;  // that has its settings; empty: none has
  std::int64_t gpus = 0, sequences = 0, seq = 0;
  double step_s = 0, plan_s = 0;

  double tokens_per_s_per_gpu() const {
    return static_cast<double>(sequences * seq) / step_s / static_cast<double>(gpus);
  }
};

// published_steps.json: models and frameworks in the tables to which the constants of steps were fitted, and
// tuned runs.
struct PublishedSteps {
  std::vector<PublishedModel> models;
  std::vector<PublishedRecipe> recipes;
  std::vector<PublishedRun> runs;
};
const PublishedSteps& published_steps();

// Returns 0 for equal layers, 1 where one model has a kind of layer that the other lacks, and otherwise
// 1 - exp(-d / 0.5) for the distance d between the logarithms of width, number of experts and rows.
double difference_of_layers(const Architecture& a, const Architecture& b);

// Returns the standard deviation of log(measured / forecast) of a step beyond its prices' draws. It grows for
// a model and for a framework without published steps. `without`: a publication that does not count (moesim
// validate --leave-out).
double step_sigma(const Scenario& scenario, std::string_view without = {});

// How tuned runs lie around the best plan for the same job: mean of log(step / plan), and its standard
// deviation beyond step_sigma()'s for a known model and framework.
struct PlanSpread {
  double mean = 0, sigma = 0;
};
PlanSpread plan_spread();
// Returns the fastest published run of the model on the GPU in the precision, by its tokens; nullptr: none.
const PublishedRun* best_published(const Scenario& scenario);

}  // namespace moesim::models

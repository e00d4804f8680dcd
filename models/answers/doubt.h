// Adds to a forecast the doubt that the draws of its prices do not hold.
#pragma once

#include <string>
#include <string_view>

#include "models/step/forecast.h"

namespace moesim::models {

// By what a dispatcher's launches may be off (natural logarithm). Of a layer alone: ratios between
// two dispatchers in twelve layers that the host bounds are off by 1.5 times (root mean square), by 2.5 times
// at worst (marin-community/marin #3666). Of a step: from host-bound steps of three dispatchers on EFA
// (awslabs/awsome-distributed-ai), which are forecast within 10 % of each other.
inline constexpr double kLayerLaunchSigma = 0.5, kStepLaunchSigma = 0.2;
inline double launch_sigma(bool step) { return step ? kStepLaunchSigma : kLayerLaunchSigma; }
// The names under which the launches and the exchanges of a dispatcher with its options are drawn; launches
// are the same whatever the options are.
std::string launches_of(std::string_view dispatcher);
std::string exchanges_of(std::string_view dispatcher);

// By what one dispatcher's exchanges, and by what all that it does, are off by itself (natural logarithm):
// the scatter of measured ratios between dispatchers that nothing else explains (moesim validate
// --decisions).
inline constexpr double kExchangeSigma = 0.15;
inline constexpr double kArmSigma = 0.03;
// In a framework that is not known a dispatcher may be integrated well or badly: ratios between dispatchers
// of levanter, MaxText and verl, beside one integration that its authors call immature.
inline constexpr double kStrangerArmSigma = 0.09;
// A dispatch kernel without a published measurement on the machine takes longer than its stand-in by this
// much (natural logarithm): kernels are published where they were tuned. NCCL EP on GB200, HybridEP inside a
// node of H100 and UCCL-EP on H200 took 1.4 to 4 times as long (marin-community/marin #7331, #3666;
// uccl-project/uccl).
inline constexpr double kUnpublishedKernel = 0.9;

// Which parts of a forecast are in doubt, beside what the draws of its prices hold.
struct Doubt {
  double step_sigma = 0;   // of the whole, common to all dispatchers; 0 of a layer
  std::string dispatcher;  // with its options: what is in doubt by itself
  double launches = 0;     // share of the time in which the device waits for the dispatcher's launches
  double exchanges = 0;    // share of its dispatch and combine
};

// Draws a part of a forecast off by its own log-normal factor (unmeasured_factor). `share`: of the time.
void doubt_part(Forecast& forecast, std::string part, double share, double sigma);

// Widens the draws by what no profile measured and makes the interval of them.
void add_doubt(Forecast& forecast, const Doubt& doubt);

}  // namespace moesim::models

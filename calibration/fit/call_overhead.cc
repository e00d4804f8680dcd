#include "calibration/fit/call_overhead.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"

namespace moesim::calibration {
namespace {

constexpr double kMostlyLaunch = 0.5;  // largest share of a call that may be transfer

}  // namespace

void fit_call_overheads(models::Profile& profile, const Measurements& measurements) {
  std::map<std::string, std::vector<double>> overheads;
  std::string source;
  for (const CollectiveRow& row : measurements.exposed_calls) {
    const Device* device = device_of_gpu(row.origin.gpu);
    if (!device || device != device_of_gpu(profile.gpu()) || !inside_domain(row, profile)) continue;
    if (!profile.find(collective_key(row.op, false))) continue;
    const models::CollectiveModel model(cluster_of(profile, nullptr, 1, row.gpus_per_node));
    const bool piece = row.op == sim::CollectiveOp::all_gather || row.op == sim::CollectiveOp::reduce_scatter;
    const double transfer = model.seconds(row.op, models::GroupShape::uniform(1, row.ranks()),
                                          piece ? row.bytes / row.ranks() : row.bytes);
    if (transfer > kMostlyLaunch * row.seconds) continue;
    overheads[std::string(sim::name(row.op))].push_back((row.seconds - transfer) * 1e6);
    source = row.origin.source.substr(0, row.origin.source.find(','));
  }
  for (auto& [op, values] : overheads) {
    const double middle = median(values);
    double squares = 0;
    for (const double value : values) squares += (value - middle) * (value - middle);
    const auto tenths = [](double value) { return std::round(value * 10) / 10; };
    profile.set_constant(
        "exposed_call/" + op,
        {tenths(middle), tenths(std::sqrt(squares / static_cast<double>(values.size()))), "us",
         std::to_string(values.size()) + " kinds of calls of " + source +
             ", recorded less the transfer by the law of this profile"});
  }
}

}  // namespace moesim::calibration

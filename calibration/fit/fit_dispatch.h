// Fits the law of dispatch and combine kernels (models/costs/ep_kernel.h) to measured calls of one GPU and
// kernel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/costs/ep_kernel.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// The call of a row as the model wants it; nullopt where the row does not say enough (tokens, hidden, top-k,
// EP).
std::optional<models::EpKernelCall> call_of(const DispatchRow& row);

// Seconds of a row: its latency, or the bytes that its library counts over the bandwidth it prints (docs of
// DeepEP: tokens x distinct destinations, own included, x bytes per token). 0 where neither can be had.
double seconds_of(const DispatchRow& row);

// Whether the data set flags the row as faulty: it stays out of fits.
bool suspect(const DispatchRow& row);
// What rows across domains alone tell of a kernel's stage inside a domain: several numbers of domains tell
// the two stages apart, as the network binds more with each. A derived law; none where rows do not.
std::optional<models::ParameterSet> inside_stage(const models::Profile& base,
                                                 const std::vector<DispatchRow>& rows,
                                                 const std::string& key);
// Whether its ranks lie in several NVLink domains: its law belongs to the network (fit_networks.h).
bool across_domains(const DispatchRow& row);

// The name under which a profile keeps the law of a row: "ep/<kernel>" and "@<dtype>" where a kernel has
// several.
std::string law_key(const DispatchRow& row);

models::ParameterSet fit_dispatch(const models::Profile& profile, const std::vector<DispatchRow>& rows,
                                  const std::string& key);

}  // namespace moesim::calibration

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

// Returns the model's call for a row; nullopt where the row lacks tokens, hidden, top-k or EP.
std::optional<models::EpKernelCall> call_of(const DispatchRow& row);

// Returns the bytes of a call as its library counts them: to every destination, the own one included.
double printed_bytes(const DispatchRow& row, const models::EpKernelCall& call);
// Returns seconds of a row: its latency, or the library's byte count over the printed bandwidth (docs of
// DeepEP: tokens x distinct destinations, own included, x bytes per token). 0 where neither is available.
double seconds_of(const DispatchRow& row);

// Returns whether the data set flags the row as faulty; fits exclude it.
bool suspect(const DispatchRow& row);
// Estimates a kernel's stage inside a domain from rows across domains alone: rows with several numbers of
// domains separate the two stages, as the network binds more with each domain. Returns a derived law; nullopt
// where rows do not suffice.
std::optional<models::ParameterSet> inside_stage(const models::Profile& base,
                                                 const std::vector<DispatchRow>& rows,
                                                 const std::string& key);
// Returns whether its ranks lie in several NVLink domains, so that its law belongs to the network
// (fit_networks.h).
bool across_domains(const DispatchRow& row);

// Returns the profile's key for the law of a row: "ep/<kernel>", with "@<dtype>" where a kernel has several.
std::string law_key(const DispatchRow& row);

models::ParameterSet fit_dispatch(const models::Profile& profile, const std::vector<DispatchRow>& rows,
                                  const std::string& key);

}  // namespace moesim::calibration

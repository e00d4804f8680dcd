// Refines the law of one collective, inside a domain or on a network.
#pragma once

#include <map>
#include <vector>

#include "calibration/fit/refine_law.h"
#include "calibration/rows/collective_table.h"
#include "models/hardware/cluster.h"

namespace moesim::calibration {

// Returns the law of the rows' operation, from `before`; `cluster` has the laws that bound it.
LawCase collective_case(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows, bool network,
                        const models::ParameterSet& before);

std::map<sim::CollectiveOp, std::vector<CollectiveRow>> by_operation(const std::vector<CollectiveRow>& rows);

}  // namespace moesim::calibration

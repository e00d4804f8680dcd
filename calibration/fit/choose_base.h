// Chooses the profile or network nearest to a machine's few rows: refines every candidate with them and
// compares the log probability of the rows under each (least_squares.h), marginalised over its laws.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibration/fit/refine.h"

namespace moesim::calibration {

struct BaseEvidence {
  std::string name;
  double log_probability = 0;  // of the rows, up to a constant common to all candidates
  std::size_t rows = 0;        // rows for which the candidate has laws
};

// Returns the candidates with the most rows, then the highest probability, first.
std::vector<BaseEvidence> evidence_of(const std::vector<models::NetworkProfile>& candidates,
                                      const Measurements& rows,
                                      const std::function<const models::Profile&(const Device&)>& profile_of);
// Likewise for GPU profiles: rows count as if they were of the candidate's GPU.
std::vector<BaseEvidence> evidence_of(const std::vector<models::Profile>& candidates,
                                      const Measurements& rows);

// Returns the nearest network, refined by the rows. Where others are nearly as likely, each law with rows is
// the mean of the refined laws, weighted by probability. `evidence` receives the candidates, best first.
models::NetworkProfile refine_nearest(const std::vector<models::NetworkProfile>& candidates,
                                      const Measurements& rows,
                                      const std::function<const models::Profile&(const Device&)>& profile_of,
                                      std::vector<BaseEvidence>& evidence, RefineReport& report);

// Returns the rows with another GPU's name.
Measurements renamed(Measurements rows, const std::string& gpu);

}  // namespace moesim::calibration

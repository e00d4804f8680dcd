// Which profile or network a machine's few rows are nearest to: every candidate is refined with them, and the
// log probability of the rows under each (law_update.h), whatever its laws turn out to be, says how likely it
// is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibration/fit/refine.h"

namespace moesim::calibration {

struct BaseEvidence {
  std::string name;
  double log_probability = 0;  // of the rows, up to a constant that is the same for all
  std::size_t rows = 0;        // that the candidate has laws for
};

// Candidates with the most rows and the highest probability first.
std::vector<BaseEvidence> evidence_of(const std::vector<models::NetworkProfile>& candidates,
                                      const Measurements& rows,
                                      const std::function<const models::Profile&(const Device&)>& profile_of);
// GPU profiles: rows count as if they were of the candidate's GPU.
std::vector<BaseEvidence> evidence_of(const std::vector<models::Profile>& candidates,
                                      const Measurements& rows);

// The network that is nearest, moved by the rows: where others are nearly as likely, each law that rows speak
// of is the mean of what becomes of it under all of them, weighted by how likely each is. `evidence` gets the
// candidates, best first.
models::NetworkProfile refine_nearest(const std::vector<models::NetworkProfile>& candidates,
                                      const Measurements& rows,
                                      const std::function<const models::Profile&(const Device&)>& profile_of,
                                      std::vector<BaseEvidence>& evidence, RefineReport& report);

// The rows with another GPU's name.
Measurements renamed(Measurements rows, const std::string& gpu);

}  // namespace moesim::calibration

// Refines a built-in profile with a few rows of the user's machine.
//
// Every law with rows is updated separately (least_squares.h), from the law that would have priced the rows and
// from the spread between machines of one kind (machine_spread.h). Laws without rows stay, and the refined
// profile answers everything that its base answers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct RefinedLaw {
  std::string key;
  int rows = 0;
  int outliers = 0;  // rows with less than half weight
  // Mean change of the log time over the law's domain (for products and kernels: over its rows), and its root
  // mean square in standard deviations of the prior for another machine.
  double moved = 0, moved_sigma = 0;
  double own_share = 0;  // share of the variance there that the rows removed
  // Mean |log error| of the rows before, and under a law fitted to the other rows.
  double error_before = 0, error_left_out = 0;
  bool added = false;  // the base lacked the law
  // Median log error of the rows under the base, measured over forecast. Where half of the rows are further than a
  // factor of 2 from the law that they move, or a quarter is faster than any law, they are not believed and
  // the base's law stays.
  double off = 0;
  bool believed = true;
  double evidence = 0;  // log probability of the rows, marginalised over the law
};

struct RefineReport {
  std::vector<RefinedLaw> laws;
  std::size_t rows = 0;                        // rows used
  std::map<std::string, std::size_t> skipped;  // reason -> rows
};

// Returns "" for rows of the profile's GPU, else the reason why they are not used.
std::string not_of(const models::Profile& profile, const Origin& origin);

// Refines with rows of this GPU: collectives inside a domain, products, kernels, host costs. Rows between
// nodes belong to a network and are skipped with that reason.
models::Profile refine(const models::Profile& base, const Measurements& rows, RefineReport& report);

// Refines with rows between nodes of any GPU with a profile, which `profile_of` returns.
models::NetworkProfile refine(const models::NetworkProfile& base, const Measurements& rows,
                              const std::function<const models::Profile&(const Device&)>& profile_of,
                              RefineReport& report);

// ---- which base ----

// Chooses the profile or network nearest to a machine's few rows: refines every candidate with them and
// compares the log probability of the rows under each (least_squares.h), marginalised over its laws.
struct BaseEvidence {
  std::string name;
  double log_probability = 0;  // of the rows, up to a constant common to all candidates
  std::size_t rows = 0;        // rows for which the candidate has laws
};

// Returns the built-in networks that the rows may be of: those of the kinds that rows name, whose ports can carry what
// the nodes of a row received in its time. Evidence that leaves none is no evidence.
std::vector<models::NetworkProfile> possible_networks(const Measurements& rows);

// Returns GPU profiles with the most rows, then the highest probability, first: rows count as if they were of the
// candidate's GPU.
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

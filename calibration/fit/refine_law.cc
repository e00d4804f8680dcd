#include "calibration/fit/refine_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibration/fit/domain.h"
#include "calibration/fit/machine_spread.h"
#include "models/costs/measured_calls.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;

constexpr double kLeastScatter = 0.04;  // of a row around its law: repeats of a benchmark
// Estimates, not measurements: the scatter where the base is a derived law, the weight of the base's scatter
// in rows, the distance up to which a row counts for the scatter, and the weight below which a row is an
// outlier.
constexpr double kUsualScatter = 0.06;
constexpr double kScatterRows = 6;
constexpr double kFarthest = 0.5;
constexpr double kHalf = 0.5;

// Rows of one file are one log; a table has one for each of its sources.
std::vector<int> logs_of(const std::vector<Origin>& origins) {
  std::map<std::pair<std::string, std::string>, int> numbers;
  std::vector<int> logs;
  logs.reserve(origins.size());
  for (const Origin& origin : origins)
    logs.push_back(numbers.try_emplace({origin.place.file, origin.source}, static_cast<int>(numbers.size()))
                       .first->second);
  return logs;
}

std::string sources_of(const std::vector<Origin>& origins) {
  std::set<std::string> sources;
  for (const Origin& origin : origins) sources.insert(origin.source.substr(0, origin.source.find(',')));
  std::string text = *sources.begin();
  if (sources.size() > 1) text += fmt::format("; {} more", sources.size() - 1);
  return text;
}

void bounds_of(const ParameterSet& set, LawUpdate& update) {
  constexpr double kFar = 30;  // estimate, not measured: beyond any difference between machines of one kind
  for (std::size_t i = 0; i < set.values.size(); ++i) {
    const std::string& name = set.names[i];
    const double value = set.values[i];
    // Shares of a data sheet's limit; those of dispatch kernels are of logical bytes.
    const bool limit = set.law != "ep-kernel" && (name.ends_with("share") || name == "small_tile");
    update.low.push_back(value / kFar);
    update.high.push_back(limit ? std::max(value, 1.0) : value * kFar);
  }
}

// Returns the covariance for the file: as found for parameters with rows, as before for the others.
std::vector<double> stated(const ParameterSet& before, const UpdatedLaw& after) {
  const std::size_t n = before.values.size();
  const auto corrections = models::Corrections::calls_of(before, before.source);
  std::vector<double> scale(n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const double found = std::sqrt(after.covariance[i * n + i]);
    const double moved = before.values[i] > 0 ? std::abs(std::log(after.values[i] / before.values[i])) : 0;
    const double fitted = before.covariance.empty() ? 0 : std::sqrt(before.covariance[i * n + i]);
    const double most = std::max(fitted, moved);
    // A correction is there for its rows.
    if (found > most && !corrections[i]) scale[i] = most / found;
  }
  std::vector<double> covariance = after.covariance;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) covariance[i * n + j] *= scale[i] * scale[j];
  return covariance;
}

double variance_along(const std::vector<double>& covariance, const std::vector<double>& direction) {
  const std::size_t n = direction.size();
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) sum += direction[i] * covariance[i * n + j] * direction[j];
  return sum;
}

double mean_magnitude(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::abs(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Computes how far the law moved over its domain, and the share of the user's rows in it.
void compare(const LawCase& one, const ParameterSet& after, const std::vector<double>& prior,
             const UpdatedLaw& updated, RefinedLaw& law) {
  const LawResiduals& at = one.over_domain ? one.over_domain : one.residuals;
  const std::vector<double> then = at(one.before), now = at(after);
  const auto before = sensitivities(one.before, at), later = sensitivities(after, at);
  double known = 0, left = 0, squares = 0;
  for (std::size_t i = 0; i < then.size(); ++i) {
    law.moved += (now[i] - then[i]) / static_cast<double>(then.size());
    squares += (now[i] - then[i]) * (now[i] - then[i]);
    known += variance_along(prior, before[i]);
    left += variance_along(updated.covariance, later[i]);
  }
  law.moved_sigma = known > 0 ? std::copysign(std::sqrt(squares / known), law.moved) : 0;
  law.own_share = known > 0 ? std::clamp(1 - left / known, 0.0, 1.0) : 0;
}

}  // namespace

ParameterSet refined(const LawCase& one, RefinedLaw& law) {
  LawUpdate update;
  update.covariance = machine_covariance(one.before);
  update.log_of_row = logs_of(one.origins);
  update.scatter = std::clamp(one.before.residual, kLeastScatter, kMostScatter);
  if (one.before.derived) {
    // Its residual is the spread between machines, not the scatter of rows.
    update.scatter = kUsualScatter;
    update.least_spread = 0.5;
  }
  // Rows differ from such a law by their corrections, and from these as a benchmark repeats.
  const bool corrected = one.before.get(models::Corrections::kSigma, 0) > 0;
  if (corrected) update.scatter = kLeastScatter;
  // A network may be unlike every known one.
  constexpr double kOtherNetwork = 2;
  if (one.before.law == "network") update.most_spread = kOtherNetwork;
  bounds_of(one.before, update);
  const UpdatedLaw updated = update_law(one.before, update, one.residuals);

  ParameterSet set = one.before;
  set.values = updated.values;
  for (std::size_t i = 0; i < set.names.size(); ++i)
    if (set.names[i] == models::Corrections::kSigma) set.values[i] *= updated.jumps;
  law.key = one.key;
  law.evidence = updated.evidence;
  law.added = one.added;
  law.rows = static_cast<int>(one.origins.size());
  for (const double weight : updated.weight) law.outliers += weight < kHalf;
  law.error_before = mean_magnitude(one.residuals(one.before));
  law.error_left_out = mean_magnitude(updated.left_out);
  compare(one, set, update.covariance, updated, law);

  set.covariance = writable(stated(one.before, updated), set.values.size());
  // Error of the law at a row left out, with the base's scatter weighted as further rows. Corrections hold
  // theirs in kSigma.
  double squares = 0, rows = 0;
  for (std::size_t i = 0; i < updated.left_out.size(); ++i) {
    squares += std::pow(std::min(std::abs(updated.left_out[i]), kFarthest), 2);
    rows += 1;
  }
  const double before = one.before.derived ? update.scatter : one.before.residual;
  set.residual = corrected ? updated.scatter
                           : std::sqrt((squares + kScatterRows * before * before) / (rows + kScatterRows));
  set.systematic *= std::sqrt(1 - law.own_share);
  set.rows = (one.before.derived ? 0 : one.before.rows) + law.rows;
  set.derived = false;
  set.own_share = law.own_share;
  set.source =
      fmt::format("{} own rows ({}); before them: {}", law.rows, sources_of(one.origins), one.before.source);
  for (const auto& [quantity, values] : one.ranges)
    for (const double value : values) widen(set, quantity, value);
  return set;
}

}  // namespace moesim::calibration

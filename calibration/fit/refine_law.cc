#include "calibration/fit/refine_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/statistics.h"
#include "base/text.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/least_squares.h"
#include "calibration/rows/devices.h"
#include "calibration/rows/row_laws.h"
#include "models/costs/collectives.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/network_law.h"
#include "models/costs/size_curve.h"

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
const double kNotBelieved = std::log(2.0);
constexpr std::size_t kFewRows = 3;  // fewer say little of a law, and move it as far as they can
// A row is beyond a law that takes this much longer with all parameters at their bounds; of the user's rows, fewer
// than this share may be.
constexpr double kBeyond = 0.15, kMostBeyond = 0.25;

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
  return calibration::sources_of(sources, 1);
}

void bounds_of(const ParameterSet& set, LawUpdate& update) {
  constexpr double kFar = 100;  // estimate, not measured: beyond any difference between machines of one kind
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

constexpr double kMostLever = 6;  // limit on the amplification of a knot that is a small part of its time

enum class Kind { kSeconds, kRate, kShape };

Kind kind_of(std::string_view name) {
  for (const std::string_view seconds :
       {"latency", "ramp_per", "per_token", "prologue", "floor", "reduction", "overhead", "host"})
    if (name.starts_with(seconds)) return Kind::kSeconds;
  return name.ends_with("share") && name != "remote_share" ? Kind::kRate : Kind::kShape;
}

// Knot of a size curve: "excess/<ranks>/<bytes>".
struct Knot {
  bool is = false;
  double ranks = 0, bytes = 0, lever = 1;
};

std::vector<Knot> knots_of(const ParameterSet& law) {
  std::vector<Knot> knots(law.names.size());
  const double latency = law.get("latency", 0), per_rank = law.get("latency_per_rank", 0);
  for (std::size_t i = 0; i < knots.size(); ++i) {
    const auto parts = split(law.names[i], '/');
    if (parts.size() != 3 || parts[0] != "excess") continue;
    Knot& knot = knots[i];
    knot.is = true;
    knot.ranks = parse_number(parts[1]).value_or(2);
    knot.bytes = parse_number(parts[2]).value_or(1);
    const double floor = latency + per_rank * (knot.ranks - 1), excess = law.values[i];
    knot.lever = excess > 0 ? std::min((floor + excess) / excess, kMostLever) : 0;
  }
  return knots;
}

// The sign with which each parameter moves for a longer time; 0: it changes the shape of the law.
std::vector<int> longer_times_of(const ParameterSet& law) {
  const std::vector<Knot> knots = knots_of(law);
  std::vector<int> signs;
  for (std::size_t i = 0; i < law.names.size(); ++i) {
    const Kind kind = kind_of(law.names[i]);
    signs.push_back(knots[i].is || kind == Kind::kSeconds ? 1 : kind == Kind::kRate ? -1 : 0);
  }
  return signs;
}

// Returns the share of rows that no law between the bounds is fast enough for: the links within are no part of it.
double beyond(const LawCase& one, const LawUpdate& update) {
  ParameterSet fastest = one.before;
  const auto calls = models::Corrections::calls_of(fastest, one.key);
  for (std::size_t i = 0; i < fastest.values.size(); ++i)
    if (update.longer[i] != 0 || calls[i])
      fastest.values[i] = update.longer[i] < 0 ? update.high[i] : update.low[i];
  const std::vector<double> off = one.residuals(fastest);
  return static_cast<double>(std::ranges::count_if(off, [](double r) { return r > kBeyond; })) /
         static_cast<double>(off.size());
}

}  // namespace

ParameterSet refined(const LawCase& one, RefinedLaw& law) {
  LawUpdate update;
  update.longer = longer_times_of(one.before);
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
  const std::vector<double> off = one.residuals(one.before);
  law.error_before = mean_magnitude(off);
  law.error_left_out = mean_magnitude(updated.left_out);
  std::vector<double> left;
  for (const double error : one.residuals(set)) left.push_back(std::abs(error));
  law.off = -median(off);
  law.believed =
      left.size() < kFewRows || (median(left) <= kNotBelieved && beyond(one, update) <= kMostBeyond);
  if (!law.believed) return one.before;
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

namespace {

using sim::CollectiveOp;

// Log times of one operation under trial laws; `cluster` has the laws that bound it.
class CollectiveTimes {
 public:
  CollectiveTimes(models::Cluster cluster, CollectiveOp op, bool network)
      : cluster_(std::move(cluster)), op_(op), key_(collective_key(op, network)) {
    std::vector<std::string> others;
    for (const auto& [key, set] : cluster_.profile.sets())
      if (!key.starts_with("collective/") || key.find('@') != std::string::npos) others.push_back(key);
    for (const std::string& key : others) cluster_.profile.erase(key);
  }

  std::vector<double> operator()(const ParameterSet& trial, const std::vector<CollectiveRow>& rows) {
    cluster_.profile.set(key_, trial);
    const models::CollectiveModel model(cluster_);
    return values_of(rows, [&](const CollectiveRow& row) {
      return std::log(model.seconds(op_, shape_of(row, cluster_.profile.device()), call_bytes(row)));
    });
  }

 private:
  models::Cluster cluster_;
  CollectiveOp op_;
  std::string key_;
};

// Returns calls over a law's range: every second octave of sizes, rank counts in octaves.
std::vector<CollectiveRow> domain_of(const ParameterSet& set, const std::vector<CollectiveRow>& rows,
                                     bool network) {
  const models::DomainRange* bytes = set.range("bytes");
  const models::DomainRange* ranks = set.range(network ? "nodes" : "ranks");
  constexpr double kLargest = 4.0 * (1u << 30);
  const Device* device = device_of_gpu(rows.front().origin.gpu);
  const int nodes_of_domain =
      device ? std::max(1, device->limits.scaleup_domain / device->limits.gpus_per_node) : 1;
  std::set<int> counts;
  for (double n = 2; ranks && n <= ranks->high; n *= 2)
    if (n >= ranks->low) counts.insert(static_cast<int>(n));
  if (counts.empty())
    for (const CollectiveRow& row : rows)
      counts.insert(network ? std::max(1, row.nodes / nodes_of_domain) : row.ranks());
  std::vector<CollectiveRow> calls;
  const double largest = bytes ? std::min(bytes->high, kLargest) : kLargest;
  for (const int n : counts) {
    double size = bytes ? std::max(bytes->low, 512.0) : 512;
    while (size <= largest) {
      CollectiveRow call = rows.front();
      call.nodes = network ? n * nodes_of_domain : 1;
      call.gpus_per_node = network ? rows.front().gpus_per_node : n;
      call.bytes = size;
      calls.push_back(call);
      size *= 4;
    }
  }
  return calls;
}

// Returns the law with a correction of 1 at calls of the rows, those least alike first, besides the corrections
// that it has.
ParameterSet with_corrections(ParameterSet law, const std::string& key,
                              const std::vector<CollectiveRow>& rows, const models::Cluster& cluster) {
  constexpr std::size_t kMost = 24;
  constexpr double kAlike = 0.85;  // calls more alike than this share a correction
  // The residual of a network's law, with which rows of published clusters scatter around it, is the scale of the
  // corrections before any own row. A derived law has none and takes 0.14, the root mean square over the networks
  // but Polaris's, whose rows this number decides (up to 0.17 without another one). The least, 0.07, is that of the
  // law which fits a whole cluster best.
  constexpr double kUsualJumps = 0.14, kLeastJumps = 0.07;
  const models::Corrections before = models::Corrections::from(law, key);
  std::vector<models::MeasuredCall> taken;
  for (const auto& call : models::Corrections::calls_of(law, key))
    if (call) taken.push_back(*call);
  if (law.get(models::Corrections::kSigma, 0) <= 0) {
    add_known(law, models::Corrections::kSigma,
              law.derived ? kUsualJumps : std::max(law.residual, kLeastJumps));
  }
  while (taken.size() < kMost) {
    double least = kAlike;
    std::optional<models::MeasuredCall> next;
    double factor = 1;
    for (const CollectiveRow& row : rows) {
      const models::GroupShape shape = shape_of(row, cluster.profile.device());
      const auto call = models::MeasuredCall::of(shape, row.bytes);
      double alike = 0;
      for (const auto& other : taken) alike = std::max(alike, call.likeness(other));
      if (alike < least) least = alike, next = call, factor = before.at(shape, row.bytes);
    }
    if (!next) break;
    taken.push_back(*next);
    add_known(law, next->name(), factor);  // machine_covariance() holds the spread between machines there
  }
  return law;
}

}  // namespace

LawCase collective_case(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows, bool network,
                        const ParameterSet& before) {
  LawCase one;
  one.key = collective_key(rows.front().op, network);
  one.before = network ? with_corrections(before, one.key, rows, cluster) : before;
  one.origins = origins_of(rows);
  one.ranges = {{"bytes", values_of(rows, [](const CollectiveRow& r) { return r.bytes; })},
                {"ranks", values_of(rows, [](const CollectiveRow& r) { return r.ranks(); })}};
  if (network)
    one.ranges.emplace_back("nodes", values_of(rows, [](const CollectiveRow& r) { return r.nodes; }));
  const auto times = std::make_shared<CollectiveTimes>(cluster, rows.front().op, network);
  one.residuals = [times, rows](const ParameterSet& trial) {
    std::vector<double> r = (*times)(trial, rows);
    for (std::size_t i = 0; i < r.size(); ++i) r[i] -= std::log(rows[i].seconds);
    return r;
  };
  const std::vector<CollectiveRow> calls = domain_of(before, rows, network);
  if (!calls.empty())
    one.over_domain = [times, calls](const ParameterSet& trial) { return (*times)(trial, calls); };
  return one;
}

LawCase dispatch_case(const std::string& key, const std::vector<DispatchRow>& rows) {
  LawCase one;
  one.key = key;
  one.origins = origins_of(rows);
  one.ranges = {{"tokens", values_of(rows, [](const DispatchRow& r) { return r.tokens; })},
                {"ranks", values_of(rows, [](const DispatchRow& r) { return r.ep; })}};
  return one;
}

std::map<std::string, std::vector<DispatchRow>> Refining::dispatches_by_law(
    const std::vector<DispatchRow>& rows, bool across) {
  std::map<std::string, std::vector<DispatchRow>> groups;
  for (const DispatchRow& row : rows) {
    if (across && !device_of_gpu(row.origin.gpu))
      skip("rows of a GPU without a profile");
    else if (!call_of(row) || seconds_of(row) <= 0)
      skip("dispatch rows without tokens, hidden size, top-k, EP size or time");
    else if (suspect(row))
      skip("dispatch rows that their table suspects");
    else if (across_domains(row) != across)
      skip(across ? kOfGpu : kOfNetwork);
    else
      groups[law_key(row) + std::string(across ? models::kNetworkLaw : "")].push_back(row);
  }
  return groups;
}

std::map<CollectiveOp, std::vector<CollectiveRow>> by_operation(const std::vector<CollectiveRow>& rows) {
  std::map<CollectiveOp, std::vector<CollectiveRow>> result;
  for (const CollectiveRow& row : rows) result[row.op].push_back(row);
  return result;
}

namespace {

// Log standard deviations between machines of one kind, from published tables with the same call on several
// of them (docs/calibration.md).
constexpr double kStart = 0.4;        // common to all latencies of a law
constexpr double kRate = 0.2;         // common to all rates of a law
constexpr double kOwnStart = 0.4;     // a latency by itself
constexpr double kOwnRate = 0.2;      // a share of a limit by itself
constexpr double kOwnShape = 0.3;     // other parameters: sizes where protocols change, exponents
constexpr double kCurve = 0.12;       // of the time at one size of a curve, besides the common part
constexpr double kOctaves = 2.0;      // correlation length along a curve, in size
constexpr double kRankOctaves = 2.0;  // and in rank counts
constexpr double kMostOpen = 0.4;     // limit on a fit's uncertainty on another machine

double apart(double a, double b, double octaves) {
  const double distance = std::log2(a / b) / octaves;
  return std::exp(-0.5 * distance * distance);
}

}  // namespace

std::vector<double> machine_covariance(const ParameterSet& law) {
  const std::size_t n = law.names.size();
  std::vector<double> covariance(n * n, 0);
  if (!law.covariance.empty()) {
    // The fit's covariance, with undetermined directions limited to the differences between machines.
    std::vector<double> scale(n, 1);
    for (std::size_t i = 0; i < n; ++i) {
      const double sigma = std::sqrt(law.covariance[i * n + i]);
      if (sigma > kMostOpen) scale[i] = kMostOpen / sigma;
    }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        covariance[i * n + j] = law.covariance[i * n + j] * scale[i] * scale[j];
  }
  // A law of other machines may be off by its unexplained residual there, all in one direction.
  const double taken_over = law.derived ? std::clamp(law.residual, 0.1, 0.6) : 0;
  const std::vector<Knot> knots = knots_of(law);
  const auto calls = models::Corrections::calls_of(law, law.source);
  const double correction = law.get(models::Corrections::kSigma, 0);
  const auto kind = [&](std::size_t i) { return knots[i].is ? Kind::kRate : kind_of(law.names[i]); };
  const std::vector<int> longer = longer_times_of(law);
  const auto direction = [&](std::size_t i) { return static_cast<double>(longer[i]); };
  for (std::size_t i = 0; i < n; ++i) {
    if (law.values[i] <= 0 || law.names[i] == models::Corrections::kSigma) continue;
    for (std::size_t j = 0; j < n; ++j) {
      if (law.values[j] <= 0) continue;
      double& c = covariance[i * n + j];
      c += taken_over * taken_over * direction(i) * direction(j);
      if (kind(i) == kind(j) && kind(i) != Kind::kShape)
        c += direction(i) * direction(j) * std::pow(kind(i) == Kind::kSeconds ? kStart : kRate, 2);
      if (knots[i].is && knots[j].is)
        c += kCurve * knots[i].lever * kCurve * knots[j].lever *
             apart(knots[i].bytes / knots[i].ranks, knots[j].bytes / knots[j].ranks, kOctaves) *
             apart(knots[i].ranks, knots[j].ranks, kRankOctaves);
      if (calls[i] && calls[j]) c += correction * correction * calls[i]->likeness(*calls[j]);
      if (i == j && !knots[i].is && !calls[i])
        c += std::pow(kind(i) == Kind::kSeconds ? kOwnStart
                      : kind(i) == Kind::kRate  ? kOwnRate
                                                : kOwnShape,
                      2);
    }
  }
  return covariance;
}

}  // namespace moesim::calibration

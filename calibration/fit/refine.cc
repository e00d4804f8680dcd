#include "calibration/fit/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "base/input_error.h"
#include "calibration/fit/fit_dispatch.h"
#include "calibration/fit/fit_ffn.h"
#include "calibration/fit/fit_gemm.h"
#include "calibration/fit/law_update.h"
#include "calibration/fit/machine_numbers.h"
#include "calibration/fit/machine_spread.h"
#include "calibration/rows/ffn_rows.h"
#include "calibration/rows/variants.h"
#include "models/costs/collectives.h"
#include "models/costs/ep_kernel.h"
#include "models/costs/gemm.h"
#include "models/costs/kernels.h"

namespace moesim::calibration {
namespace {

using models::ParameterSet;
using models::Profile;
using sim::CollectiveOp;

constexpr double kLeastScatter = 0.04;  // of a row around its law: repeats of a benchmark
constexpr double kUsualScatter = 0.06;
constexpr double kMostScatter = 0.12;   // more is how far a law of several machines is off on one of them
constexpr double kScatterRows = 6;      // that the base's scatter counts as, beside one's own rows
constexpr double kFarthest = 0.5;       // a row farther off says no more of the scatter
constexpr double kHalf = 0.5;           // the weight below which a row is an outlier
constexpr double kOtherElements = 0.2;  // what a law of another element type adds

// One law and the rows that speak of it.
struct LawCase {
  std::string key;
  ParameterSet before;
  bool added = false;
  std::vector<Origin> origins;                                      // of the rows
  std::vector<std::pair<const char*, std::vector<double>>> ranges;  // what the rows cover
  LawResiduals residuals;
  // log times over what the law is for; empty: at its rows.
  LawResiduals over_domain;
};

void widen(ParameterSet& set, const char* quantity, const std::vector<double>& values) {
  if (values.empty()) return;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  for (auto& range : set.domain)
    if (range.quantity == quantity) {
      range.low = std::min(range.low, *low);
      range.high = std::max(range.high, *high);
      return;
    }
  set.domain.push_back({quantity, *low, *high});
}

// Rows of one file are one log; a table holds one for each of its sources.
std::vector<int> logs_of(const std::vector<Origin>& origins) {
  std::map<std::pair<std::string, std::string>, int> numbers;
  std::vector<int> logs;
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
  constexpr double kFar = 30;
  for (std::size_t i = 0; i < set.values.size(); ++i) {
    const std::string& name = set.names[i];
    const double value = set.values[i];
    // Shares of a data sheet's limit; those of dispatch kernels are of logical bytes.
    const bool limit = set.law != "ep-kernel" && (name.ends_with("share") || name == "small_tile");
    update.low.push_back(value / kFar);
    update.high.push_back(limit ? std::max(value, 1.0) : value * kFar);
  }
}

// What the file says is unknown: what rows spoke of as found, what none did as before.
std::vector<double> stated(const ParameterSet& before, const UpdatedLaw& after) {
  const std::size_t n = before.values.size();
  std::vector<double> scale(n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const double found = std::sqrt(after.covariance[i * n + i]);
    const double moved = before.values[i] > 0 ? std::abs(std::log(after.values[i] / before.values[i])) : 0;
    const double fitted = before.covariance.empty() ? 0 : std::sqrt(before.covariance[i * n + i]);
    const double most = std::max(fitted, moved);
    if (found > most) scale[i] = most / found;
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

// How far the law moved over its domain, and how much of what is known of it is own.
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

ParameterSet refined(const LawCase& one, RefinedLaw& law) {
  LawUpdate update;
  update.covariance = machine_covariance(one.before);
  update.log_of_row = logs_of(one.origins);
  update.scatter = std::clamp(one.before.residual, kLeastScatter, kMostScatter);
  if (one.before.derived) {
    // Its residual is how machines differ, not how rows scatter.
    update.scatter = kUsualScatter;
    update.least_spread = 0.5;
  }
  bounds_of(one.before, update);
  const UpdatedLaw updated = update_law(one.before, update, one.residuals);

  ParameterSet set = one.before;
  set.values = updated.values;
  law.key = one.key;
  law.added = one.added;
  law.rows = static_cast<int>(one.origins.size());
  for (const double weight : updated.weight) law.outliers += weight < kHalf;
  law.error_before = mean_magnitude(one.residuals(one.before));
  law.error_left_out = mean_magnitude(updated.left_out);
  compare(one, set, update.covariance, updated, law);

  set.covariance = stated(one.before, updated);
  // How far the law is off at a row that it has not seen, with the base's scatter as so many rows more.
  double squares = 0, rows = 0;
  for (std::size_t i = 0; i < updated.left_out.size(); ++i) {
    squares += std::pow(std::min(std::abs(updated.left_out[i]), kFarthest), 2);
    rows += 1;
  }
  const double before = one.before.derived ? update.scatter : one.before.residual;
  set.residual = std::sqrt((squares + kScatterRows * before * before) / (rows + kScatterRows));
  set.systematic *= std::sqrt(1 - law.own_share);
  set.rows = (one.before.derived ? 0 : one.before.rows) + law.rows;
  set.derived = false;
  set.own_share = law.own_share;
  set.source =
      fmt::format("{} own rows ({}); before them: {}", law.rows, sources_of(one.origins), one.before.source);
  for (const auto& [quantity, values] : one.ranges) widen(set, quantity, values);
  return set;
}

// ---- collectives ----

double piece_of(const CollectiveRow& row) {
  const bool piece = row.op == CollectiveOp::all_gather || row.op == CollectiveOp::reduce_scatter;
  return piece ? row.bytes / row.ranks() : row.bytes;
}

// Log times of one operation under trial laws; `cluster` has the laws that bound it.
class CollectiveTimes {
 public:
  CollectiveTimes(models::Cluster cluster, CollectiveOp op, bool network)
      : cluster_(std::move(cluster)), op_(op), network_(network), key_(collective_key(op, network)) {
    std::vector<std::string> others;
    for (const auto& [key, set] : cluster_.profile.sets())
      if (!key.starts_with("collective/") || key.find('@') != std::string::npos) others.push_back(key);
    for (const std::string& key : others) cluster_.profile.erase(key);
  }

  std::vector<double> operator()(const ParameterSet& trial, const std::vector<CollectiveRow>& rows) {
    cluster_.profile.set(key_, trial);
    const models::CollectiveModel model(cluster_);
    std::vector<double> times;
    times.reserve(rows.size());
    for (const CollectiveRow& row : rows) {
      const auto shape = network_ ? models::GroupShape::uniform(row.nodes, row.gpus_per_node)
                                  : models::GroupShape::uniform(1, row.ranks());
      times.push_back(std::log(model.seconds(op_, shape, piece_of(row))));
    }
    return times;
  }

 private:
  models::Cluster cluster_;
  CollectiveOp op_;
  bool network_;
  std::string key_;
};

// Calls over what a law covers: every second octave of sizes, rank counts in octaves.
std::vector<CollectiveRow> domain_of(const ParameterSet& set, const std::vector<CollectiveRow>& rows,
                                     bool network) {
  const models::DomainRange* bytes = set.range("bytes");
  const models::DomainRange* ranks = set.range(network ? "nodes" : "ranks");
  constexpr double kLargest = 4.0 * (1u << 30);
  std::set<int> counts;
  for (double n = 2; ranks && n <= ranks->high; n *= 2)
    if (n >= ranks->low) counts.insert(static_cast<int>(n));
  if (counts.empty())
    for (const CollectiveRow& row : rows) counts.insert(network ? row.nodes : row.ranks());
  std::vector<CollectiveRow> calls;
  for (const int n : counts)
    for (double size = bytes ? std::max(bytes->low, 512.0) : 512;
         size <= (bytes ? std::min(bytes->high, kLargest) : kLargest); size *= 4) {
      CollectiveRow call = rows.front();
      call.nodes = network ? n : 1;
      call.gpus_per_node = network ? rows.front().gpus_per_node : n;
      call.bytes = size;
      calls.push_back(call);
    }
  return calls;
}

template <class Row>
std::vector<Origin> origins_of(const std::vector<Row>& rows) {
  std::vector<Origin> origins;
  for (const Row& row : rows) origins.push_back(row.origin);
  return origins;
}

template <class Row, class Value>
std::vector<double> values_of(const std::vector<Row>& rows, const Value& value) {
  std::vector<double> values;
  for (const Row& row : rows) values.push_back(static_cast<double>(value(row)));
  return values;
}

LawCase collective_case(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows, bool network,
                        const ParameterSet& before) {
  LawCase one;
  one.key = collective_key(rows.front().op, network);
  one.before = before;
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

std::map<CollectiveOp, std::vector<CollectiveRow>> by_operation(const std::vector<CollectiveRow>& rows) {
  std::map<CollectiveOp, std::vector<CollectiveRow>> result;
  for (const CollectiveRow& row : rows) result[row.op].push_back(row);
  return result;
}

// ---- the two kinds of profile ----

class Refining {
 public:
  explicit Refining(RefineReport& report) : report_(report) {}

  void skip(const std::string& reason, std::size_t rows = 1) { report_.skipped[reason] += rows; }

  ParameterSet take(const LawCase& one) {
    RefinedLaw law;
    ParameterSet set = refined(one, law);
    report_.rows += one.origins.size();
    report_.laws.push_back(std::move(law));
    return set;
  }

 protected:
  RefineReport& report_;
};

class GpuRefining : public Refining {
 public:
  GpuRefining(const Profile& base, RefineReport& report) : Refining(report), base_(base), profile_(base) {}

  Profile run(const Measurements& all) {
    collectives(own(all.collectives));
    gemms(own(all.gemms));
    grouped(own(all.grouped));
    ffns(own(all.ffns));
    dispatches(own(all.dispatches));
    kernels(own(all.kernels));
    machine(own(all.machine));
    if (!all.exposed_calls.empty())
      skip("calls of a recording that hold their launch (calibrate fit)", all.exposed_calls.size());
    return std::move(profile_);
  }

 private:
  template <class Row>
  std::vector<Row> own(const std::vector<Row>& rows) {
    const Device* device = device_of_gpu(base_.gpu());
    std::vector<Row> result;
    for (const Row& row : rows) {
      if (row.origin.gpu != base_.gpu() && (!device || device_of_gpu(row.origin.gpu) != device))
        skip("rows of another GPU than " + base_.gpu());
      else
        result.push_back(row);
    }
    return result;
  }

  // The law of the rows' library where all have the same, else the profile's own; `key` gets its name.
  const ParameterSet* closest(const std::vector<CollectiveRow>& rows, std::string& key) const {
    for (const std::string& candidate : law_keys(rows.front(), false)) {
      const bool all = std::all_of(rows.begin(), rows.end(), [&](const CollectiveRow& row) {
        const auto keys = law_keys(row, false);
        return std::find(keys.begin(), keys.end(), candidate) != keys.end();
      });
      if (!all || !base_.find(candidate)) continue;
      key = candidate;
      return base_.find(candidate);
    }
    return nullptr;
  }

  void collectives(const std::vector<CollectiveRow>& rows) {
    std::vector<CollectiveRow> inside;
    for (const CollectiveRow& row : rows) {
      if (!inside_domain(row, base_))
        skip("rows between nodes: they are of a network (calibrate refine NETWORK)");
      else if (integer_reduction(row))
        skip("integer reductions, which no forecast uses");
      else
        inside.push_back(row);
    }
    if (inside.empty()) return;
    const models::Cluster cluster = cluster_of(base_, nullptr, 1, base_.device().gpus_per_node);
    for (const auto& [op, own] : by_operation(inside)) {
      std::string from;
      const ParameterSet* law = closest(own, from);
      const std::string key = collective_key(op, false);
      if (!law) {
        skip(key + ": the profile has no law to refine", own.size());
        continue;
      }
      profile_.set(key, take(collective_case(cluster, own, false, *law)));
      if (from != key) profile_.erase(from);  // the refined law stands for this library now
    }
  }

  void gemms(const std::vector<GemmRow>& rows) {
    std::map<std::string, std::vector<GemmRow>> groups;
    for (const GemmRow& row : rows) {
      if (!known_dtype(row.dtype))
        skip("products of an unknown element type");
      else
        groups["gemm/" + std::string(models::name_of(dtype_of(row.dtype)))].push_back(row);
    }
    for (const auto& [key, own] : groups) {
      const ParameterSet* law = base_.find(key);
      for (const std::string& candidate : law_keys(own.front()))
        if (!law) law = base_.find(candidate);
      if (!law) {
        skip(key + ": the profile has no law to refine", own.size());
        continue;
      }
      LawCase one;
      one.key = key;
      one.before = *law;
      one.origins = origins_of(own);
      one.ranges = {{"m", values_of(own, [](const GemmRow& r) { return r.m; })},
                    {"n", values_of(own, [](const GemmRow& r) { return r.n; })},
                    {"k", values_of(own, [](const GemmRow& r) { return r.k; })}};
      one.residuals = [trial_profile = small_profile(), key, own](const ParameterSet& trial) mutable {
        trial_profile.set(key, trial);
        return gemm_residuals(trial_profile, own);
      };
      profile_.set(key, take(one));
    }
  }

  void grouped(const std::vector<GroupedGemmRow>& rows) {
    std::map<std::string, std::vector<GroupedGemmRow>> groups;
    for (const GroupedGemmRow& row : rows) {
      if (!known_dtype(row.dtype))
        skip("products of an unknown element type");
      else if (row.kind.starts_with("loop") || row.kind.starts_with("batched") ||
               row.kind.find("half") != std::string::npos || row.kind.find("grad") != std::string::npos)
        skip("grouped products of another backend, pass or skew than a law is for");
      else
        groups[std::string(models::name_of(dtype_of(row.dtype)))].push_back(row);
    }
    for (const auto& [dtype, own] : groups) {
      const std::string key = "grouped_gemm/" + dtype;
      const ParameterSet* law = base_.find(key);
      if (!law) law = base_.find("gemm/" + dtype);
      if (!law) {
        skip(key + ": the profile has no law to refine", own.size());
        continue;
      }
      LawCase one;
      one.key = key;
      one.before = *law;
      one.added = !base_.find(key);
      one.origins = origins_of(own);
      one.residuals = [trial_profile = small_profile(), key, own](const ParameterSet& trial) mutable {
        trial_profile.set(key, trial);
        const models::GemmModel model(trial_profile, models::Clocks::kBurst);
        std::vector<double> r;
        for (const GroupedGemmRow& row : own) {
          const std::vector<std::int64_t> experts(static_cast<std::size_t>(row.groups),
                                                  static_cast<std::int64_t>(row.m_per_group));
          r.push_back(std::log(model.grouped_seconds(experts, static_cast<std::int64_t>(row.n),
                                                     static_cast<std::int64_t>(row.k), dtype_of(row.dtype)) /
                               row.seconds));
        }
        return r;
      };
      profile_.set(key, take(one));
    }
  }

  void ffns(const std::vector<FfnRow>& rows) {
    std::map<std::string, std::vector<FfnRow>> groups;
    for (const FfnRow& row : rows) {
      const std::string key = known_dtype(row.dtype) ? law_keys(row).front() : "";
      if (!base_.find(key))
        skip("expert FFNs of an element type or kernel that the profile has no law for");
      else
        groups[key].push_back(row);
    }
    for (const auto& [key, own] : groups) {
      LawCase one;
      one.key = key;
      one.before = base_.at(key);
      one.origins = origins_of(own);
      one.ranges = {{"tokens", values_of(own, [](const FfnRow& r) { return r.tokens; })}};
      one.residuals = [trial_profile = small_profile(), name = key, own](const ParameterSet& trial) mutable {
        trial_profile.set(name, trial);
        return ffn_residuals(trial_profile, own, name);
      };
      const ParameterSet set = take(one);
      profile_.set(key, set);
      // The grouped products of training are those inside of this kernel (fit_profile.cc).
      const std::string plain = "grouped_gemm/" + key.substr(4, key.find('@') - 4);
      const ParameterSet* inside = base_.find(plain);
      if (!inside || inside->values != one.before.values) continue;
      ParameterSet products = set;
      products.law = inside->law;
      profile_.set(plain, std::move(products));
    }
  }

  void dispatches(const std::vector<DispatchRow>& rows) {
    std::map<std::string, std::vector<DispatchRow>> groups;
    for (const DispatchRow& row : rows) {
      if (!call_of(row) || seconds_of(row) <= 0)
        skip("dispatch rows without tokens, hidden size, top-k, EP size or time");
      else if (suspect(row))
        skip("dispatch rows that their table suspects");
      else if (across_domains(row))
        skip("rows between nodes: they are of a network (calibrate refine NETWORK)");
      else
        groups[law_key(row)].push_back(row);
    }
    for (const auto& [key, own] : groups) {
      LawCase one;
      one.key = key;
      if (const ParameterSet* law = base_.find(key)) {
        one.before = *law;
      } else {
        // The same kernel with other elements: the law counts bytes.
        const std::string prefix = key.substr(0, key.find('@') + 1);
        for (const auto& [other, set] : base_.sets())
          if (other.starts_with(prefix) && !other.ends_with(models::kNetworkLaw)) {
            one.before = set;
            one.before.derived = true;
            one.before.residual = std::max(one.before.residual, kOtherElements);
          }
        one.added = true;
      }
      if (one.before.names.empty()) {
        ParameterSet set = fit_dispatch(base_, own, key);
        set.systematic = kOtherElements;
        set.own_share = 1;
        profile_.set(key, set);
        report_.rows += own.size();
        RefinedLaw law;
        law.key = key;
        law.rows = static_cast<int>(own.size());
        law.own_share = 1;
        law.added = true;
        report_.laws.push_back(law);
        continue;
      }
      one.origins = origins_of(own);
      one.ranges = {{"tokens", values_of(own, [](const DispatchRow& r) { return r.tokens; })},
                    {"ranks", values_of(own, [](const DispatchRow& r) { return r.ep; })}};
      one.residuals = [trial_profile = small_profile(), name = key, own](const ParameterSet& trial) mutable {
        trial_profile.set(name, trial);
        const models::EpKernelModel model(trial_profile, name, trial_profile.device().nic_bandwidth);
        std::vector<double> r;
        for (const DispatchRow& row : own)
          r.push_back(std::log(model.seconds(*call_of(row)) / seconds_of(row)));
        return r;
      };
      profile_.set(key, take(one));
    }
  }

  // A class that nobody measured starts from the share that it is judged to reach.
  ParameterSet judged(models::KernelClass kind) const {
    ParameterSet set;
    set.law = "memory-bound";
    set.names = {"floor", "share"};
    set.values = {std::max(base_.launch().kernel_floor, 1e-7), models::judged_share(kind)};
    const double sigma = models::kUnmeasuredKernelSigma;
    set.covariance = {sigma * sigma, 0, 0, sigma * sigma};
    set.residual = kMostScatter;
    set.source = "judged (models/costs/kernels.cc)";
    return set;
  }

  void kernels(const std::vector<Measurements::KernelRow>& rows) {
    std::map<std::string, std::vector<Measurements::KernelRow>> groups;
    for (const auto& row : rows) {
      if (!models::parse_kernel_class(row.kernel))
        skip("kernels of an unknown class");
      else
        groups[row.kernel].push_back(row);
    }
    for (const auto& [name, own] : groups) {
      const models::KernelClass kind = *models::parse_kernel_class(name);
      LawCase one;
      one.key = "kernel/" + name;
      const ParameterSet* law = base_.find(one.key);
      one.before = law ? *law : judged(kind);
      one.added = !law;
      one.origins = origins_of(own);
      one.ranges = {{"bytes", values_of(own, [](const auto& r) { return r.bytes; })}};
      one.residuals = [trial_profile = small_profile(), key = one.key, kind,
                       own](const ParameterSet& trial) mutable {
        trial_profile.set(key, trial);
        const models::KernelModel model(trial_profile);
        std::vector<double> r;
        for (const auto& row : own)
          r.push_back(std::log(model.seconds(kind, row.bytes, 0, row.launches) / row.seconds));
        return r;
      };
      profile_.set(one.key, take(one));
    }
  }

  void machine(const std::vector<Measurements::MachineRow>& rows) {
    constexpr double kHostSigma = 0.15;  // models/hardware/profile.cc
    for (const MachineNumber& number : set_machine_numbers(profile_, rows)) {
      RefinedLaw law;
      law.key = "machine/" + number.what;
      law.rows = static_cast<int>(number.rows);
      law.own_share = 1;
      law.moved = number.before > 0 ? std::log(number.after / number.before) : 0;
      law.moved_sigma = law.moved / kHostSigma;
      law.error_before = std::abs(law.moved);
      report_.rows += number.rows;
      report_.laws.push_back(law);
    }
  }

  // What the models of single kernels read beside the trial law: the device's limits.
  Profile small_profile() const {
    Profile small;
    small.describe(base_.name(), base_.gpu(), "", {});
    small.device() = base_.device();
    small.launch() = base_.launch();
    return small;
  }

  const Profile& base_;
  Profile profile_;
};

class NetworkRefining : public Refining {
 public:
  NetworkRefining(const models::NetworkProfile& base,
                  const std::function<const Profile&(const Device&)>& profile_of, RefineReport& report)
      : Refining(report), base_(base), network_(base), profile_of_(profile_of) {}

  models::NetworkProfile run(const Measurements& all) {
    std::map<std::pair<const Device*, CollectiveOp>, std::vector<CollectiveRow>> collectives;
    for (const CollectiveRow& row : all.collectives) {
      const Device* device = device_of_gpu(row.origin.gpu);
      if (!device)
        skip("rows of a GPU without a profile");
      else if (inside_domain(row, profile_of_(*device)))
        skip("rows inside a domain: they are of a GPU (calibrate refine PROFILE)");
      else if (integer_reduction(row))
        skip("integer reductions, which no forecast uses");
      else
        collectives[{device, row.op}].push_back(row);
    }
    for (const auto& [of, own] : collectives) {
      const std::string key = collective_key(of.second, true);
      const models::Cluster& cluster = cluster_of_gpu(*of.first);
      const ParameterSet* law = cluster.profile.find(key);
      if (!law) {
        skip(key + ": no network was measured with it", own.size());
        continue;
      }
      // Rows of a second GPU on the same network come on top.
      LawCase one =
          collective_case(cluster, own, true, network_.laws.contains(key) ? network_.laws[key] : *law);
      one.added = !base_.laws.contains(key);
      network_.laws[key] = take(one);
    }
    dispatches(all.dispatches);
    if (!all.exposed_calls.empty())
      skip("calls of a recording that hold their launch (calibrate fit)", all.exposed_calls.size());
    const std::size_t others =
        all.gemms.size() + all.grouped.size() + all.ffns.size() + all.kernels.size() + all.machine.size();
    if (others > 0) skip("rows of a GPU alone (calibrate refine PROFILE)", others);
    return std::move(network_);
  }

 private:
  // Nodes of this GPU on the network.
  const models::Cluster& cluster_of_gpu(const Device& device) {
    auto& cluster = clusters_[&device];
    if (cluster) return *cluster;
    const Profile& profile = profile_of_(device);
    cluster = std::make_unique<models::Cluster>();
    cluster->name = base_.name;
    cluster->profile = profile;
    cluster->nodes = 1 << 12;
    cluster->gpus_per_node = base_.gpus_per_node;
    cluster->nvlink.bandwidth = profile.device().scaleup_bandwidth;
    const bool rack = profile.device().scaleup_domain > profile.device().gpus_per_node;
    cluster->nvlink.domain =
        rack ? std::max(profile.device().scaleup_domain, base_.gpus_per_node) : base_.gpus_per_node;
    cluster->nic.ports_per_node = base_.ports_per_node;
    cluster->nic.bandwidth = base_.line_rate;
    models::use_network(*cluster, base_);
    return *cluster;
  }

  void dispatches(const std::vector<DispatchRow>& rows) {
    std::map<std::string, std::vector<DispatchRow>> groups;
    for (const DispatchRow& row : rows) {
      if (!device_of_gpu(row.origin.gpu))
        skip("rows of a GPU without a profile");
      else if (!call_of(row) || seconds_of(row) <= 0)
        skip("dispatch rows without tokens, hidden size, top-k, EP size or time");
      else if (suspect(row))
        skip("dispatch rows that their table suspects");
      else if (!across_domains(row))
        skip("rows inside a domain: they are of a GPU (calibrate refine PROFILE)");
      else
        groups[law_key(row) + std::string(models::kNetworkLaw)].push_back(row);
    }
    static const models::NetworkProfile all = models::NetworkProfile::load(std::string(models::kLineRate));
    for (const auto& [key, own] : groups) {
      LawCase one;
      one.key = key;
      if (base_.laws.contains(key)) {
        one.before = base_.laws.at(key);
      } else if (all.laws.contains(key)) {
        one.before = all.laws.at(key);
        one.before.derived = true;
        one.before.rows = 0;
        one.added = true;
      } else {
        skip(key + ": no network was measured with this kernel", own.size());
        continue;
      }
      one.origins = origins_of(own);
      one.ranges = {{"tokens", values_of(own, [](const DispatchRow& r) { return r.tokens; })},
                    {"ranks", values_of(own, [](const DispatchRow& r) { return r.ep; })}};
      std::map<const Device*, Profile> profiles;
      std::map<const Device*, double> ports;
      for (const DispatchRow& row : own) {
        const Device* device = device_of_gpu(row.origin.gpu);
        if (profiles.contains(device)) continue;
        profiles.emplace(device, profile_of_(*device));
        ports[device] = cluster_of_gpu(*device).network_per_gpu();
      }
      one.residuals = [profiles, ports, name = key, own](const ParameterSet& trial) mutable {
        std::map<const Device*, models::EpKernelModel> models;
        for (auto& [device, profile] : profiles) {
          profile.set(name, models::with_links(trial, profile, name));
          models.emplace(device, models::EpKernelModel(profile, name, ports.at(device)));
        }
        std::vector<double> r;
        for (const DispatchRow& row : own)
          r.push_back(
              std::log(models.at(device_of_gpu(row.origin.gpu)).seconds(*call_of(row)) / seconds_of(row)));
        return r;
      };
      network_.laws[key] = take(one);
    }
  }

  const models::NetworkProfile& base_;
  models::NetworkProfile network_;
  const std::function<const Profile&(const Device&)>& profile_of_;
  std::map<const Device*, std::unique_ptr<models::Cluster>> clusters_;
};

}  // namespace

Profile refine(const Profile& base, const Measurements& rows, RefineReport& report) {
  return GpuRefining(base, report).run(rows);
}

models::NetworkProfile refine(const models::NetworkProfile& base, const Measurements& rows,
                              const std::function<const Profile&(const Device&)>& profile_of,
                              RefineReport& report) {
  return NetworkRefining(base, profile_of, report).run(rows);
}

}  // namespace moesim::calibration
